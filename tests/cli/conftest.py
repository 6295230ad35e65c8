"""A tiny model, a store for it, and a way to run a command line in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_folder import save_tiny

from specret.cli.main import status

LINES = ["the cat sat on the mat, the end of the tale", "on the mat the cat sat, at the end"]


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECRET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")


@pytest.fixture(name="run")
def _run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        code = status([str(a) for a in arguments])
        seen = capfd.readouterr()
        return Ran(code, seen.out, seen.err)

    return run


@pytest.fixture(scope="session", name="model")
def _model(tmp_path_factory: Any) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session", name="corpus")
def _corpus(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("corpus")
    for i, line in enumerate(LINES):
        (folder / f"text{i}.txt").write_text(f"{line} {i}. " * 20)
    (folder / "blank.txt").write_text(" \n")
    (folder / "picture.bin").write_bytes(b"\x00\x01\x00")
    return folder


@pytest.fixture(scope="session", name="store")
def _store(model: Path, corpus: Path, tmp_path_factory: Any) -> Path:
    place: Path = tmp_path_factory.mktemp("store") / "store"
    asked = ["--corpus", corpus, "--out", place, "--dense-tokens", 200, "--model", model]
    assert status(["build-index", *map(str, asked)]) == 0
    return place
