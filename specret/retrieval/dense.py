"""`dresd`: positions of the store whose hidden state was like the present one vote on what follows.

In: the target's newest hidden state and the newest token. Out: a tree of what came after that
token at the nearest positions. Knows no model: states arrive as arrays.

Method: dense retrieval for speculative decoding (Gritta et al., 2025), but the search is
confined to positions that the newest token follows, and the neighbours' continuations become one
tree instead of rows of a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specret.registry import Resources, need_store, read_options
from specret.tree import depths
from specret.types import (
    FINAL_NORM,
    SOURCES,
    Budget,
    Context,
    Draft,
    Layer,
    SpecretError,
    Verdict,
)

DENSE = 1 << SOURCES.index("dense")
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DenseOptions:
    """How neighbours are found and weighted.

    Attributes:
        neighbours: how many vote at most.
        temperature: a vote weighs exp((similarity - best similarity) / temperature).
        escape: how much new tokens weigh against seen ones; few votes are trusted the less.
    """

    neighbours: int = 64
    temperature: float = 0.3
    escape: float = 2.0

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise SpecretError(f"neighbours is {self.neighbours}, expected at least 1")
        if not self.temperature > 0:
            raise SpecretError(f"temperature is {self.temperature}, expected more than 0")
        if not self.escape >= 0:
            raise SpecretError(f"escape is {self.escape}, expected 0 or more")


class DenseDrafter:
    """A drafter over the dense side of a store."""

    layers: tuple[Layer, ...] = (FINAL_NORM,)

    def __init__(self, store: Any, vocab_size: int, options: DenseOptions) -> None:
        self._store = store
        self._index, self._projection = store.dense, store.projection
        self._vocab_size = vocab_size
        self._options = options
        self._seconds = 0.0

    def start(self, context: Context) -> None:
        """Nothing is kept between sequences."""

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Nothing is learnt from what became of a draft."""

    def lookup_seconds(self) -> float:
        """Seconds of the last projection, search and counting of continuations."""
        return self._seconds

    def propose(self, context: Context, budget: Budget) -> Draft:
        """What followed the newest token at the nearest positions; empty where none is known.

        Signals of a node: cosine (of the nearest position that supports it), and of the whole
        search: margin (nearest position against the nearest one that goes on differently) and
        agreement (weight of the positions that go on as the nearest does).
        """
        self._seconds = 0.0
        state = context.features.last(FINAL_NORM) if context.features is not None else None
        if state is None:
            return Draft.empty(self._vocab_size)
        row = _to_numpy(state)
        if not np.isfinite(row).all():
            return Draft.empty(self._vocab_size)
        started = perf_counter()
        key = self._projection.apply(row[None])[0]
        draft = self._look_up(key, context.newest, budget)
        self._seconds = perf_counter() - started
        return draft

    def _look_up(self, key: Floats, newest: int, budget: Budget) -> Draft:
        cosines, positions = self._index.search(key, newest, self._options.neighbours)
        if not len(positions):
            return Draft.empty(self._vocab_size)
        starts = positions + 2  # behind the newest token
        weights = np.exp((cosines - cosines[0]) / self._options.temperature)
        found = self._store.suffix.tree(
            starts,
            weights,
            max_nodes=budget.max_nodes,
            max_depth=budget.max_depth,
            escape=self._options.escape,
        )
        nodes = len(found)
        if not nodes:
            return Draft.empty(self._vocab_size)
        paths = self._paths(starts, int(depths(found.parents).max()))
        margin, agreement = _consensus(cosines, weights, paths[:, 0])
        signals = {
            "cosine": _support(found, cosines, paths, self._vocab_size),
            "margin": np.full(nodes, margin, np.float32),
            "agreement": np.full(nodes, agreement, np.float32),
        }
        return Draft(
            found.tokens,
            found.parents,
            found.prob,
            self._vocab_size,
            np.full(nodes, DENSE, np.uint8),
            found.origin,
            signals,
        )

    def _paths(self, starts: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
        """Tokens (k, depth) from each start on; an id outside the vocabulary after the end."""
        tokens, offsets = self._store.tokens, self._store.offsets
        ends = offsets[np.searchsorted(offsets, starts, side="right")].astype(np.int64)
        at = starts[:, None] + np.arange(depth)
        inside = at < ends[:, None]
        read = tokens[np.minimum(at, len(tokens) - 1)]
        return np.where(inside, read, self._vocab_size).astype(np.int64)


def make(resources: Resources, options: Mapping[str, Any]) -> DenseDrafter:
    """The drafter of that name, for `registry`.

    Raises:
        SpecretError: an unknown option, no store is open, or it has no dense side.
    """
    config = read_options(DenseOptions, options)
    store = need_store(resources, "dresd")
    if store.dense is None:
        raise SpecretError(
            f"the store at {store.path} has no dense side",
            "build it with keys: specret build-index --dense-tokens 300000",
        )
    return DenseDrafter(store, resources.vocab_size, config)


def _to_numpy(state: Any) -> Floats:
    """A host array of a device array (H,); torch is not imported for it."""
    if hasattr(state, "detach"):
        state = state.detach().float().cpu().numpy()
    return np.asarray(state, np.float32)


def _consensus(cosines: Floats, weights: Floats, following: NDArray[Any]) -> tuple[float, float]:
    """How far ahead the nearest position's continuation is, and how much weight it has."""
    alike = following == following[0]
    others = cosines[~alike]
    margin = cosines[0] - others[0] if len(others) else cosines[0] + 1.0  # -1 is the least cosine
    return float(margin), float(weights[alike].sum() / weights.sum())


def _support(found: Any, cosines: Floats, paths: NDArray[np.int64], vocab_size: int) -> Floats:
    """Cosine of the nearest neighbour that goes through each node (N,).

    Args:
        found: the tree.
        cosines: (k,) of the neighbours, best first.
        paths: (k, depth) what followed the newest token there.
        vocab_size: ids of nodes are below it.
    """
    fan = vocab_size + 1
    edges = (found.parents.astype(np.int64) + 1) * fan + found.tokens
    order = np.argsort(edges)
    edges = edges[order]
    best = np.full(len(edges), -1.0, np.float32)
    row, node = np.arange(len(paths)), np.full(len(paths), -1, np.int64)
    for column in paths.T:
        edge = (node + 1) * fan + column[row]
        at = np.minimum(np.searchsorted(edges, edge), len(edges) - 1)
        goes_on = edges[at] == edge
        row, node = row[goes_on], order[at][goes_on]
        np.maximum.at(best, node, cosines[row])
    return best
