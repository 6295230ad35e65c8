"""A part of build_scripts/bench_identity.py: the packaged model, float32, own answers as store."""

import argparse
from pathlib import Path

import numpy as np
import pytest

from specret import engine as engines
from specret.datastore.build import build_store
from specret.datastore.corpus import open_corpus
from specret.datastore.plan import BuildOptions, plan_build
from specret.datastore.projection import Moments, Projection
from specret.datastore.vectors import DenseIndex, exact_search
from specret.decode.call import Call
from specret.evaluation import harness
from specret.evaluation.identity import compare
from specret.evaluation.prompts import load_prompts
from specret.evaluation.sample import Writing
from specret.evaluation.summary import gap_after
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


def test_answers_written_together_are_those_of_plain(engine):
    asked = load_prompts("humaneval", skip=3, every=20, limit=6)
    prompts = [engine.encode(prompt.turns[0]) for prompt in asked]
    how = Writing(32, 0.0, 0)
    answers = list(engine.writer(Call(max_new_tokens=32)).write(list(enumerate(prompts)), 4, 600))
    assert sorted(answer.number for answer in answers) == list(range(6))
    for answer in answers:
        prompt = prompts[answer.number]
        alone = engine.generate(prompt, max_new_tokens=32).tokens
        found = compare(alone, answer.tokens, gap_after(engine, prompt, how), half=False)
        assert found is None or found.near_tie, found


def test_the_dense_search_finds_what_exact_search_finds_among_real_keys(engine):
    text = Path(argparse.__file__).read_text()
    ids = np.array(engine.tokenizer(text)["input_ids"][:12_288], np.int64)
    states = np.concatenate(TransformersEncoder(engine.loaded).encode(np.split(ids, 48)))
    moments = Moments(states.shape[1])
    moments.add(states)
    keys = Projection.fit(moments).apply(states)
    held_out = slice(None, None, 8)
    stored = np.setdiff1d(np.arange(len(ids) - 1), np.arange(len(ids))[held_out])
    following = ids[stored + 1]
    blocks = [(keys[stored], following, stored)]
    index = DenseIndex.build(np.unique(following), blocks)
    found = wanted = 0
    for query, token in zip(keys[held_out], ids[1:][held_out].tolist(), strict=True):
        exact = exact_search(keys[stored], following, stored, query, token, 10)[1]
        if len(exact) == 10:  # a smaller group is returned whole
            found += len(np.intersect1d(exact, index.search(query, token, 10)[1]))
            wanted += 10
    assert wanted > 5_000
    assert found >= 0.9 * wanted, found / wanted
