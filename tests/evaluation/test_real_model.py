"""A part of build_scripts/bench_identity.py: the packaged model, float32, own answers as store."""

import pytest

from specret import engine as engines
from specret.datastore.build import build_store
from specret.datastore.corpus import open_corpus
from specret.datastore.plan import BuildOptions, plan_build
from specret.evaluation import harness
from specret.evaluation.prompts import load_prompts
from specret.models.encoder import TransformersEncoder

pytestmark = pytest.mark.slow

DRAFTERS = ["rest", "suffix", "dresd", "prompt", "hybrid"]
TOKENS = 48


@pytest.fixture(scope="module")
def prompts():
    return load_prompts("humaneval", skip=70, every=40, limit=2)


@pytest.fixture(scope="module")
def engine(prompts, tmp_path_factory):
    plain = engines.load(drafter="plain", dtype="float32", device="cpu")
    texts, folder = tmp_path_factory.mktemp("texts"), tmp_path_factory.mktemp("store")
    for number, prompt in enumerate(prompts):
        # one token more, so that something follows the last one that is looked up
        answer = plain.generate(prompt.turns[0], max_new_tokens=TOKENS + 1).text
        (texts / f"{number}.txt").write_text(answer)
    loaded = plain.loaded
    corpus, encoder = open_corpus(str(texts)), TransformersEncoder(loaded)
    parts = (corpus, loaded.tokenizer, encoder, loaded.fingerprint)
    build_store(plan_build(*parts, folder / "s", BuildOptions(dense_tokens=1000)), *parts)
    return engines.load(drafter="plain", store=folder / "s", dtype="float32", device="cpu")


def test_every_drafter_writes_what_plain_and_transformers_write(engine, prompts):
    names = [*DRAFTERS, "hf-generate"]
    result = harness.run(engine, names, prompts, nodes=16, max_new_tokens=TOKENS)
    assert result["lossless"]
    for name in names:
        row = result["methods"][name]
        assert row["identical"] + row["near_ties"] == row["answers"] == 2
    for name in DRAFTERS:
        assert result["methods"][name]["acceptance_rate"] > 0, f"{name}: nothing was accepted"
    for name in ("suffix", "prompt", "hybrid"):
        assert result["methods"][name]["acceptance_rate"] < 1, f"{name}: nothing was rejected"
    # the store holds the very answers: long blocks are accepted at once
    assert result["methods"]["suffix"]["tokens_per_step"] > 2


def test_a_seed_writes_the_text_of_plain_with_every_drafter(engine, prompts):
    result = harness.run(
        engine, DRAFTERS, prompts[:1], nodes=16, max_new_tokens=TOKENS, temperature=0.8, seed=11
    )
    assert result["lossless"]
    for name in DRAFTERS:
        row = result["methods"][name]
        assert row["identical"] + row["near_ties"] == 1
    assert result["methods"]["hybrid"]["acceptance_rate"] > 0
