"""Drafts from a corpus by its suffix index: several suffix lengths blended.

In: the last tokens of the context. Out: a tree of what followed them in the datastore.
Knows the compiled index and nothing of how its files come about.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from specret._suffix import SuffixIndex, TreeArrays
from specret.registry import Resources, read_options
from specret.types import SOURCES, Budget, Context, Draft, SpecretError, Verdict


@dataclass(frozen=True, slots=True)
class SuffixOptions:
    """How the blend reads the corpus.

    Attributes:
        min_match: shortest suffix that counts, in tokens.
        max_match: longest suffix that is looked up.
        levels: suffix lengths that speak at most.
        samples: matches read of each, evenly spaced in suffix-array order.
        escape: how much new tokens weigh against seen ones; few matches are trusted the less.
    """

    min_match: int = 1
    max_match: int = 16
    levels: int = 4
    samples: int = 500
    escape: float = 4.0


class Suffix:
    """Blend of the longest matching suffix and shorter ones by escape weights (PPM)."""

    layers = ()

    def __init__(self, index: SuffixIndex, vocab_size: int, options: SuffixOptions) -> None:
        self._index, self._vocab_size, self._options = index, vocab_size, options
        self._seconds = 0.0

    def start(self, context: Context) -> None:
        """Nothing to read: every lookup starts from the text."""

    def propose(self, context: Context, budget: Budget) -> Draft:
        """A tree of what followed the longest matching suffix and shorter ones."""
        options = self._options
        started = perf_counter()
        tree = self._index.draft(
            context.tokens,
            max_nodes=budget.max_nodes,
            max_depth=budget.max_depth,
            min_match=options.min_match,
            max_match=options.max_match,
            levels=options.levels,
            samples=options.samples,
            escape=options.escape,
        )
        self._seconds = perf_counter() - started
        return as_draft(tree, self._vocab_size, "suffix", tree.origin)

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Nothing to learn: the corpus does not change."""

    def lookup_seconds(self) -> float:
        """Seconds of the native call."""
        return self._seconds


def make(resources: Resources, options: Mapping[str, Any]) -> Suffix:
    """The drafter `suffix`.

    Raises:
        SpecretError: no store is open, or an unknown option.
    """
    index = suffix_index(resources, "suffix")
    return Suffix(index, resources.vocab_size, read_options(SuffixOptions, options))


def suffix_index(resources: Resources, drafter: str) -> SuffixIndex:
    """The store's suffix index.

    Raises:
        SpecretError: no store is open.
    """
    if resources.store is None:
        raise SpecretError(
            f"drafter {drafter!r} needs a datastore, none is open",
            "build one with: specret build-index --corpus code",
        )
    index: SuffixIndex = resources.store.suffix
    return index


def as_draft(
    tree: TreeArrays, vocab_size: int, source: str, origins: np.ndarray[Any, np.dtype[np.int64]]
) -> Draft:
    """A native tree of N nodes as a draft of one source; `origins` (N,) or -1."""
    return Draft(
        tree.tokens,
        tree.parents,
        tree.prob,
        vocab_size,
        np.full(len(tree), 1 << SOURCES.index(source), np.uint8),
        origins,
        {"match_len": tree.match_len, "count": tree.count},
    )
