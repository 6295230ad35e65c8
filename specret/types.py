"""The nouns of specret: what travels between drafters, the target and the loop.

In: numpy arrays and plain values. Out: frozen records, checked once when they are made.
Knows no torch, no file, no model; device arrays inside `Scores` and `Features` are opaque.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

TokenArray = NDArray[np.int64]
"""Token ids, any 32-bit vocabulary."""

Layer = int
"""Which hidden states: -1 is the output of the target's final norm (what the LM head reads)."""

FINAL_NORM: Layer = -1

MOST_STORES = 3
"""Read at once."""

SOURCES = ("prompt", "suffix", "dense", "suffix2", "dense2", "suffix3", "dense3")
"""Bit i of `Draft.sources` says that source i proposed the node. The number is the store's."""

FinishReason = Literal["stop", "stop-string", "length", "context"]


class SpecretError(ValueError):
    """A fault the user can mend: what was seen, what was expected, and the next command.

    `str(error)` is the fault; `error.hint` is the cure (may be empty).
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Features:
    """Hidden states of the target for consecutive positions, newest last.

    `states[layer]` is a device array (n, H) for positions `first ... first + n - 1`.
    """

    first: int
    states: Mapping[Layer, Any]

    def last(self, layer: Layer) -> Any | None:
        """The newest state of a layer (H,), or None where no position was fed yet."""
        rows = self.states[layer]
        return rows[-1] if len(rows) else None


@dataclass(frozen=True, slots=True)
class Context:
    """The text so far, of one sequence.

    Invariant: the target's cache holds tokens 0 ... T-2; the newest token T-1 is known but not
    yet fed. `features` belong to the positions fed by the last prefill or commit, so the newest
    of them is the state whose logits produced the newest token. A one-token prompt has none.
    """

    tokens: TokenArray  # (T,) a view on a growing buffer, never written by others
    prompt_len: int
    features: Features | None = None
    _buffer: TokenArray | None = field(default=None, repr=False, compare=False)

    @classmethod
    def begin(cls, prompt: TokenArray, capacity: int) -> "Context":
        """A context that holds just the prompt, with room for `capacity` tokens in all."""
        buffer = np.empty(max(capacity, len(prompt)), np.int64)
        buffer[: len(prompt)] = prompt
        return cls(buffer[: len(prompt)], len(prompt), None, buffer)

    @property
    def newest(self) -> int:
        """The newest token: known, not yet fed to the target."""
        return int(self.tokens[-1])

    def with_features(self, features: Features | None) -> "Context":
        """The same text with the states that the target just computed."""
        return replace(self, features=features)

    def extend(self, tokens: tuple[int, ...], features: Features | None) -> "Context":
        """The text with `tokens` appended; linear contexts share one buffer."""
        old, new = len(self.tokens), len(self.tokens) + len(tokens)
        buffer = self._buffer
        if buffer is None or new > len(buffer):
            buffer = np.empty(max(64, 2 * new), np.int64)
            buffer[:old] = self.tokens
        buffer[old:new] = tokens
        return Context(buffer[:new], self.prompt_len, features, buffer)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a drafter may propose at most: nodes in all, and depth (root's child = 1)."""

    max_nodes: int
    max_depth: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A tree of guessed tokens below the newest token. Empty is legal: a plain step.

    Args:
        tokens: (N,) ids.
        parents: (N,) index of the parent node, always smaller than the node's own; -1 is the
            newest token.
        prob: (N,) the source's own estimate of this node given its parent, in [0, 1].
        vocab_size: ids must be below it.
        sources: (N,) bit mask over `SOURCES`.
        origins: (N,) position in the datastore's token stream where one supporting occurrence of
            the node's token stands, or -1.
        signals: what the source knows of each node, raw, for calibration: name -> (N,).
        law: None for deterministic drafts; else (N,) the conditional probability each node was
            really drawn with.

    Raises:
        ValueError: an array of another length, a parent that does not come before its child,
            siblings with one token, an id outside the vocabulary.
    """

    tokens: TokenArray
    parents: NDArray[np.int32]
    prob: NDArray[np.float32]
    vocab_size: int
    sources: NDArray[np.uint8]
    origins: NDArray[np.int64]
    signals: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    law: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        n = len(self.tokens)
        arrays: dict[str, NDArray[Any]] = {"parents": self.parents, "prob": self.prob}
        arrays |= {"sources": self.sources, "origins": self.origins, **self.signals}
        for name, array in arrays.items():
            if len(array) != n:
                raise ValueError(f"draft: {name} has {len(array)} rows, expected {n}")
        if n == 0:
            return
        if (self.parents >= np.arange(n)).any() or self.parents.min() < -1:
            raise ValueError("draft: a parent must come before its child (or be -1, the root)")
        if self.tokens.min() < 0 or self.tokens.max() >= self.vocab_size:
            bad = int(self.tokens[(self.tokens < 0) | (self.tokens >= self.vocab_size)][0])
            raise ValueError(f"draft: token {bad} is outside the vocabulary of {self.vocab_size}")
        key = (self.parents.astype(np.int64) + 1) * self.vocab_size + self.tokens
        if len(np.unique(key)) != n:
            raise ValueError("draft: two siblings carry the same token")

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def empty(cls, vocab_size: int) -> "Draft":
        """No guess: the step is plain decoding."""
        return cls(
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.float32),
            vocab_size,
            np.empty(0, np.uint8),
            np.empty(0, np.int64),
        )

    def child(self, parent: int, token: int) -> int | None:
        """The child of node `parent` (-1: the root) that carries `token`, if there is one."""
        hits = np.flatnonzero((self.parents == parent) & (self.tokens == token))
        return int(hits[0]) if len(hits) else None


@dataclass(frozen=True, slots=True)
class Scores:
    """What one forward pass of the target says about a draft.

    `logits` is a device array (N+1, V): row 0 follows the newest token, row i+1 follows node i.
    """

    logits: Any


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which nodes were accepted, in order from the root, and the token that follows them."""

    path: tuple[int, ...]
    next_token: int


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where one step's time went."""

    lookup: float = 0.0
    draft: float = 0.0
    score: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        """All of the step."""
        return self.lookup + self.draft + self.score + self.verify + self.commit + self.other


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the target and what it wrote.

    `sources` and `origins` belong to the emitted tokens, one by one; the last token of a step
    comes from the target itself (source 0, origin -1) unless the text was cut before it.
    """

    emitted: tuple[int, ...]
    drafted: int
    accepted: int
    sources: tuple[int, ...]
    origins: tuple[int, ...]
    finish: FinishReason | None
    seconds: Seconds
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which target and tokenizer a datastore belongs to. Digests are sha256 in hex."""

    model_id: str
    weights: str  # digest of the source weight files
    tokenizer: str  # digest of vocabulary, merges, added tokens and normalisation
    vocab_size: int  # rows of the LM head
    hidden_size: int
    dtype: str
    layer: Layer = FINAL_NORM
    final_norm: bool = True


@dataclass(frozen=True, slots=True)
class Prices:
    """Measured cost, data only: `rows[i]` new rows take `seconds[i]` in one target forward."""

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    context: int

    def forward(self, rows: float) -> float:
        """Seconds of one target forward with `rows` new rows (linear between measured points)."""
        return float(np.interp(rows, self.rows, self.seconds))
