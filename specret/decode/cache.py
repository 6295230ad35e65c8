"""The key-value cache of one sequence: preallocated, extended in place, rewound by gather.

In: key and value states of new rows, layer by layer, from a transformers model. Out: views over
everything cached. Knows no tokens, masks or drafts.
"""

from collections.abc import Iterator
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class PreallocatedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's keys and values, (1, heads, capacity, head_dim), of which `length` are filled.

    Every position is kept, also in layers with a sliding window (the mask hides what they may
    not see): only so can rejected rows be taken back exactly.
    """

    is_sliding = False
    is_croppable = True
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate with the heads, width, dtype and device of the first states."""
        self.device = key_states.device
        self.keys = self._buffer(key_states)
        self.values = self._buffer(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (1, heads, n, head_dim) rows; returns views over all rows."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        assert end <= self.capacity, "the target reserves room before it feeds rows"
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def keep(self, start: int, rows: torch.Tensor | None, count: int) -> None:
        """Of the rows from `start` on, keep `rows` (indices relative to `start`), in that order.

        `rows` None means the first `count` rows, which already stand in their place.
        """
        if rows is not None:
            for buffer in (self.keys, self.values):
                buffer[:, :, start : start + count] = buffer[:, :, start:].index_select(2, rows)
        self.length = start + count

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` rows in all, keeping what is filled."""
        self.capacity = capacity
        if self.is_initialized:
            old_keys, old_values = self.keys, self.values
            self.keys, self.values = self._buffer(old_keys), self._buffer(old_values)
            self.keys[:, :, : self.length] = old_keys[:, :, : self.length]
            self.values[:, :, : self.length] = old_values[:, :, : self.length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.length + query_length, 0

    def get_seq_length(self, *_: Any) -> int:
        """Rows filled."""
        return self.length

    def get_max_length(self) -> int:
        """Rows allocated."""
        return self.capacity

    get_max_cache_shape = get_max_length  # its name before transformers 5.20

    def _buffer(self, like: torch.Tensor) -> torch.Tensor:
        _, heads, _, width = like.shape
        return torch.zeros((1, heads, self.capacity, width), dtype=like.dtype, device=like.device)


class PreallocatedCache(Cache):
    """The layers of one model; all hold the same rows."""

    def __init__(self, num_layers: int, capacity: int) -> None:
        self._own_layers = [PreallocatedLayer(capacity) for _ in range(num_layers)]
        super().__init__(layers=list(self._own_layers))

    @property
    def length(self) -> int:
        """Rows filled."""
        return self._own_layers[0].length

    @property
    def bytes_a_token(self) -> int:
        """Of keys and values of all layers; known once a row was fed."""
        halves = [half for layer in self._own_layers for half in (layer.keys, layer.values)]
        return sum(half.shape[1] * half.shape[3] * half.element_size() for half in halves)

    def filled(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Views of the keys and values of each layer, (1, heads, length, head_dim)."""
        for layer in self._own_layers:
            yield layer.keys[:, :, : layer.length], layer.values[:, :, : layer.length]

    def restart(self, capacity: int) -> None:
        """Forget every row; buffers are kept where they are large enough."""
        for layer in self._own_layers:
            layer.length = 0
            if layer.capacity < capacity:
                layer.grow(capacity)

    def reserve(self, rows: int) -> None:
        """Make sure that `rows` more fit (doubling, so the copies stay rare)."""
        need = self.length + rows
        if need > self._own_layers[0].capacity:
            for layer in self._own_layers:
                layer.grow(max(need, 2 * layer.capacity))

    def keep(self, start: int, rows: list[int]) -> None:
        """Of the rows from `start` on keep `rows` (relative, ascending); drop the others."""
        in_place = rows == list(range(len(rows)))
        index = None
        if not in_place:
            index = torch.tensor(rows, device=self._own_layers[0].device)
        for layer in self._own_layers:
            layer.keep(start, index, len(rows))
