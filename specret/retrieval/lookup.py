"""One lookup in a native suffix index, timed, as a draft.

In: the last tokens of the context. Out: the tree that the index answers. Drafters over such an
index differ in the index and in the arguments of the call alone.
"""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from specret._suffix import LiveIndex, SuffixIndex
from specret.types import SOURCES, Budget, Context, Draft, Verdict


class SuffixLookup:
    """A drafter over a suffix index; the index of a corpus does not change."""

    layers = ()
    source = "suffix"

    def __init__(
        self,
        index: SuffixIndex | LiveIndex,
        vocab_size: int,
        arguments: Mapping[str, Any],
        *,
        max_depth: int | None = None,
    ) -> None:
        self._index: Any = index
        self._vocab_size, self._arguments, self._max_depth = vocab_size, arguments, max_depth
        self._seconds = 0.0

    def start(self, context: Context) -> None:
        """Nothing to read: every lookup starts from the text."""

    def propose(self, context: Context, budget: Budget) -> Draft:
        """A tree of what followed the last tokens; empty where nothing matches."""
        depth = budget.max_depth
        if self._max_depth is not None:
            depth = min(depth, self._max_depth)
        started = perf_counter()
        tree = self._index.draft(
            context.tokens, max_nodes=budget.max_nodes, max_depth=depth, **self._arguments
        )
        self._seconds = perf_counter() - started
        nodes = len(tree)
        return Draft(
            tree.tokens,
            tree.parents,
            tree.prob,
            self._vocab_size,
            np.full(nodes, 1 << SOURCES.index(self.source), np.uint8),
            self._origins(tree.origin),
            {"match_len": tree.match_len, "count": tree.count},
        )

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Nothing to learn: the corpus does not change."""

    def lookup_seconds(self) -> float:
        """Seconds of the native call."""
        return self._seconds

    def _origins(self, positions: np.ndarray) -> np.ndarray:
        """Positions in the store (N,), or -1."""
        return positions
