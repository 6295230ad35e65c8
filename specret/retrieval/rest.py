"""Drafts by REST's rule, faithful to the ancestor.

In: the last tokens of the context. Out: a tree of what followed their longest matching suffix.
Knows the compiled index. Source: He et al., "REST: Retrieval-Based Speculative Decoding", 2023.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from specret._suffix import SuffixIndex
from specret.registry import Resources, read_options
from specret.retrieval.suffix import as_draft, suffix_index
from specret.types import Budget, Context, Draft, Verdict


@dataclass(frozen=True, slots=True)
class RestOptions:
    """REST's own settings.

    Attributes:
        min_match: shortest suffix that counts, in tokens.
        max_match: longest suffix that is looked up.
        matches: how many matches are read, the first in suffix-array order.
        long: tokens read after each match.
    """

    min_match: int = 2
    max_match: int = 16
    matches: int = 5000
    long: int = 10


class Rest:
    """The longest matching suffix; the most frequent prefixes of what followed it."""

    layers = ()

    def __init__(self, index: SuffixIndex, vocab_size: int, options: RestOptions) -> None:
        self._index, self._vocab_size, self._options = index, vocab_size, options
        self._seconds = 0.0

    def start(self, context: Context) -> None:
        """Nothing to read: every lookup starts from the text."""

    def propose(self, context: Context, budget: Budget) -> Draft:
        """The nodes with the highest counts; empty where no suffix matches."""
        options = self._options
        started = perf_counter()
        tree = self._index.draft(
            context.tokens,
            max_nodes=budget.max_nodes,
            max_depth=min(budget.max_depth, options.long),
            rule="rest",
            min_match=options.min_match,
            max_match=options.max_match,
            samples=options.matches,
        )
        self._seconds = perf_counter() - started
        return as_draft(tree, self._vocab_size, "suffix", tree.origin)

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Nothing to learn: the corpus does not change."""

    def lookup_seconds(self) -> float:
        """Seconds of the native call."""
        return self._seconds


def make(resources: Resources, options: Mapping[str, Any]) -> Rest:
    """The drafter `rest`.

    Raises:
        SpecretError: no store is open, or an unknown option.
    """
    index = suffix_index(resources, "rest")
    return Rest(index, resources.vocab_size, read_options(RestOptions, options))
