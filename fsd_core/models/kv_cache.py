"""The key/value cache: fixed buffers, a length per row, and rollback by arithmetic on the lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor
from transformers import Cache

from fsd_core.ops.transfer import to_device

_Row = TypeVar("_Row", bound="KVCache")


class KVCache(Cache):
    """Keys and values of ``capacity`` positions per layer and row of a batch. Those up to a row's length are valid.

    Rows may differ in length, since texts advance by different amounts. Positions beyond a row's length hold leftovers
    of rejected tokens. They are never read, and later tokens overwrite them. Buffers are allocated at the first write,
    [B, heads, capacity, head size] each.
    """

    def __init__(self, layers: int, capacity: int, rows: int = 1) -> None:
        super().__init__(layers=[])
        self.capacity, self.lengths = capacity, [0] * rows
        self._layers = layers
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self._batch, self._slice = rows, slice(None)
        self._cache_positions: Tensor | None = None
        self._end = 0

    @property
    def length(self) -> int:
        """Length of the longest row."""
        return max(self.lengths)

    def reserve(self, count: int, device: torch.device) -> Tensor | None:
        """Return where the next ``count`` tokens of each row will be written, int64 [B,count].

        Returns ``None`` if all rows have the same length, at which the tokens then start.
        """
        self._cache_positions, self._end = None, self.length + count
        if min(self.lengths) != self.length:
            starts = to_device(torch.tensor(self.lengths), device)
            self._cache_positions = starts[:, None] + torch.arange(count, device=device)
        return self._cache_positions

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[Tensor, Tensor]:
        """Write [B, heads, S, head size] to the reserved positions. Return views [B, heads, longest + S, …] of all."""
        if layer_idx not in self._buffers:
            self._buffers[layer_idx] = self._empty_like(key_states), self._empty_like(value_states)
        keys, values = (buffer[self._slice] for buffer in self._buffers[layer_idx])
        if self._cache_positions is None:
            start = self._end - key_states.shape[-2]
            keys[:, :, start : self._end] = key_states
            values[:, :, start : self._end] = value_states
        elif len(keys) == 1:
            positions = self._cache_positions[0].to(keys.device)
            keys.index_copy_(2, positions, key_states)
            values.index_copy_(2, positions, value_states)
        else:
            rows, positions = (
                torch.arange(len(keys), device=keys.device)[:, None],
                self._cache_positions.to(keys.device),
            )
            keys[rows, :, positions] = key_states.transpose(1, 2)
            values[rows, :, positions] = value_states.transpose(1, 2)
        return keys[:, :, : self._end], values[:, :, : self._end]

    def _empty_like(self, states: Tensor) -> Tensor:
        _, heads, _, size = states.shape
        return states.new_zeros(self._batch, heads, self.capacity, size)

    def advance(self, count: int) -> None:
        """Mark the ``count`` positions written last in each row as valid."""
        self.lengths = [length + count for length in self.lengths]

    def rollback(self, lengths: int | Sequence[int]) -> None:
        """Keep this many positions, of all rows or of each. A row with fewer valid ones is unchanged."""
        limits = [lengths] * len(self.lengths) if isinstance(lengths, int) else lengths
        self.lengths = [min(pair) for pair in zip(self.lengths, limits, strict=True)]

    def compact(self, start: int, accepted: Tensor) -> None:
        """Move the entries at ``start`` + ``accepted`` (int64 [K], ascending) to the positions from ``start`` on."""
        for keys, values in self._buffers.values():
            for buffer in (keys, values):
                buffer[:, :, start : start + len(accepted)] = buffer[:, :, start + accepted]

    def row(self, index: int) -> KVCache:
        """Return an empty cache over one row's buffers. :meth:`adopt` makes what is written there the row's."""
        return self._shared(KVCache(self._layers, self.capacity), index)

    def _shared(self, cache: _Row, index: int) -> _Row:
        """Give a new cache one row's buffers, and return it."""
        cache._buffers, cache._batch, cache._slice = self._buffers, len(self.lengths), slice(index, index + 1)
        return cache

    def adopt(self, index: int, length: int) -> None:
        """Restart the row with the ``length`` positions that were written through :meth:`row`."""
        self.lengths[index] = length

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows of the batch but these, int64 [rows kept]."""
        self._buffers = {layer: (keys[rows], values[rows]) for layer, (keys, values) in self._buffers.items()}
        self.lengths = [self.lengths[row] for row in rows.tolist()]
        self._batch = len(self.lengths)

    def release(self) -> None:
        """Release the buffers at the end of the texts. Nothing is written or read afterwards."""
        self._buffers = {}

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def get_query_offset(self, layer_idx: int | None = None) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int | None = None) -> tuple[int, int]:
        return self.length + query_length, 0

    @property
    def is_sliding(self) -> list[bool]:
        return [False] * self._layers


def uncached_tokens(tokens: Tensor, cache: KVCache, lengths: Sequence[int]) -> Tensor:
    """Return the tokens that a model has yet to be fed, as many for each row as the row that lacks most; int64 [B,S].

    tokens: int64 [B,T], whose first ``lengths`` are the texts. A row that lacks fewer is fed some again: its cache is
    rolled back by that many.
    """
    width = max(length - cached for length, cached in zip(lengths, cache.lengths, strict=True))
    starts = [length - width for length in lengths]
    cache.rollback(starts)
    if min(starts) == max(starts):
        return tokens[:, starts[0] : starts[0] + width]
    positions = to_device(torch.tensor(starts), tokens.device)[:, None] + torch.arange(width, device=tokens.device)
    return tokens.gather(1, positions)


def causal_mask(position_ids: Tensor, end: int, window: int | None = None) -> Tensor:
    """Return which keys before ``end`` the queries at ``position_ids`` (int64 [B,S]) attend to: themselves and all
    before, or the last ``window`` of these. bool [B,1,S,end]"""
    keys = torch.arange(end, device=position_ids.device)
    queries = position_ids[..., None]
    mask = keys <= queries
    if window is not None:
        mask &= keys > queries - window
    return mask[:, None]
