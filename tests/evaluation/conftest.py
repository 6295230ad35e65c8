"""A tiny random model that repeats itself, with a small store of text."""

import pytest
from tiny_folder import save_tiny

from specret import engine as engines
from specret.datastore.build import build_store
from specret.datastore.corpus import open_corpus
from specret.datastore.plan import BuildOptions, plan_build
from specret.models.encoder import TransformersEncoder
from specret.models.load import load_model

LINES = (
    "the cat sat on the mat, the end of the tale",
    "the end of the cat on the mat of the tale",
    "on the mat the cat sat and sat and sat",
)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    # these weights end in a short cycle, so that drafts from the text so far are accepted
    settings = {"seed": 3, "initializer_range": 0.05, "max_position_embeddings": 256}
    return save_tiny(tmp_path_factory.mktemp("model"), **settings)


@pytest.fixture(scope="session")
def store_folder(model_folder, tmp_path_factory):
    texts, folder = tmp_path_factory.mktemp("texts"), tmp_path_factory.mktemp("store")
    for number, line in enumerate(LINES):
        (texts / f"{number}.txt").write_text("\n".join([line] * 12))
    loaded = load_model(str(model_folder), dtype="float32", device="cpu")
    corpus, encoder = open_corpus(str(texts)), TransformersEncoder(loaded)
    options = BuildOptions(dense_tokens=400, window=64)
    plan = plan_build(corpus, loaded.tokenizer, encoder, loaded.fingerprint, folder / "s", options)
    build_store(plan, corpus, loaded.tokenizer, encoder, loaded.fingerprint)
    return folder / "s"


@pytest.fixture
def engine(model_folder, store_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECRET_CACHE", str(tmp_path))
    return engines.load(
        str(model_folder), drafter="plain", store=store_folder, dtype="float32", device="cpu"
    )
