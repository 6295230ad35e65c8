"""Several sources' drafts united by shared prefix into one tree, with who said what of each node.

In: one `Draft` per source. Out: a `Merged` tree whose evidence is laid out as (N, S) arrays.
Knows no text, no store and no calibration: probabilities here are still the sources' own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
    slots: dict[tuple[int, int], int] = {}
    places = [_place(drafts[name], slots) for name in names]
    n = len(slots)
    shape = np.array(list(slots), np.int64).reshape(n, 2)
    parents = shape[:, 0].astype(np.int32)
    merged = Merged(
        names,
        shape[:, 1],
        parents,
        tree.depths(parents),
        np.zeros(n, np.uint8),
        np.full(n, -1, np.int64),
        np.zeros((n, len(names)), np.int8),
        np.zeros((n, len(names)), np.float32),
        {
            signal: np.full((n, len(names)), np.nan, np.float32)
            for signal in sorted({s for draft in drafts.values() for s in draft.signals})
        },
    )
    for column, (name, at) in enumerate(zip(names, places, strict=True)):
        _testify(merged, column, drafts[name], at)
    return merged


def _place(draft: Draft, slots: dict[tuple[int, int], int]) -> NDArray[np.intp]:
    """Where each node of a draft stands in the merged tree; new nodes are added to `slots`."""
    places: list[int] = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        above = -1 if parent < 0 else places[parent]
        places.append(slots.setdefault((above, token), len(slots)))
    return np.array(places, np.intp)


def _testify(merged: Merged, column: int, draft: Draft, at: NDArray[np.intp]) -> None:
    """Enter one source's evidence."""
    if not len(at):
        return
    rows = len(merged) + 1
    up = merged.parents[at] + 1  # 0 is the root
    said = np.bincount(up, draft.prob, rows)[merged.parents + 1]
    speaks = np.bincount(up, minlength=rows)[merged.parents + 1] > 0
    merged.state[:, column] = np.where(speaks, OTHER, SILENT)
    merged.state[at, column] = PROPOSES
    merged.prob[:, column] = np.where(speaks, np.clip(1.0 - said, 0.0, 1.0), 0.0)
    merged.prob[at, column] = draft.prob
    merged.sources[at] |= 1 << SOURCES.index(merged.names[column])
    merged.origins[at] = np.where(merged.origins[at] < 0, draft.origins, merged.origins[at])
    for signal, values in draft.signals.items():
        merged.signals[signal][at, column] = values
