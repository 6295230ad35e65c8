"""Token files to keys: which positions, in which batches, projected as soon as they are known.

In: tokens, document offsets and an `Encoder` (batches of ids to states). Out: shards of keys
with their positions. Knows no model and no index; states are never stored raw.

A key is the state at position i and stands for what follows: the token at i+1 names the list it
is searched in, and what comes from i+2 on is what a match proposes. So i has a key only where
its document goes on for two more tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
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
from specret.datastore.projection import Floats, Projection
from specret.protocols import Encoder
from specret.types import SpecretError

AHEAD = 2
"""Tokens that must follow a position in its document for it to have a key."""

FIT_BYTES = 256 << 20
"""States held raw at once, to fit the projection on."""

MAX_REFUSED = 0.01
"""Part of the states that may be non-finite before a build stops."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches of tokens fed to the model, one key for each token of them.

    Attributes:
        starts: (W,) position of the first token.
        lengths: (W,) tokens, none across a document's end.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def keys(self) -> int:
        """Positions in all."""
        return int(self.lengths.sum())

    def positions(self) -> NDArray[np.int64]:
        """(keys,) positions, window by window."""
        first = np.repeat(self.starts - np.cumsum(self.lengths) + self.lengths, self.lengths)
        return first + np.arange(self.keys)

    def shard(self, number: int, shards: int) -> "Windows":
        """Every `shards`-th window from `number` on: each shard is a fair sample of all."""
        return Windows(self.starts[number::shards], self.lengths[number::shards])


def choose_windows(
    tokens: NDArray[Any], offsets: NDArray[np.uint64], *, window: int, wanted: int
) -> Windows:
    """`wanted` positions, or all there are, in windows spread evenly over the corpus.

    Documents are cut into windows of `window` tokens. Of windows with the same tokens only the
    first counts: copies would give the same keys and crowd out everything else in a search.
    """
    begin = offsets[:-1].astype(np.int64)
    usable = np.maximum(offsets[1:].astype(np.int64) - begin - AHEAD, 0)
    count = -(-usable // window)
    document = np.repeat(np.arange(len(count)), count)
    nth = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
    starts = begin[document] + nth * window
    lengths = np.minimum(usable[document] - nth * window, window)
    first = _first_of_copies(tokens, starts, lengths)
    return _thin_out(Windows(starts[first], lengths[first]), wanted)


def _first_of_copies(
    tokens: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.intp]:
    digests = np.empty(len(starts), "S8")
    for i, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        digests[i] = blake2b(tokens[start : start + length].tobytes(), digest_size=8).digest()
    return np.sort(np.unique(digests.view("<u8"), return_index=True)[1])


def _thin_out(windows: Windows, wanted: int) -> Windows:
    """Evenly spaced windows, so many that they hold `wanted` positions; the last is cut to fit."""
    if windows.keys <= wanted:
        return windows
    number = -(-len(windows) * wanted // windows.keys)
    while True:
        even = np.linspace(0, len(windows) - 1, number).round().astype(np.int64)
        starts, lengths = windows.starts[even], windows.lengths[even]
        missing = wanted - int(lengths.sum())
        if missing <= 0:
            break
        number = min(len(windows), number + -(-missing // int(windows.lengths.max())))
    room = wanted - (np.cumsum(lengths) - lengths)
    kept = room > 0
    return Windows(starts[kept], np.minimum(lengths, room)[kept])


@dataclass(frozen=True, slots=True)
class Extraction:
    """How states are computed; all of it decides the bytes that come out.

    Attributes:
        batch_tokens: most tokens of one batch, padding included.
        shard_keys: positions of one shard, about; the first one fits the projection.
        components: most dimensions of a key.
    """

    batch_tokens: int
    shard_keys: int
    components: int

    def shards(self, windows: Windows, width: int) -> int:
        """Number of shards, the first small enough to be held raw."""
        most = max(1, min(self.shard_keys, FIT_BYTES // (4 * width)))
        return -(-windows.keys // most)


def batches(lengths: NDArray[np.int64], batch_tokens: int) -> Iterator[NDArray[np.intp]]:
    """Windows by index, longest first, so many that the padded batch stays within bounds."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        number = max(1, batch_tokens // int(lengths[order[start]]))
        yield order[start : start + number]
        start += number


def write_keys(
    folder: Path,
    key: str,
    tokens: NDArray[Any],
    windows: Windows,
    encoder: Encoder,
    how: Extraction,
    progress: Progress,
) -> list[Marker]:
    """Compute the keys of all windows into shards, or go on where a killed run stopped.

    Shard 0 comes first: mean, deviation and components are fitted on its states, which are held
    in memory once and then projected like all others. The model runs once over the text.

    Returns:
        One marker a shard: file role "keys", in the first "projection" too; fact "refused".

    Raises:
        SpecretError: more than `MAX_REFUSED` of a shard's states are not finite.
    """
    shards = how.shards(windows, encoder.width)
    fitted = folder / "dense" / f"{key}.projection"
    markers: list[Marker] = []
    done = 0
    for number in range(shards):
        name, part = f"{key}.shard-{number:05d}", windows.shard(number, shards)
        marker = read_marker(folder, name)
        if marker is None:
            count = counter(progress, "states", done, windows.keys)
            if number == 0:
                states, good = _collect(tokens, part, encoder, how, None, count)
                projection = Projection.fitted(
                    [states[good]], encoder.width, how.components, fitted
                )
                keys = projection.apply(states)
                del states
            else:
                projection = Projection.load(fitted)
                keys, good = _collect(tokens, part, encoder, how, projection, count)
            files = {"projection": fitted} if number == 0 else {}
            marker = _write_shard(folder, name, keys, part.positions(), good, files)
        markers.append(marker)
        done += part.keys
    return markers


def read_keys(folder: Path, marker: Marker) -> tuple[Floats, NDArray[np.int64]]:
    """Keys (n, d) in fp32 and their positions (n,) of one shard."""
    arrays = load_file(folder / marker.files["keys"].path)
    return arrays["keys"].astype(np.float32), arrays["positions"]


def _collect(
    tokens: NDArray[Any],
    part: Windows,
    encoder: Encoder,
    how: Extraction,
    projection: Projection | None,
    count: Callable[[int], None],
) -> tuple[Floats, NDArray[np.bool_]]:
    """Rows of a shard in the order of its positions, states or keys, and which are usable."""
    width = encoder.width if projection is None else projection.dim
    rows = np.zeros((part.keys, width), np.float32)
    good = np.zeros(part.keys, np.bool_)
    first = np.cumsum(part.lengths) - part.lengths
    done = 0
    for batch in batches(part.lengths, how.batch_tokens):
        texts = [
            tokens[s : s + n].astype(np.int64)
            for s, n in zip(part.starts[batch].tolist(), part.lengths[batch].tolist(), strict=True)
        ]
        for number, states in zip(batch.tolist(), encoder.encode(texts), strict=True):
            at = slice(first[number], first[number] + part.lengths[number])
            assert states.shape == (at.stop - at.start, encoder.width), states.shape
            finite = np.isfinite(states).all(axis=1)
            kept = states[finite]
            good[at] = finite
            rows[at][finite] = kept if projection is None else projection.apply(kept)
        done += int(part.lengths[batch].sum())
        count(done)
    check_refused(len(good) - int(good.sum()), len(good))
    return rows, good


def check_refused(refused: int, states: int) -> None:
    """Whether so many of so many states may be left out.

    Raises:
        SpecretError: more than `MAX_REFUSED` of them.
    """
    if refused > MAX_REFUSED * states:
        raise SpecretError(
            f"{refused} of {states} hidden states are not finite, expected at most "
            f"{MAX_REFUSED:.0%}",
            "build with --dtype float32",
        )


def _write_shard(
    folder: Path,
    name: str,
    keys: Floats,
    positions: NDArray[np.int64],
    good: NDArray[np.bool_],
    others: dict[str, Path],
) -> Marker:
    """Half precision is far finer than the index' eight bits and halves the temporary files."""
    path = folder / "dense" / name
    kept = int(good.sum())
    arrays: dict[str, NDArray[Any]] = {
        "keys": keys[good].astype(np.float16),
        "positions": positions[good],
    }
    files = {"keys": write_entry(folder, path, save(arrays), kept)}
    files |= {role: entry(folder, other, keys.shape[1]) for role, other in others.items()}
    return write_marker(folder, name, files, {"refused": len(good) - kept})
