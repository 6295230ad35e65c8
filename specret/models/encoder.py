"""Hidden states of many texts at once, as the LM head would read them.

In: windows of tokens. Out: the states after the final norm, one row per token, fp32 on the host.
Knows no store: who asks decides what is kept.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from specret.models.load import LoadedModel
from specret.types import TokenArray

BATCH_TOKENS = 4096
"""Tokens, padding counted, that go through the model at once: bounds the activations."""


class TransformersEncoder:
    """An `Encoder` over a loaded model's body; the LM head is not run."""

    def __init__(self, loaded: LoadedModel, *, batch_tokens: int = BATCH_TOKENS) -> None:
        self._body = loaded.model.base_model
        self._device = loaded.device
        self._batch_tokens = batch_tokens
        self.width = loaded.fingerprint.hidden_size

    def encode(self, windows: Sequence[TokenArray]) -> list[NDArray[np.float32]]:
        """States (len(w), width) of each window; row i belongs to token i."""
        states: list[NDArray[np.float32]] = [np.empty((0, self.width), np.float32)] * len(windows)
        for batch in self._batches(windows):
            for i, rows in zip(batch, self._forward([windows[i] for i in batch]), strict=True):
                states[i] = rows
        return states

    def _batches(self, windows: Sequence[TokenArray]) -> Iterator[list[int]]:
        # longest first: a batch holds windows of nearly one length, so hardly any padding
        order = sorted(range(len(windows)), key=lambda i: -len(windows[i]))
        order = [i for i in order if len(windows[i])]
        start = 0
        while start < len(order):
            count = max(1, self._batch_tokens // len(windows[order[start]]))
            yield order[start : start + count]
            start += count

    def _forward(self, windows: list[TokenArray]) -> Iterator[NDArray[np.float32]]:
        lengths = [len(w) for w in windows]
        ids = np.zeros((len(windows), max(lengths)), np.int64)
        for row, window in zip(ids, windows, strict=True):
            row[: len(window)] = window
        inputs: dict[str, Any] = {
            "input_ids": torch.from_numpy(ids).to(self._device),
            "position_ids": torch.arange(ids.shape[1], device=self._device)[None],
            "use_cache": False,
        }
        if min(lengths) < max(lengths):
            # padding stands on the right, after everything a token may see
            real = np.arange(ids.shape[1]) < np.array(lengths)[:, None]
            inputs["attention_mask"] = torch.from_numpy(real.astype(np.int64)).to(self._device)
        with torch.inference_mode():
            states = self._body(**inputs).last_hidden_state.float().cpu().numpy()
        for length, rows in zip(lengths, states, strict=True):
            yield rows[:length]
