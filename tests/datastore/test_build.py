"""Builds end in the same bytes however they were interrupted, and never harm an older store."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from small_stores import (
    FINGERPRINT,
    VOCAB,
    ByteTokenizer,
    SumEncoder,
    build,
    contents,
    prose,
    write_files,
)

from specret.datastore import build as build_module
from specret.datastore.corpus import open_corpus
from specret.datastore.plan import BuildOptions, plan_build
from specret.datastore.store import open_store
from specret.types import SpecretError

KILLED_BUILD = """
import os, signal, sys
from pathlib import Path
from specret.datastore import tokens
import small_stores
source, out, stage, share = sys.argv[1:]
tokens.BATCH_CHARS = 400
def kill(now, done, total):
    if now == stage and done >= float(share) * total:
        os.kill(os.getpid(), signal.SIGKILL)
small_stores.build(source, Path(out), progress=kill, shard_keys=200)
"""

MOMENTS = [
    ("tokens", 0.2),
    ("tokens", 0.9),
    ("suffix", 0.0),
    ("suffix", 1.0),
    ("states", 0.2),
    ("states", 0.5),
    ("states", 0.9),
    ("index", 0.3),
    ("index", 1.0),
]


@pytest.fixture(scope="module", name="source")
def _source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [*prose(20, 25), "", "nul\0"]
    return write_files(tmp_path_factory.mktemp("corpus"), texts)


@pytest.fixture(scope="module", name="whole")
def _whole(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    build(source, folder, shard_keys=200)
    return contents(folder)


def killed_build(source: Path, out: Path, stage: str, share: float) -> None:
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-c", KILLED_BUILD, str(source), str(out), stage, str(share)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


@pytest.mark.parametrize(("stage", "share"), MOMENTS)
def test_a_killed_build_goes_on_and_ends_byte_identical(
    source: Path, whole: dict[str, bytes], tmp_path: Path, stage: str, share: float
) -> None:
    killed_build(source, tmp_path, stage, share)
    left = set(contents(tmp_path))
    assert left
    assert "manifest.json" not in left
    with pytest.raises(SpecretError, match="no datastore"):
        open_store(tmp_path, FINGERPRINT)
    encoder = SumEncoder()
    assert build(source, tmp_path, encoder=encoder, shard_keys=200).fresh
    assert contents(tmp_path) == whole


def test_a_build_that_failed_at_the_manifest_goes_on(
    source: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(build_module.Manifest, "save", fail)
        with pytest.raises(OSError, match="No space"):
            build(source, tmp_path, shard_keys=200)
    build(source, tmp_path, shard_keys=200)
    assert contents(tmp_path) == whole


def test_two_builds_give_the_same_bytes(
    source: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    build(source, tmp_path, shard_keys=200)
    assert contents(tmp_path) == whole


class NoEncoder(SumEncoder):
    """Fails when states are asked for."""

    def encode(self, windows: Any) -> Any:
        raise ConnectionError("the model is gone")


def test_a_finished_store_is_not_built_again(source: Path, tmp_path: Path) -> None:
    first = build(source, tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    seen: list[tuple[Any, ...]] = []
    again = build(source, tmp_path, progress=lambda *now: seen.append(now))
    assert first.fresh
    assert not again.fresh
    assert again.manifest == first.manifest
    assert not seen
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}


def test_a_damaged_store_is_built_again(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path)
    good = contents(tmp_path)
    for role in ("tokens", "suffix", "index", "projection"):
        path = tmp_path / open_store(tmp_path, FINGERPRINT).manifest.files[role].path
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert build(source, tmp_path).fresh
        assert contents(tmp_path) == good


CHANGES = {
    "other weights": {"fingerprint": replace(FINGERPRINT, weights="e" * 64)},
    "another tokenizer": {"fingerprint": replace(FINGERPRINT, tokenizer="e" * 64)},
    "fewer keys": {"dense_tokens": 300},
    "no keys": {"dense_tokens": 0},
    "another window": {"window": 16},
    "a limit of tokens": {"max_tokens": 900},
}


@pytest.mark.parametrize("case", CHANGES)
def test_other_parameters_start_cleanly_even_in_a_folder_with_remains(
    source: Path, tmp_path: Path, case: str
) -> None:
    build(source, tmp_path / "clean", **CHANGES[case])
    build(source, tmp_path / "used", max_tokens=500)
    with pytest.raises(ConnectionError):
        build(source, tmp_path / "used", encoder=NoEncoderAfterPlan())
    assert build(source, tmp_path / "used", **CHANGES[case]).fresh
    assert contents(tmp_path / "used") == contents(tmp_path / "clean")


class NoEncoderAfterPlan(SumEncoder):
    """Serves the plan's two calls and the first two batches of a build, then fails."""

    def encode(self, windows: Any) -> Any:
        if len(self.calls) >= 4:
            raise ConnectionError("the model is gone")
        return super().encode(windows)


def test_a_failing_build_leaves_the_older_store_usable(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path, max_tokens=600)
    before = open_store(tmp_path, FINGERPRINT)
    kept = {file.path for file in before.manifest.files.values()}
    with pytest.raises(ConnectionError):
        build(source, tmp_path, encoder=NoEncoderAfterPlan())
    after = open_store(tmp_path, FINGERPRINT)
    assert after.manifest == before.manifest
    build(source, tmp_path)
    assert not kept & set(contents(tmp_path))


def test_files_of_others_in_the_folder_stay(source: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    build(source, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    open_store(tmp_path, FINGERPRINT)


def test_a_second_build_in_the_same_folder_is_refused(source: Path, tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    with FileLock(tmp_path / "_lock"), pytest.raises(SpecretError, match="another build") as fault:
        build(source, tmp_path)
    assert "--out" in fault.value.hint
    assert str(tmp_path) in str(fault.value)


def test_nothing_usable_leaves_no_store(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "in", ["", "\0", "  "])
    with pytest.raises(SpecretError, match="no usable document"):
        build(folder, tmp_path / "store")
    with pytest.raises(SpecretError, match="no datastore"):
        open_store(tmp_path / "store", FINGERPRINT)


@pytest.mark.parametrize("keys", [1, 2, 63, 64, 65])
def test_a_store_of_few_positions_answers(tmp_path: Path, keys: int) -> None:
    text = "".join(chr(97 + i % 26) + chr(65 + i % 7) for i in range(100))[: keys + 2]
    built = build(write_files(tmp_path / "in", [text]), tmp_path / "store")
    assert built.manifest.counts["keys"] == keys
    store = open_store(tmp_path / "store", FINGERPRINT)
    assert store.dense is not None
    assert store.projection is not None
    assert store.projection.dim == max(1, min(64, keys - 1))
    tokens = store.tokens.astype(np.int64)
    for position in range(keys):
        start = position // 32 * 32
        state = SumEncoder().states(tokens[start : position + 1])[-1]
        key = store.projection.apply(state[None])[0]
        _, near = store.dense.search(key, int(tokens[position + 1]), keys)
        assert near[0] == position or keys < 3


@pytest.mark.parametrize("text", ["a", "ab"])
def test_a_corpus_too_short_for_a_key_is_refused_or_sparse(tmp_path: Path, text: str) -> None:
    folder = write_files(tmp_path / "in", [text])
    with pytest.raises(SpecretError, match="no state to keep") as fault:
        build(folder, tmp_path / "store")
    assert "--dense-tokens 0" in fault.value.hint
    build(folder, tmp_path / "store", dense_tokens=0)
    store = open_store(tmp_path / "store", FINGERPRINT)
    assert bytes(store.tokens.tolist()).decode() == text
    assert len(store.suffix.draft(np.array([97]), max_nodes=4, max_depth=4).tokens) == len(text) - 1


@pytest.mark.parametrize("lines", [1, 10, 100, 1000])
def test_any_number_of_lines_gives_a_usable_store(tmp_path: Path, lines: int) -> None:
    texts = prose(lines, 4)
    folder = tmp_path / "lines.jsonl"
    folder.write_text("".join(f'{{"text": "{line.strip()}"}}\n' for line in texts))
    build(folder, tmp_path / "store")
    store = open_store(tmp_path / "store", FINGERPRINT)
    assert store.dense is not None
    for token in store.dense.following:
        _, near = store.dense.search(np.ones(store.dense.dim, np.float32), int(token), 10**6)
        assert len(near)
        assert (store.tokens[near + 1] == token).all()


def test_memory_for_states_and_temporary_files_stays_bounded(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "in", prose(60, 60))
    peak = 0

    def watch(stage: str, done: int, total: int) -> None:
        nonlocal peak
        files = [p for p in (tmp_path / "store").rglob("*") if p.is_file()]
        peak = max(peak, sum(p.stat().st_size for p in files))

    built = build(folder, tmp_path / "store", progress=watch, shard_keys=2000)
    raw = built.manifest.counts["keys"] * SumEncoder.width * 4
    assert peak < 3 * built.manifest.bytes + raw / 4
    left = {path for path in contents(tmp_path / "store") if "shard" in path or "partial" in path}
    assert not left


class Narrow(SumEncoder):
    """States of 256 dimensions; the context of a token is left out for speed."""

    width = 256

    def __init__(self) -> None:
        super().__init__()
        self._rows = np.random.default_rng(1).normal(size=(VOCAB, 256)).astype(np.float32)

    def states(self, window: Any) -> Any:
        return self._rows[window]


@pytest.mark.slow
def test_a_million_keys_need_little_temporary_space(tmp_path: Path) -> None:
    letters = np.random.default_rng(0).integers(97, 123, 1_002_000).astype(np.uint8)
    texts = [bytes(part).decode() for part in np.split(letters, 1000)]
    folder = write_files(tmp_path / "in", texts)
    peak = 0

    def watch(stage: str, done: int, total: int) -> None:
        nonlocal peak
        files = [p for p in (tmp_path / "store").rglob("*") if p.is_file()]
        peak = max(peak, sum(p.stat().st_size for p in files))

    fingerprint = replace(FINGERPRINT, hidden_size=256)
    built = build(
        folder,
        tmp_path / "store",
        fingerprint=fingerprint,
        encoder=Narrow(),
        progress=watch,
        dense_tokens=10**6,
        window=256,
        batch_tokens=4096,
        shard_keys=1 << 15,
    )
    assert built.manifest.counts["keys"] == 10**6
    assert peak - built.manifest.bytes < 2 * built.manifest.bytes + 200e6
    dense = built.manifest.files["index"].bytes + built.manifest.files["lists"].bytes
    assert dense <= 80 * 10**6


def test_the_plan_says_what_will_be_built_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    corpus = open_corpus(str(source))
    options = BuildOptions(dense_tokens=500)
    plan = plan_build(
        corpus, ByteTokenizer(), SumEncoder(), FINGERPRINT, tmp_path / "store", options
    )
    assert not (tmp_path / "store").exists()
    built = build(source, tmp_path / "store", dense_tokens=500)
    assert plan.documents == 22
    assert plan.tokens == pytest.approx(built.manifest.counts["tokens"], rel=0.05)
    assert plan.keys == 500
    assert set(plan.seconds) == {"tokens", "suffix", "states"}
    for part in ("documents   about 22", "dense keys  about 500", str(tmp_path)):
        assert part in str(plan)
    again = plan_build(
        corpus, ByteTokenizer(), SumEncoder(), FINGERPRINT, tmp_path / "store", options
    )
    assert not again.finished  # the sizes of this plan are not those it was built with


@pytest.mark.parametrize(
    "options", [{"max_tokens": 0}, {"dense_tokens": -1}, {"window": 0}], ids=str
)
def test_options_outside_their_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(SpecretError, match="expected at least"):
        BuildOptions(**options)
