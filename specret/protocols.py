"""The seams of specret: what a drafter, a target, a verifier, an encoder and an index promise.

Knows only the nouns of `types`. Implementations live elsewhere and are found by `registry`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specret.types import (
    Budget,
    Context,
    Draft,
    Features,
    Layer,
    Scores,
    TokenArray,
    Verdict,
)

Draw = Callable[[int, Any], int]
"""`draw(position, logits) -> token`: one draw from the law of one absolute position.

`logits` is one row (V,), processed and unnormalised; -inf excludes a token."""

RowLaw = Callable[[int, tuple[int, ...]], Any]
"""`law(row, path) -> (V,)`: processed logits that follow the accepted `path` of tokens."""


class Drafter(Protocol):
    """Guesses a tree of next tokens. State belongs to one sequence.

    Any draft, even a silly one, leaves the law of the output unchanged: only speed is at stake.
    """

    layers: tuple[Layer, ...]  # the hidden states it wants in `Context.features`

    def start(self, context: Context) -> None:
        """A new sequence: forget the old one, read the prompt."""

    def propose(self, context: Context, budget: Budget) -> Draft:
        """A tree within the budget; empty where nothing is worth a guess."""

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """What became of the last proposal; `context` already holds the new tokens."""

    def lookup_seconds(self) -> float:
        """Seconds that the last proposal spent searching stores (the rest is drafting)."""


class Target(Protocol):
    """The model whose output is kept. Holds the cache of one sequence."""

    vocab_size: int
    context_len: int  # positions the model can hold

    def prefill(self, tokens: TokenArray, capacity: int) -> Features:
        """Start a sequence: feed `tokens` (may be none), room for `capacity` positions."""

    def score(self, context: Context, draft: Draft) -> Scores:
        """One forward over the newest token and the draft below it."""

    def commit(self, verdict: Verdict) -> Features:
        """Keep the newest token and the accepted path in the cache, drop the rest.

        Afterwards the cache equals a fresh prefill of the same tokens. Returns their states.
        """


class LawOfStep(Protocol):
    """Turns the scores of one step into the law of each row."""

    def rows(self, context: Context, scores: Scores) -> RowLaw:
        """`context` is the prefix of row 0."""


class Verifier(Protocol):
    """Pure: walks the draft by the target's law."""

    def __call__(self, draft: Draft, law: RowLaw, draw: Draw, position: int) -> Verdict:
        """`position` is the absolute position of the first token to be decided."""


class Encoder(Protocol):
    """Batches of tokens to hidden states after the final norm."""

    width: int

    def encode(self, windows: Sequence[TokenArray]) -> list[NDArray[np.float32]]:
        """States (len(w), width) of each window; row i belongs to token i, padding never shows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the target wrote to one of several prompts.

    Attributes:
        number: which prompt.
        tokens: (n,) ids, the EOS among them if it ended so.
        states: (n - 1, width) after the final norm, of all tokens but the last; (0, 0) if none.
        features: what the writer's keeper kept of prompt and answer, of all tokens but the last.
    """

    number: int
    tokens: TokenArray
    states: NDArray[np.float32]
    features: Any = None


class Keeper(Protocol):
    """What keeps states of every token that a writer feeds."""

    row_bytes: int  # of one token

    def pack(self, texts: Sequence[Any]) -> bytes:
        """The features of several answers as one safetensors file."""


class Writer(Protocol):
    """Answers prompts by the target itself, many at once."""

    width: int
    bytes_a_token: int  # of the cache, for each token of each text under way

    @property
    def keeper(self) -> Keeper | None:
        """What keeps features, where they are wanted."""

    def write(
        self, prompts: Sequence[tuple[int, TokenArray]], rows: int, capacity: int
    ) -> Iterator[Answer]:
        """Answers in the order they end; the same arguments give the same bytes.

        Args:
            prompts: (number, ids (T,)) in the order they shall begin; the number keys the draws.
            rows: most texts at once.
            capacity: most tokens of one text.
        """

    def seconds(self, rows: int, prompt_tokens: int) -> tuple[float, float]:
        """Measured seconds to begin a prompt of that length, and of a pass over that many rows."""


class DenseIndex(Protocol):
    """Nearest keys among those that a given token follows."""

    def search(
        self, query: NDArray[np.float32], next_token: int, k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Similarities and token positions (<= k,), best first; never a row of padding."""


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that specret uses."""

    def __call__(self, text: Any, **options: Any) -> Any:
        """`input_ids` of the text, by key."""

    def decode(self, ids: Iterable[int], **options: Any) -> str:
        """Text of the ids."""
