"""Drafts from the text so far: the prompt and what was written since.

In: the growing context. Out: a tree of what followed its last tokens earlier in the same text.
Knows no store. Positions in this text are no positions in a store, so origins are -1.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specret._suffix import LiveIndex
from specret.registry import Resources, read_options
from specret.retrieval.lookup import SuffixLookup
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


class PromptLookup(SuffixLookup):
    """A lookup in the text so far, which grows."""

    source = "prompt"

    def __init__(self, vocab_size: int, options: PromptOptions) -> None:
        self._text = LiveIndex(vocab_size)
        super().__init__(self._text, vocab_size, asdict(options))

    def start(self, context: Context) -> None:
        """Forget the last text, read the prompt."""
        self._text.clear()
        self._text.extend(context.tokens)

    def propose(self, context: Context, budget: Budget) -> Draft:
        """A tree of what followed the last tokens earlier in the text."""
        assert len(self._text) == len(context.tokens), "a token was not observed"
        return super().propose(context, budget)

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Read the new tokens."""
        self._text.extend(context.tokens[len(self._text) :])

    def _origins(self, positions: np.ndarray) -> np.ndarray:
        return np.full(len(positions), -1, np.int64)


def make(resources: Resources, options: Mapping[str, Any]) -> PromptLookup:
    """The drafter `prompt`.

    Raises:
        SpecretError: an unknown option.
    """
    return PromptLookup(resources.vocab_size, read_options(PromptOptions, options))
