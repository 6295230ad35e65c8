"""Prompts to shards of the target's own answers, with the keys of their tokens.

In: numbered prompts and a `Writer` (prompts to answers with states). Out: shards on disk, prompt
and answer told apart. Knows no model; states are projected on the way and never stored raw.

A shard is a fixed list of prompts that starts with an empty batch: a killed build does it again
from there and gets the same bytes, whatever was under way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from specret.datastore.durable import (
    Marker,
    Progress,
    counter,
    entry,
    read_marker,
    write_entry,
    write_marker,
)
from specret.datastore.manifest import FEATURES, shard_role
from specret.datastore.projection import Floats, Projection
from specret.datastore.states import AHEAD, FIT_BYTES, check_refused
from specret.protocols import Answer, Writer
from specret.types import SpecretError, TokenArray

FOLDER = "answers"
FULL_SHARD = 8
"""Prompts of a shard for each row of the batch: the batch runs empty only at a shard's end."""


@dataclass(frozen=True, slots=True)
class Answering:
    """How prompts are answered; all of it decides the bytes that come out.

    Attributes:
        wanted: answer tokens after which no further shard begins.
        rows: texts under way at once.
        shard_prompts: prompts of one shard.
        capacity: most tokens of a prompt and its answer.
        components: most dimensions of a key; 0: no keys.
    """

    wanted: int
    rows: int
    shard_prompts: int
    capacity: int
    components: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What one shard holds.

    Attributes:
        prompts, answers: ids of each prompt of the shard, in the order of their numbers.
        keys: (K, d) in fp32, answer by answer; K = 0 where the store has no dense side.
        answer: (K,) which answer a key belongs to.
        token: (K,) which token of that answer.
    """

    prompts: list[NDArray[Any]]
    answers: list[NDArray[Any]]
    keys: Floats
    answer: NDArray[np.int64]
    token: NDArray[np.int64]


def shard_prompts(rows: int, width: int, answer_tokens: int, wanted: int) -> int:
    """Prompts of a shard.

    Enough to keep the batch full, few enough to hold their states raw, and no more than are
    needed for `wanted` tokens if every answer is as long as it may be.
    """
    held = FIT_BYTES // (4 * width * answer_tokens)
    return max(rows, min(FULL_SHARD * rows, held, -(-wanted // answer_tokens)))


def write_answers(
    folder: Path,
    key: str,
    prompts: Sequence[TokenArray],
    writer: Writer,
    how: Answering,
    progress: Progress,
) -> list[Marker]:
    """Answer prompts shard by shard until enough is written, or go on where a kill stopped it.

    The projection is fitted on the states of shard 0, which are held in memory once.

    Returns:
        One marker a shard: file role "answers", in the first "projection" too where there are
        keys, "features" where the writer keeps them; facts answers, tokens, keys, refused.

    Raises:
        SpecretError: too many of a shard's states are not finite.
    """
    fitted = folder / "dense" / f"{key}.projection"
    markers: list[Marker] = []
    done = 0
    for start in range(0, len(prompts), how.shard_prompts):
        name = f"{key}.{shard_role('answers', len(markers))}"
        marker = read_marker(folder, name)
        if marker is None:
            part = prompts[start : start + how.shard_prompts]
            count = counter(progress, "answers", done, how.wanted)
            marker = _write_shard(folder, name, start, part, writer, how, fitted, count)
        markers.append(marker)
        done += marker.facts["tokens"]
        progress("answers", min(done, how.wanted), how.wanted)
        if done >= how.wanted:
            break
    return markers


def read_shard(folder: Path, marker: Marker) -> Shard:
    """The content of one shard."""
    arrays = load_file(folder / marker.files["answers"].path)
    texts = [
        np.split(arrays[name], np.cumsum(arrays[f"{name}_lengths"])[:-1])
        for name in ("prompts", "answers")
    ]
    keys = arrays["keys"].astype(np.float32)
    return Shard(texts[0], texts[1], keys, arrays["answer"], arrays["token"])


def _write_shard(
    folder: Path,
    name: str,
    start: int,
    prompts: Sequence[TokenArray],
    writer: Writer,
    how: Answering,
    fitted: Path,
    count: Callable[[int], None],
) -> Marker:
    projection = Projection.load(fitted) if start and how.components else None
    # the longest first: at the end, when the batch runs empty, only short ones are under way
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    asked = [(start + i, prompts[i]) for i in order]
    answers: list[TokenArray] = [np.empty(0, np.int64)] * len(prompts)
    rows: list[Floats] = [np.empty((0, 0), np.float32)] * len(prompts)
    good: list[NDArray[np.intp]] = [np.empty(0, np.intp)] * len(prompts)
    features: list[Any] = [()] * len(prompts)
    written = refused = 0
    for answer in writer.write(asked, how.rows, how.capacity):
        at = answer.number - start
        answers[at] = answer.tokens
        written += len(answer.tokens)
        if how.components:
            rows[at], good[at], bad = _usable(answer, projection)
            refused += bad
        if answer.features is not None:
            features[at] = answer.features
        count(written)
    files = {}
    if writer.keeper is not None:
        path = folder / FEATURES / name
        files[FEATURES] = write_entry(folder, path, writer.keeper.pack(features), len(prompts))
    if how.components:
        check_refused(refused, refused + sum(map(len, good)))
        if projection is None:
            projection = _fit(rows, writer.width, how.components, fitted)
            rows = [projection.apply(states) if len(states) else states for states in rows]
            files["projection"] = entry(folder, fitted, projection.dim)
    arrays = _arrays(prompts, answers, rows, good)
    files[FOLDER] = write_entry(folder, folder / FOLDER / name, save(arrays), len(prompts))
    facts = {"answers": len(prompts), "tokens": written, "refused": refused}
    return write_marker(folder, name, files, {**facts, "keys": len(arrays["keys"])})


def _usable(answer: Answer, projection: Projection | None) -> tuple[Floats, NDArray[np.intp], int]:
    """States or keys of the tokens that two others follow, which tokens, how many are refused."""
    states = answer.states[: max(0, len(answer.tokens) - AHEAD)]
    if not len(states):
        return np.empty((0, 0), np.float32), np.empty(0, np.intp), 0
    good = np.flatnonzero(np.isfinite(states).all(axis=1))
    kept = states[good]
    rows = kept if projection is None else projection.apply(kept)
    return rows, good, len(states) - len(good)


def _fit(rows: list[Floats], width: int, components: int, fitted: Path) -> Projection:
    blocks = [states for states in rows if len(states)]
    if not blocks:
        raise SpecretError(
            f"none of the first {len(rows)} answers has three tokens, so there is no state to keep",
            "build without a dense side (--dense-tokens 0), or with longer answers",
        )
    return Projection.fitted(blocks, width, components, fitted)


def _arrays(
    prompts: Sequence[TokenArray],
    answers: Sequence[TokenArray],
    rows: Sequence[Floats],
    good: Sequence[NDArray[np.intp]],
) -> dict[str, NDArray[Any]]:
    """Half precision is far finer than the index' eight bits."""
    keys = [part for part in rows if len(part)]
    return {
        "prompts": np.concatenate(prompts).astype(np.int32),
        "prompts_lengths": np.array([len(p) for p in prompts], np.int64),
        "answers": np.concatenate(answers).astype(np.int32),
        "answers_lengths": np.array([len(a) for a in answers], np.int64),
        "keys": np.concatenate(keys).astype(np.float16) if keys else np.empty((0, 0), np.float16),
        "answer": np.repeat(np.arange(len(good)), [len(part) for part in good]),
        "token": np.concatenate(good).astype(np.int64),
    }
