"""One method's answer to one prompt, what a method is, and all methods' answers together.

Plain records. Knows no model and no figure that is made of many samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from specret.types import Seconds, TokenArray


@dataclass(frozen=True, slots=True)
class Sample:
    """What was written and where the time went.

    Args:
        tokens: the new ids, in order.
        text: their text.
        accept_lengths: tokens that each decode pass of the target wrote, its own one included.
        drafted: nodes that each of these passes verified; None where the method does not tell.
        accepted: nodes that were kept, of those; None likewise.
        seconds: the parts of `decode_s`, its remainder in `other`; None where unknown.
        decode_s: seconds after the prefill.
        prefill_s: seconds up to there.
        prefill_tokens: tokens that the prefill itself wrote (0 here, at least 1 in transformers'
            `generate`); they stand in `tokens` but belong to no decode pass.
    """

    tokens: tuple[int, ...]
    text: str
    accept_lengths: tuple[int, ...]
    drafted: tuple[int, ...] | None
    accepted: int | None
    seconds: Seconds | None
    decode_s: float
    prefill_s: float
    prefill_tokens: int = 0

    @property
    def decoded(self) -> int:
        """Tokens written by decode passes."""
        return len(self.tokens) - self.prefill_tokens


@dataclass(frozen=True, slots=True)
class Writing:
    """How every method is to write, the same for all."""

    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0

    def options(self) -> Mapping[str, Any]:
        """By the names of `specret.decode.call.Call`."""
        return {
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }


class Method(Protocol):
    """A way to write, under the name that reports give it.

    `nodes` are the guessed tokens per pass at most. `same_text` says that its text must be that
    of plain decoding at the given temperature.
    """

    @property
    def name(self) -> str:
        """Its row in the table."""

    @property
    def nodes(self) -> int:
        """Guessed tokens per pass at most."""

    def same_text(self, temperature: float) -> bool:
        """Whether its tokens must be those of `plain`."""

    def write(self, prompt: TokenArray, how: Writing) -> Sample:
        """Answer one prompt (T,) and time it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All methods' samples on one turn of a prompt.

    `prompt` counts the prompts from 0; `ids` (T,) is what was answered.
    """

    prompt: int
    turn: int
    ids: TokenArray
    samples: Mapping[str, Sample]
