"""One pass over many texts: each row of the batch is the newest token of a text of its own.

In: texts to begin, then the newest token of every row. Out: logits and states, row by row.
A finished row is given back at once, and its place to the next text. Knows no law and no store.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from specret.decode.cache import PreallocatedCache
from specret.decode.target import TransformersTarget
from specret.types import TokenArray


class BatchTarget:
    """Feeds one token of each of many texts in a pass.

    Args:
        target: whose model runs; a sequence of its own is lost when a text begins.
        rows: most texts at once.
        capacity: most tokens of one text.
    """

    def __init__(self, target: TransformersTarget, rows: int, capacity: int) -> None:
        self._target = target
        layers = int(target.model.config.get_text_config().num_hidden_layers)
        self._cache = BatchCache(layers, rows, capacity)
        self._most = rows

    @property
    def rows(self) -> int:
        """Texts under way; their rows are the first ones."""
        return self._cache.filled.rows

    @property
    def full(self) -> bool:
        """Whether no further text can begin."""
        return self.rows == self._most

    def begin(self, tokens: TokenArray) -> None:
        """Give the next row to a text: all of `tokens` (T,) but the newest is fed."""
        assert not self.full, "every row is taken"
        self._target.prefill(tokens[:-1], len(tokens) - 1)
        with torch.inference_mode():
            self._cache.adopt(self._target.cache)

    def step(self, newest: TokenArray) -> tuple[torch.Tensor, torch.Tensor]:
        """Feed the newest token of every row (B,). Returns logits (B, V) and states (B, H)."""
        lengths = self._cache.filled.under_way.numpy()

        def seen(window: int | None) -> np.ndarray:
            columns = np.arange(int(lengths.max()) + 1)[None, None]
            last = lengths[:, None, None]
            return (columns <= last) & (window is None or columns > last - (window or 0))

        out = self._target.run(
            self._target.model, newest[:, None], lengths[:, None].copy(), seen, self._cache
        )
        self._cache.fed()
        return out.logits[:, -1], self._target.states[:, -1]

    def release(self, row: int) -> None:
        """Give a row back; the last row takes its place."""
        with torch.inference_mode():
            self._cache.release(row)


@dataclass(slots=True)
class _Filled:
    """How much of a batch is filled; cache and layers share it instead of knowing each other.

    A cycle between them would keep the buffers of a finished batch until the collector comes.
    """

    lengths: torch.Tensor
    rows: int = 0

    @property
    def under_way(self) -> torch.Tensor:
        """(rows,) tokens of each text under way, a view."""
        return self.lengths[: self.rows]


class BatchCache(Cache):
    """Keys and values of many texts, each with its own length, the texts under way first."""

    def __init__(self, num_layers: int, rows: int, capacity: int) -> None:
        self.filled = _Filled(torch.zeros(rows, dtype=torch.int64))
        self._own_layers = [_BatchLayer(self.filled, capacity) for _ in range(num_layers)]
        super().__init__(layers=list(self._own_layers))

    def adopt(self, one: PreallocatedCache) -> None:
        """A new row with what a cache of one sequence holds."""
        length = one.length
        if length:
            for layer, (keys, values) in zip(self._own_layers, one.filled(), strict=True):
                layer.fill(self.filled.rows, keys[0], values[0])
        self.filled.lengths[self.filled.rows] = length
        self.filled.rows += 1

    def fed(self) -> None:
        """One more token stands in every row."""
        self.filled.under_way.add_(1)

    def release(self, row: int) -> None:
        """Forget a row; the last one takes its place."""
        last = self.filled.rows - 1
        length = int(self.filled.lengths[last])
        if row != last:
            for layer in self._own_layers:
                layer.fill(row, layer.keys[last, :, :length], layer.values[last, :, :length])
            self.filled.lengths[row] = length
        self.filled.rows = last


class _BatchLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer: (rows, heads, capacity, head_dim)."""

    is_sliding = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, filled: _Filled, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._filled, self._capacity = filled, capacity

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate with the heads, width, dtype and device of states (..., heads, n, head_dim)."""
        self.device = key_states.device
        self.keys = self._buffer(key_states)
        self.values = self._buffer(value_states)
        self.is_initialized = True

    def fill(self, row: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """The first tokens of a row, (heads, n, head_dim)."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self.keys[row, :, : keys.shape[1]] = keys
        self.values[row, :, : values.shape[1]] = values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append one token to every row under way; views up to the longest of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        count, under_way = len(key_states), self._filled.under_way
        lengths = under_way.to(self.device)
        row = torch.arange(count, device=self.device)
        self.keys[row, :, lengths] = key_states[:, :, 0]
        self.values[row, :, lengths] = value_states[:, :, 0]
        end = int(under_way.max()) + 1
        return self.keys[:count, :, :end], self.values[:count, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self, *_: Any) -> int:
        """Tokens of the longest row."""
        return int(self._filled.under_way.max()) if self._filled.rows else 0

    def get_max_length(self) -> int:
        """Tokens that a row has room for."""
        return self._capacity

    get_max_cache_shape = get_max_length  # its name before transformers 5.20

    def _buffer(self, like: torch.Tensor) -> torch.Tensor:
        heads, width = like.shape[-3], like.shape[-1]
        shape = (len(self._filled.lengths), heads, self._capacity, width)
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
