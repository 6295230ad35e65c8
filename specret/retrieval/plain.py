"""No drafts: the loop does plain decoding.

In: anything. Out: the empty draft. Knows nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specret.registry import Resources, read_options
from specret.types import Budget, Context, Draft, Verdict


@dataclass(frozen=True, slots=True)
class PlainOptions:
    """Plain decoding has nothing to choose."""


class Plain:
    """Never guesses."""

    layers = ()

    def __init__(self, vocab_size: int) -> None:
        self._empty = Draft.empty(vocab_size)

    def start(self, context: Context) -> None:
        """Nothing to read."""

    def propose(self, context: Context, budget: Budget) -> Draft:
        """The empty draft."""
        return self._empty

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Nothing to learn."""

    def lookup_seconds(self) -> float:
        """Nothing was searched."""
        return 0.0


def make(resources: Resources, options: Mapping[str, Any]) -> Plain:
    """The drafter `plain`.

    Raises:
        SpecretError: any option at all.
    """
    read_options(PlainOptions, options)
    return Plain(resources.vocab_size)
