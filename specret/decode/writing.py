"""Many answers, written together without drafts: plain decoding with a full batch.

In: prompts and how each is answered. Out: answers in the order they end, with the states of their
tokens. Each has the law, the draws and the end that the loop would give it alone; only rounding
may differ, since a batch adds in another order. Knows no store.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import torch

from specret.decode.batch import BatchTarget
from specret.decode.draw import Sampler
from specret.decode.keeping import StateKeeper
from specret.decode.law import Law
from specret.decode.stopping import Limits, Stopping
from specret.decode.target import TransformersTarget
from specret.protocols import Answer
from specret.types import Context, Scores, TokenArray

PROBES = 4
"""Passes that a measurement of speed takes."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How prompts are answered.

    Args:
        law: of an answer, from the length of its prompt.
        draw: of an answer, from the number of its prompt.
        limits: when an answer ends.
    """

    law: Callable[[int], Law]
    draw: Callable[[int], Sampler]
    limits: Limits


class BatchWriter:
    """A `Writer` over a target.

    Args:
        target: whose model writes; a sequence of its own is lost.
        manner: how prompts are answered.
        keeper: of the target's model, if features are wanted.
    """

    def __init__(
        self, target: TransformersTarget, manner: Manner, keeper: StateKeeper | None = None
    ) -> None:
        assert not manner.limits.stop, "answers are ids: no text, no stop strings"
        self._target, self._manner, self.keeper = target, manner, keeper
        self.width = int(target.model.config.get_text_config().hidden_size)
        self.bytes_a_token = target.cache.bytes_a_token

    def write(
        self, prompts: Sequence[tuple[int, TokenArray]], rows: int, capacity: int
    ) -> Iterator[Answer]:
        """Answers in the order they end, from an empty batch on."""
        batch = BatchTarget(self._target, rows, capacity)
        with nullcontext() if self.keeper is None else self.keeper.watching():
            yield from write(batch, prompts, self._manner, self.keeper)

    def seconds(self, rows: int, prompt_tokens: int) -> tuple[float, float]:
        """Measured seconds to begin a prompt of that length, and of a pass over that many rows."""
        batch = BatchTarget(self._target, rows, prompt_tokens + PROBES)
        prompt = np.zeros(prompt_tokens, np.int64)
        batch.begin(prompt)  # warms up
        batch.release(0)
        started = perf_counter()
        batch.begin(prompt)
        begun = perf_counter() - started
        while not batch.full:
            batch.begin(prompt)
        newest = np.zeros(rows, np.int64)
        batch.step(newest)
        started = perf_counter()
        for _ in range(PROBES - 1):
            batch.step(newest)
        return begun, (perf_counter() - started) / (PROBES - 1)


def write(
    target: BatchTarget,
    prompts: Sequence[tuple[int, TokenArray]],
    manner: Manner,
    keeper: StateKeeper | None = None,
) -> Iterator[Answer]:
    """Answer all prompts, given in the order they shall begin.

    Args:
        target: with no text under way.
        prompts: (number, ids (T,)), at least one id each.
        manner: how.
        keeper: of the target's model, watching.
    """
    waiting = iter(prompts)
    rows: list[_Row] = []
    while True:
        while not target.full and (nxt := next(waiting, None)) is not None:
            row = _Row.begin(*nxt, manner)
            if row.stopping.exhausted() is not None:
                yield row.answer()
                continue
            target.begin(row.context.tokens)
            if keeper is not None:
                row.features.append(keeper.take()[0])
            rows.append(row)
        if not rows:
            return
        logits, states = target.step(np.array([row.context.newest for row in rows]))
        host = states.float().cpu().numpy()
        if keeper is not None:
            for row, kept in zip(rows, keeper.take(), strict=True):
                row.features.append(kept)
        ended = [i for i, row in enumerate(rows) if row.take(logits[i : i + 1], host[i])]
        for i in reversed(ended):  # from the end, so that a row moves only into a place that ended
            yield rows[i].answer()
            target.release(i)
            rows[i] = rows[-1]
            rows.pop()


@dataclass(slots=True)
class _Row:
    number: int
    context: Context
    law: Law
    draw: Sampler
    stopping: Stopping
    states: list[Any] = field(default_factory=list)
    features: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def begin(cls, number: int, prompt: TokenArray, manner: Manner) -> "_Row":
        context = Context.begin(prompt, len(prompt) + manner.limits.max_new_tokens)
        stopping = Stopping(manner.limits, len(prompt), None)
        return cls(number, context, manner.law(len(prompt)), manner.draw(number), stopping)

    def take(self, logits: torch.Tensor, state: np.ndarray) -> bool:
        """The next token from a row of logits (1, V); whether the answer ends with it."""
        position = len(self.context.tokens)
        if position > self.context.prompt_len:
            self.states.append(state.copy())  # of the newest token, which belongs to the answer
        law = self.law.rows(self.context, Scores(logits))
        token = self.draw(position, law(0, ()))
        cut = self.stopping.cut((token,))
        self.context = self.context.extend(cut.tokens, None)
        return cut.finish is not None

    def answer(self) -> Answer:
        """What was written, and the states of all its tokens but the last."""
        tokens = self.context.tokens[self.context.prompt_len :].copy()
        states = np.stack(self.states) if self.states else np.empty((0, 0), np.float32)
        fed = [part for part in self.features if len(part)]
        return Answer(self.number, tokens, states, torch.cat(fed) if fed else None)
