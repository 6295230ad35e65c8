"""Prices: measured through `Target.score`, the best of interleaved rounds, kept per machine."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from specret.decode import prices
from specret.decode.prices import ROWS, measure_prices, time_rows
from specret.types import FINAL_NORM, Features, Fingerprint, Scores

CPU = torch.device("cpu")
FINGERPRINT = Fingerprint("toy", "abc", "def", 50, 8, "float32")


@dataclass(frozen=True)
class Loaded:
    fingerprint: Fingerprint = FINGERPRINT
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32


class TimedTarget:
    """A target whose forward of r rows takes (10 + r) seconds of a clock that only it moves."""

    vocab_size = 50

    def __init__(self, context_len=1000, noise=()):
        self.context_len = context_len
        self.now = 0.0
        self.noise = list(noise)
        self.scored = []
        self.length = 0

    def clock(self):
        return self.now

    def prefill(self, tokens, capacity):
        self.length, self.capacity = len(tokens), capacity
        return Features(0, {FINAL_NORM: np.zeros((len(tokens), 8))})

    def score(self, context, draft):
        assert self.length == len(context.tokens) - 1
        rows = len(draft) + 1
        assert self.length + rows <= min(self.capacity, self.context_len)
        self.scored.append(rows)
        self.now += 10 + rows + (self.noise.pop(0) if self.noise else 0)
        return Scores(np.zeros((rows, self.vocab_size)))

    def commit(self, verdict):
        assert verdict.path == ()
        self.length += 1
        return Features(self.length, {FINAL_NORM: np.zeros((1, 8))})


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    # the tests' own machine may be busy
    monkeypatch.setattr(prices, "thread_time", prices.perf_counter)


def test_each_number_of_rows_gets_its_own_time():
    target = TimedTarget()
    assert time_rows(target, (1, 2, 9, 65), 256, clock=target.clock) == (11, 12, 19, 75)


def test_load_from_elsewhere_does_not_raise_a_price():
    # warm-up, then a first round in which everything is slow and a second in which nothing is
    target = TimedTarget(noise=[0, 0, 50, 70, 0, 0])
    assert time_rows(target, (1, 9), 256, clock=target.clock) == (11, 19)


def test_sizes_are_interleaved_and_the_first_round_only_warms_up():
    target = TimedTarget(noise=[-5, -5])
    assert time_rows(target, (1, 9), 256, clock=target.clock) == (11, 19)
    assert target.scored == [1, 9, 1, 9, 1, 9]


@pytest.mark.parametrize("context_len", [4, 40, 100, 300, 2048])
def test_a_short_context_is_measured_with_what_fits(context_len, tmp_path):
    found = measure_prices(TimedTarget(context_len), Loaded(), cache=tmp_path)
    assert found.rows[0] == 1
    assert found.context + max(found.rows) <= context_len
    assert found.context == min(256, context_len // 2)
    assert context_len < 2048 or found.rows == ROWS


def test_a_second_start_reads_what_the_first_measured(tmp_path):
    first = measure_prices(TimedTarget(), Loaded(), cache=tmp_path)
    again = TimedTarget()
    assert measure_prices(again, Loaded(), cache=tmp_path) == first
    assert again.scored == []


def test_the_environment_moves_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECRET_CACHE", str(tmp_path / "there"))
    measure_prices(TimedTarget(), Loaded())
    assert len(list((tmp_path / "there" / "prices").glob("*.json"))) == 1


@pytest.mark.parametrize(
    "other",
    [
        Loaded(dtype=torch.bfloat16),
        Loaded(replace(FINGERPRINT, weights="other")),
    ],
)
def test_other_weights_and_other_dtypes_are_measured_apart(other, tmp_path):
    measure_prices(TimedTarget(), Loaded(), cache=tmp_path)
    target = TimedTarget()
    measure_prices(target, other, cache=tmp_path)
    assert target.scored


def test_another_number_of_threads_is_measured_apart(tmp_path, monkeypatch):
    measure_prices(TimedTarget(), Loaded(), cache=tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    target = TimedTarget()
    measure_prices(target, Loaded(), cache=tmp_path)
    assert target.scored


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[: len(body) // 2],
        lambda body: "",
        lambda body: "[]",
        lambda body: json.dumps(json.loads(body) | {"seconds": [1.0]}),
        lambda body: json.dumps(json.loads(body) | {"seconds": [-1.0] * len(ROWS)}),
        lambda body: json.dumps(json.loads(body) | {"seconds": None}),
        lambda body: json.dumps(json.loads(body) | {"schema_version": 0}),
        lambda body: json.dumps(json.loads(body) | {"key": {}}),
    ],
)
def test_a_damaged_file_is_measured_anew_and_mended(damage, tmp_path):
    first = measure_prices(TimedTarget(), Loaded(), cache=tmp_path)
    (file,) = (tmp_path / "prices").glob("*.json")
    whole = file.read_text()
    file.write_text(damage(whole))
    target = TimedTarget()
    again = measure_prices(target, Loaded(), cache=tmp_path)
    assert target.scored
    assert again.rows == first.rows
    assert json.loads(file.read_text())["key"] == json.loads(whole)["key"]


def test_a_file_that_is_not_text_is_measured_anew(tmp_path):
    measure_prices(TimedTarget(), Loaded(), cache=tmp_path)
    (file,) = (tmp_path / "prices").glob("*.json")
    file.write_bytes(b"\xff\xfe\x00")
    target = TimedTarget()
    measure_prices(target, Loaded(), cache=tmp_path)
    assert target.scored


def test_prices_of_a_busy_processor_are_used_but_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(prices, "thread_time", lambda: 0.0)
    assert measure_prices(TimedTarget(), Loaded(), cache=tmp_path).rows == ROWS
    assert not list(tmp_path.rglob("*.json"))
