"""The options of one generation, and what comes back.

Plain records, checked when they are made. Knows no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specret.decode.draw import Greedy, Keyed, Sampler
from specret.decode.law import Sampling
from specret.types import FinishReason, SpecretError, Step, TokenArray


@dataclass(frozen=True, slots=True)
class Call:
    """How one text is to be written.

    Args:
        max_new_tokens: at least 0.
        temperature: 0 is greedy.
        top_p, top_k: None takes the value of the model's generation config.
        seed: keys the noise at temperature > 0: the same seed writes the same text with every
            drafter.
        stop: strings that end the text before them.
        chat: whether text goes through the chat template; None: where the tokenizer has one.
        processors: further logits processors, pure functions of (input_ids, scores).
        settings: overrides of the model's generation config, e.g. {"repetition_penalty": 1.3}.
        eos: ids that end the text; None takes those of the model.

    Raises:
        SpecretError: a value out of its range.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    seed: int = 0
    stop: Sequence[str] = ()
    chat: bool | None = None
    processors: Sequence[Any] = ()
    settings: Mapping[str, Any] | None = None
    eos: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 0:
            raise SpecretError(f"max_new_tokens is {self.max_new_tokens}, expected 0 or more")
        if isinstance(self.stop, str):
            raise SpecretError(f"stop is {self.stop!r}, expected a list of strings")
        if "" in self.stop:
            raise SpecretError("a stop string is empty, which would end every text at once")

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(
            self.temperature, self.top_p, self.top_k, tuple(self.processors), self.settings
        )

    @property
    def draw(self) -> Sampler:
        """Greedy at temperature 0, keyed by the seed above it."""
        return Keyed(self.seed) if self.temperature > 0 else Greedy()


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one pass of the target added."""

    text: str
    step: Step


@dataclass(frozen=True, slots=True)
class Result:
    """One finished text. `tokens` (n,) are the new ids, cut where `text` is cut."""

    text: str
    tokens: TokenArray
    steps: tuple[Step, ...]
    finish: FinishReason
    prefill_s: float

    @property
    def tokens_per_step(self) -> float:
        """New tokens per forward of the target."""
        return len(self.tokens) / len(self.steps) if self.steps else 0.0
