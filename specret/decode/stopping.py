"""Where a text ends: EOS ids, stop strings, max new tokens, the end of the context.

In: the tokens of each step, in order. Out: those that are kept, their text, and the reason.
The one place that cuts, so text, ids and counts always end together; it sees tokens one by one,
so a block accepted at once ends where single tokens would.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specret.decode.text import TextStream
from specret.protocols import Tokenizer
from specret.types import FinishReason


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop.

    Args:
        max_new_tokens: at least 0.
        eos: ids that end the text; the EOS itself is kept among the ids, not in the text.
        stop: strings that end the text before them.
        context_len: positions the target can hold; the last of them can still be fed, so the
            text may be one token longer than that.
    """

    max_new_tokens: int
    eos: frozenset[int]
    stop: tuple[str, ...]
    context_len: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What is kept of one step: ids, the text that is now certain, why it ended (or None)."""

    tokens: tuple[int, ...]
    text: str
    finish: FinishReason | None


class Stopping:
    """The state of one text's end. Without a tokenizer there is no text and no stop string."""

    def __init__(self, limits: Limits, prompt_len: int, tokenizer: Tokenizer | None) -> None:
        assert tokenizer is not None or not limits.stop
        self._limits = limits
        self._stream = TextStream(tokenizer) if tokenizer is not None else None
        self._held = ""  # text that may turn out to begin a stop string
        self._new = 0
        self._length = prompt_len

    def room(self) -> int:
        """How many more tokens may be written."""
        return min(
            self._limits.max_new_tokens - self._new, self._limits.context_len + 1 - self._length
        )

    def exhausted(self) -> FinishReason | None:
        """Why not even one more token may be written, or None."""
        if self.room() > 0:
            return None
        return "length" if self._new >= self._limits.max_new_tokens else "context"

    def cut(self, tokens: Sequence[int]) -> Cut:
        """Keep tokens up to the first end."""
        kept: list[int] = []
        text = ""
        finish: FinishReason | None = None
        for token in tokens:
            kept.append(token)
            self._new += 1
            self._length += 1
            if token in self._limits.eos:
                finish = "stop"
            else:
                self._held += self._stream.push(token) if self._stream else ""
                finish = self._stop_string() or self.exhausted()
            text += self._release(finish)
            if finish:
                break
        return Cut(tuple(kept), text, finish)

    def _stop_string(self) -> FinishReason | None:
        found = [at for s in self._limits.stop if (at := self._held.find(s)) >= 0]
        if not found:
            return None
        self._held = self._held[: min(found)]
        return "stop-string"

    def _release(self, finish: FinishReason | None) -> str:
        """Text that no stop string can take back any more."""
        if finish is None:
            held = max((_overlap(self._held, s) for s in self._limits.stop), default=0)
            split = len(self._held) - held
            out, self._held = self._held[:split], self._held[split:]
            return out
        if finish != "stop-string" and self._stream:
            self._held += self._stream.finish()
            self._stop_string()
        out, self._held = self._held, ""
        return out


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
