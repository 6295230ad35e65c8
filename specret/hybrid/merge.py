"""Several sources' drafts united by shared prefix into one tree, with who said what of each node.

In: one `Draft` per source. Out: a `Merged` tree whose evidence is laid out as (N, S) arrays.
Knows no text, no store and no calibration: probabilities here are still the sources' own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specret import tree
from specret.types import SOURCES, Draft, TokenArray

SILENT, OTHER, PROPOSES = 0, 1, 2
"""What a source says of a node: nothing below its parent; only other tokens there; the node."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Merged:
    """One tree of N nodes and the evidence of S sources for each.

    Attributes:
        names: the S sources, in the order of `types.SOURCES`.
        tokens: (N,) ids.
        parents: (N,) index of the parent node, smaller than the node's own; -1 is the root.
        depth: (N,) 1 for a child of the root.
        sources: (N,) bit mask over `types.SOURCES` of who proposes the node.
        origins: (N,) position in the store of one supporting occurrence, or -1.
        state: (N, S) SILENT, OTHER or PROPOSES.
        prob: (N, S) the source's conditional probability of the node where it proposes it; what
            its other tokens leave over where it is OTHER; 0 where it is silent.
        signals: name -> (N, S) the raw signals of proposing sources; NaN elsewhere.
    """

    names: tuple[str, ...]
    tokens: TokenArray
    parents: tree.Parents
    depth: NDArray[np.int32]
    sources: NDArray[np.uint8]
    origins: NDArray[np.int64]
    state: NDArray[np.int8]
    prob: Floats
    signals: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.tokens)


def merge(drafts: Mapping[str, Draft]) -> Merged:
    """The tree that holds exactly the paths of all drafts.

    Args:
        drafts: source name (one of `types.SOURCES`) -> its draft; the mapping's order is
            irrelevant. A node's origin is that of the first source, in the order of `SOURCES`,
            that has one.
    """
    assert set(drafts) <= set(SOURCES), f"sources are {SOURCES}"
    names = tuple(name for name in SOURCES if name in drafts)
    inputs = [drafts[name] for name in names]
    slots: dict[tuple[int, int], int] = {}
    depth: list[int] = []
    at = np.array([place for draft in inputs for place in _place(draft, slots, depth)], np.intp)
    shape = np.array(list(slots), np.int64).reshape(-1, 2)
    parents = shape[:, 0].astype(np.int32)
    column = np.repeat(np.arange(len(names)), [len(draft) for draft in inputs])
    state, prob = _testimony(parents, at, column, _joined([d.prob for d in inputs]), len(names))
    bits = np.array([1 << SOURCES.index(name) for name in names], np.uint8)
    return Merged(
        names,
        shape[:, 1],
        parents,
        np.array(depth, np.int32),
        ((state == PROPOSES) * bits).sum(axis=1, dtype=np.uint8),
        _first_origins(len(parents), at, _joined([d.origins for d in inputs])),
        state,
        prob,
        _signals(inputs, at, column, state.shape),
    )


def _place(draft: Draft, slots: dict[tuple[int, int], int], depth: list[int]) -> list[int]:
    """Where each node of a draft stands in the merged tree; new nodes are added to it."""
    places: list[int] = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        above = places[parent] if parent >= 0 else -1
        place = slots.setdefault((above, token), len(depth))
        if place == len(depth):
            depth.append(depth[above] + 1 if above >= 0 else 1)
        places.append(place)
    return places


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0)


def _testimony(
    parents: tree.Parents, at: NDArray[np.intp], column: NDArray[np.intp], prob: Floats, width: int
) -> tuple[NDArray[np.int8], Floats]:
    """State and probability (N, S) from every source's nodes, one after the other (M,)."""
    above = (parents[at] + 1) * width + column  # row 0 is the root
    cells = (len(parents) + 1) * width
    speaks = (np.bincount(above, minlength=cells) > 0).reshape(len(parents) + 1, width)[parents + 1]
    said = np.bincount(above, prob, cells).reshape(len(parents) + 1, width)[parents + 1]
    state = speaks.astype(np.int8)  # SILENT or OTHER
    state[at, column] = PROPOSES
    left = np.where(speaks, np.maximum(1.0 - said, 0.0), 0.0).astype(np.float32)
    left[at, column] = prob
    return state, left


def _first_origins(n: int, at: NDArray[np.intp], origins: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.full(n, -1, np.int64)
    known = np.flatnonzero(origins >= 0)[::-1]  # of repeated places the last one written stays
    out[at[known]] = origins[known]
    return out


def _signals(
    inputs: list[Draft], at: NDArray[np.intp], column: NDArray[np.intp], shape: tuple[int, ...]
) -> dict[str, Floats]:
    out = {}
    for name in sorted({name for draft in inputs for name in draft.signals}):
        given = [d.signals.get(name, np.full(len(d), np.nan, np.float32)) for d in inputs]
        values = np.full(shape, np.nan, np.float32)
        values[at, column] = np.concatenate(given)
        out[name] = values
    return out
