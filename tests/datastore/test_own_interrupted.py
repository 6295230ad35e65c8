"""Builds of own answers that did not run through: killed, refused, out of disk."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from small_stores import (
    FINGERPRINT,
    OWN,
    ToyWriter,
    build_answers,
    contents,
    plan_answers,
    prose,
    write_files,
)

from specret.datastore import own_plan
from specret.datastore.build import LOCK
from specret.datastore.manifest import open_manifest, verify
from specret.datastore.own import build_own
from specret.types import SpecretError

KILLED_BUILD = """
import os, signal, sys
from pathlib import Path
from small_stores import ToyKeeper, ToyWriter, build_answers
from specret.datastore import own_plan
own_plan.MOST_ROWS = 2
calls, last = 0, int(sys.argv[3])
def count(frame, event, argument):
    global calls
    calls += 1
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(count)
build_answers(Path(sys.argv[1]), Path(sys.argv[2]), writer=ToyWriter(keeper=ToyKeeper()))
sys.setprofile(None)
print(calls)
"""

MOMENTS = (np.arange(10) + np.random.default_rng(0).random(10)) / 10
"""As shares of all the calls that the build makes: a random one in each tenth."""


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_plan, "MOST_ROWS", 2)


@pytest.fixture(name="corpus", scope="module")
def _corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("corpus"), prose(90, 20))


@pytest.fixture(name="whole", scope="module")
def _whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], int]:
    folder = tmp_path_factory.mktemp("whole")
    ended = run(corpus, folder)
    assert ended.returncode == 0, ended.stderr
    return contents(folder), int(ended.stdout)


def run(corpus: Path, out: Path, last: int = 0) -> subprocess.CompletedProcess[str]:
    tests = Path(__file__).parent.parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    command = [sys.executable, "-c", KILLED_BUILD, str(corpus), str(out), str(last)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_build_killed_at_a_random_moment_resumes_to_the_same_bytes(
    moment: float, corpus: Path, whole: tuple[dict[str, bytes], int], tmp_path: Path
) -> None:
    expected, calls = whole
    ended = run(corpus, tmp_path, round(moment * calls))
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    if "manifest.json" in contents(tmp_path):
        verify(tmp_path, open_manifest(tmp_path))
    again = run(corpus, tmp_path)
    assert again.returncode == 0, again.stderr
    assert contents(tmp_path) == expected
    verify(tmp_path, open_manifest(tmp_path))


@settings(max_examples=12, deadline=None)
@given(kills=st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_a_build_killed_at_any_answer_resumes_to_the_same_bytes(
    kills: Sequence[int], corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("resumed")
    _, whole = build_answers(corpus, folder / "whole")
    for kill in kills:
        try:
            build_answers(corpus, folder / "killed", writer=ToyWriter(kill))
        except KeyboardInterrupt:
            assert not (folder / "killed" / "manifest.json").exists()
    _, again = build_answers(corpus, folder / "killed")
    assert again.manifest == whole.manifest
    assert contents(folder / "killed") == contents(folder / "whole")


def test_a_finished_shard_is_not_answered_again(corpus: Path, tmp_path: Path) -> None:
    first = ToyWriter(kill_at=20)
    with pytest.raises(KeyboardInterrupt):
        build_answers(corpus, tmp_path / "s", writer=first)
    second = ToyWriter()
    build_answers(corpus, tmp_path / "s", writer=second)
    assert len(first.batches) == 2
    assert sorted(second.batches[0]) == sorted(first.batches[1])
    third = ToyWriter()
    _, result = build_answers(corpus, tmp_path / "s", writer=third)
    assert (third.batches, result.fresh) == ([], False)


def test_a_second_build_in_the_same_folder_is_refused(corpus: Path, tmp_path: Path) -> None:
    plan = plan_answers(corpus, tmp_path / "s", ToyWriter())
    (tmp_path / "s").mkdir()
    with (
        FileLock(tmp_path / "s" / LOCK),
        pytest.raises(SpecretError, match="another build is at work"),
    ):
        build_own(plan, ToyWriter(), FINGERPRINT)


class DiskFull(OSError):
    """The one error that the test itself raises."""


def test_a_disk_full_at_any_file_leaves_the_older_store_whole(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, old = build_answers(corpus, tmp_path / "s")
    other = replace(OWN, seed=1, temperature=0.5)
    own, left = os.replace, 0

    def full(*names: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise DiskFull(28, "No space left on device")
        own(*names)

    monkeypatch.setattr(os, "replace", full)
    for room in count():
        left = room
        try:
            build_answers(corpus, tmp_path / "s", other)
            break
        except DiskFull:
            assert open_manifest(tmp_path / "s") == old.manifest
            verify(tmp_path / "s", old.manifest)
    assert room > 5
    left = 1000
    build_answers(corpus, tmp_path / "fresh", other)
    assert contents(tmp_path / "s") == contents(tmp_path / "fresh")
