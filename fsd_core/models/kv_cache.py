"""The key/value cache: fixed buffers, a length, and rollback by arithmetic on the length."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Cache


class KVCache(Cache):
    """Keys and values of ``capacity`` positions per layer, of which the first ``length`` are valid.

    One length serves all rows of the batch, which therefore advance together. Positions from ``length`` on hold
    leftovers of rejected tokens: they are never read, and are overwritten by what comes next. Buffers are allocated at
    the first write, [B, heads, capacity, head size] each.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers=[])
        self.capacity, self.length = capacity, 0
        self._layers = layers
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[Tensor, Tensor]:
        """Writes [B, heads, S, head size] behind the valid positions; returns views of all [B, heads, length+S, …]."""
        if layer_idx not in self._buffers:
            self._buffers[layer_idx] = self._empty_like(key_states), self._empty_like(value_states)
        keys, values = self._buffers[layer_idx]
        end = self.length + key_states.shape[-2]
        keys[:, :, self.length : end] = key_states
        values[:, :, self.length : end] = value_states
        return keys[:, :, :end], values[:, :, :end]

    def _empty_like(self, states: Tensor) -> Tensor:
        batch, heads, _, size = states.shape
        return states.new_zeros(batch, heads, self.capacity, size)

    def advance(self, count: int) -> None:
        """Makes the ``count`` positions written last valid."""
        self.length += count

    def rollback(self, length: int) -> None:
        """Keeps the first ``length`` positions; does nothing if fewer are valid."""
        self.length = min(self.length, length)

    def keep_rows(self, rows: Tensor) -> None:
        """Drops all rows of the batch but these, int64 [rows kept]."""
        self._buffers = {layer: (keys[rows], values[rows]) for layer, (keys, values) in self._buffers.items()}

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def get_query_offset(self, layer_idx: int | None = None) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int | None = None) -> tuple[int, int]:
        return self.length + query_length, 0

    @property
    def is_sliding(self) -> list[bool]:
        return [False] * self._layers


def causal_mask(start: int, count: int, device: torch.device, window: int | None = None) -> Tensor:
    """What the queries ``start … start+count−1`` see: themselves and all before, or the last ``window`` of these.

    bool [1,1,count,start+count]
    """
    keys = torch.arange(start + count, device=device)
    queries = keys[start:, None]
    seen = keys[None, :] <= queries
    if window is not None:
        seen &= keys[None, :] > queries - window
    return seen[None, None]
