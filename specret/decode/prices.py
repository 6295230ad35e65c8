"""What one forward of the target costs by its number of rows: measured once, kept on disk.

In: a target and what it runs on. Out: `Prices`. Measures through `Target.score` with drafts of
random ids, so masks, cache and head are those of decoding. Knows no drafter and no store.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, Protocol

import numpy as np
import torch

from specret.models.cache import user_cache
from specret.protocols import Target
from specret.types import Context, Draft, Fingerprint, Prices, Verdict

ROWS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 65)
SCHEMA_VERSION = 1
MIN_ROUNDS, MAX_ROUNDS, SPEND_S = 2, 9, 6.0
"""Rounds over all sizes: at least the first, at most the second, none begun after the third."""

QUIET = 0.8
"""Least share of the time in which this thread really ran: below, others had the processor."""


class Measured(Protocol):
    """What tells one measurement from another (see specret.models.load)."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Whose weights."""

    @property
    def device(self) -> torch.device:
        """Where they run."""

    @property
    def dtype(self) -> torch.dtype:
        """In which precision."""


def measure_prices(
    target: Target, loaded: Measured, context: int = 256, *, cache: Path | None = None
) -> Prices:
    """T(rows) of a target with about `context` rows cached (fewer where the model holds less).

    Read from the user's cache (`SPECRET_CACHE` moves it; `cache` is another folder) where the same
    weights were measured on the same device, dtype, threads and torch; else measured, some
    seconds, and kept there. A file that does not hold what it should is measured anew. Prices of
    a CPU that was busy with something else serve this run and are not kept.
    """
    context, rows = _fitting(target.context_len, context)
    key = _key(loaded, context)
    folder = user_cache() if cache is None else cache
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    file = folder / "prices" / f"{name}.json"
    known = _read(file, key, rows)
    if known is None:
        wall, own = perf_counter(), thread_time()
        known = Prices(rows, time_rows(target, rows, context), context)
        share = (thread_time() - own) / (perf_counter() - wall)
        if loaded.device.type != "cpu" or share >= QUIET:
            _write(file, {"schema_version": SCHEMA_VERSION, "key": key}, known)
    return known


def time_rows(
    target: Target,
    rows: tuple[int, ...],
    context: int,
    *,
    clock: Callable[[], float] = perf_counter,
) -> tuple[float, ...]:
    """Seconds of one forward for each number of rows: the best of several interleaved rounds.

    Load from elsewhere only ever adds time, so the smallest is the price; a first round warms up.
    """
    begin = clock()
    _one_round(target, rows, context, clock)
    rounds: list[list[float]] = []
    while len(rounds) < MIN_ROUNDS or (len(rounds) < MAX_ROUNDS and clock() - begin < SPEND_S):
        rounds.append(_one_round(target, rows, context, clock))
    return tuple(np.min(rounds, axis=0).tolist())


def _one_round(
    target: Target, rows: tuple[int, ...], context: int, clock: Callable[[], float]
) -> list[float]:
    rng = np.random.default_rng(0)
    capacity = context + len(rows) + max(rows)
    text = Context.begin(rng.integers(0, target.vocab_size, context), capacity)
    text = text.with_features(target.prefill(text.tokens[:-1], capacity))
    seconds = []
    for count in rows:
        draft = _random_tree(count - 1, target.vocab_size, rng)
        start = clock()
        float(target.score(text, draft).logits[-1, 0])  # waits for the device
        seconds.append(clock() - start)
        token = int(rng.integers(target.vocab_size))
        text = text.extend((token,), target.commit(Verdict((), token)))
    return seconds


def _random_tree(nodes: int, vocab_size: int, rng: np.random.Generator) -> Draft:
    """A binary tree; siblings differ as far as the vocabulary allows."""
    index = np.arange(nodes)
    tokens = 2 * rng.integers(0, max(1, vocab_size // 2), nodes) + index % 2
    return Draft(
        tokens,
        (index // 2 - 1).astype(np.int32),
        np.ones(nodes, np.float32),
        vocab_size,
        np.zeros(nodes, np.uint8),
        np.full(nodes, -1, np.int64),
    )


def _fitting(context_len: int, context: int) -> tuple[int, tuple[int, ...]]:
    """The context and the numbers of rows that a model of `context_len` positions can show."""
    context = max(1, min(context, context_len // 2))
    room = context_len - context - len(ROWS)
    return context, tuple(count for count in ROWS if count == 1 or count <= room)


def _key(loaded: Measured, context: int) -> dict[str, Any]:
    device = loaded.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_model()
    return {
        "weights": loaded.fingerprint.weights,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "device": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "context": context,
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")  # where there is one, it says more than platform does
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} x {os.cpu_count()}"


def _read(file: Path, key: dict[str, Any], rows: tuple[int, ...]) -> Prices | None:
    if not file.exists():
        return None
    try:
        held = json.loads(file.read_text())
        seconds = tuple(float(s) for s in held["seconds"])
        right = held["key"] == key and held["schema_version"] == SCHEMA_VERSION
    except (ValueError, KeyError, TypeError):  # a damaged file costs a measurement, not the run
        return None
    right = right and len(seconds) == len(rows) and all(0 < s < float("inf") for s in seconds)
    return Prices(rows, seconds, key["context"]) if right else None


def _write(file: Path, head: dict[str, Any], prices: Prices) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    body = head | {"rows": prices.rows, "seconds": prices.seconds}
    unfinished = file.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(body, indent=1) + "\n")
    unfinished.replace(file)
