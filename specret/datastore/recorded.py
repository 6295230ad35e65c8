"""A `Writer` whose answers are known already: the model only reads them, for their states.

In: traces and an `Encoder`. Out: answers as if the target had just written them. Knows no model.
"""

from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np

from specret.datastore.traces import Trace
from specret.protocols import Answer, Encoder
from specret.types import TokenArray


class RecordedWriter:
    """Gives back recorded answers, with the states that the target has in them.

    Args:
        traces: by number.
        encoder: of the model; None: no states.
    """

    bytes_a_token = 0
    keeper = None

    def __init__(self, traces: Sequence[Trace], encoder: Encoder | None) -> None:
        self._traces, self._encoder = traces, encoder
        self.width = 0 if encoder is None else encoder.width

    def write(
        self, prompts: Sequence[tuple[int, TokenArray]], rows: int, capacity: int
    ) -> Iterator[Answer]:
        """The recorded answers, `rows` of them read at once."""
        for start in range(0, len(prompts), rows):
            part = [self._traces[number] for number, _ in prompts[start : start + rows]]
            for (number, _), trace, states in zip(
                prompts[start : start + rows], part, self._states(part), strict=True
            ):
                yield Answer(number, trace.answer, states[len(trace.prompt) :])

    def seconds(self, rows: int, prompt_tokens: int) -> tuple[float, float]:
        """No prompt is begun; of a pass: one token of each row, measured on the first traces."""
        part = self._traces[:rows]
        self._states(part[:1])  # warms up
        started = perf_counter()
        self._states(part)
        tokens = sum(len(trace.answer) for trace in part)
        return 0.0, (perf_counter() - started) * rows / tokens

    def _states(self, part: Sequence[Trace]) -> list[np.ndarray]:
        """Of every token but the last one."""
        if self._encoder is None:
            return [np.empty((0, 0), np.float32)] * len(part)
        texts = [np.concatenate([trace.prompt, trace.answer])[:-1] for trace in part]
        return list(self._encoder.encode(texts))
