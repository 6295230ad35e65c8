"""Drafts from the text so far: the prompt and what was written since.

In: the growing context. Out: a tree of what followed its last tokens earlier in the same text.
Knows no store. Positions in this text are no positions in a store, so origins are -1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from specret._suffix import LiveIndex
from specret.registry import Resources, read_options
from specret.retrieval.suffix import as_draft
from specret.types import Budget, Context, Draft, Verdict


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How the text so far is read.

    Attributes:
        min_match: shortest suffix that counts, in tokens.
        max_match: longest suffix that is looked up.
        levels: suffix lengths that speak at most.
        latest: matches read of each, the latest ones.
        escape: how much new tokens weigh against seen ones; few matches are trusted the less.
    """

    min_match: int = 1
    max_match: int = 16
    levels: int = 16
    latest: int = 8
    escape: float = 1.0


class Prompt:
    """Blend over the latest matches of each suffix length in the text so far."""

    layers = ()

    def __init__(self, vocab_size: int, options: PromptOptions) -> None:
        self._index = LiveIndex(vocab_size)
        self._vocab_size, self._options = vocab_size, options
        self._seconds = 0.0

    def start(self, context: Context) -> None:
        """Forget the last text, read the prompt."""
        self._index.clear()
        self._index.extend(context.tokens)

    def propose(self, context: Context, budget: Budget) -> Draft:
        """A tree of what followed the last tokens earlier in the text."""
        assert len(self._index) == len(context.tokens), "a token was not observed"
        options = self._options
        started = perf_counter()
        tree = self._index.draft(
            context.tokens,
            max_nodes=budget.max_nodes,
            max_depth=budget.max_depth,
            min_match=options.min_match,
            max_match=options.max_match,
            levels=options.levels,
            latest=options.latest,
            escape=options.escape,
        )
        self._seconds = perf_counter() - started
        return as_draft(tree, self._vocab_size, "prompt", np.full(len(tree), -1, np.int64))

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Read the new tokens."""
        self._index.extend(context.tokens[len(self._index) :])

    def lookup_seconds(self) -> float:
        """Seconds of the native call."""
        return self._seconds


def make(resources: Resources, options: Mapping[str, Any]) -> Prompt:
    """The drafter `prompt`.

    Raises:
        SpecretError: an unknown option.
    """
    return Prompt(resources.vocab_size, read_options(PromptOptions, options))
