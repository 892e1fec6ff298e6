"""The key/value cache: fixed buffers, a length for each row, and rollback by arithmetic on the lengths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import Cache

from fsd_core.ops.transfer import to_device


class KVCache(Cache):
    """Keys and values of ``capacity`` positions per layer for each row of a batch, of which the first are valid.

    Rows may be of different lengths, as texts are that advance by different amounts. Positions behind a row's length
    hold leftovers of rejected tokens: they are never read, and are overwritten by what comes next. Buffers are
    allocated at the first write, [B, heads, capacity, head size] each.
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
        """Of the longest row."""
        return max(self.lengths)

    def reserve(self, count: int, device: torch.device) -> Tensor | None:
        """Where the next ``count`` tokens of each row will be written, int64 [B,count].

        ``None`` if all rows are of one length, from which on they will be.
        """
        self._cache_positions, self._end = None, self.length + count
        if min(self.lengths) != self.length:
            starts = to_device(torch.tensor(self.lengths), device)
            self._cache_positions = starts[:, None] + torch.arange(count, device=device)
        return self._cache_positions

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[Tensor, Tensor]:
        """Writes [B, heads, S, head size] to the reserved places; returns views [B, heads, longest + S, …] of all."""
        if layer_idx not in self._buffers:
            self._buffers[layer_idx] = self._empty_like(key_states), self._empty_like(value_states)
        keys, values = (buffer[self._slice] for buffer in self._buffers[layer_idx])
        if self._cache_positions is None:
            start = self._end - key_states.shape[-2]
            keys[:, :, start : self._end] = key_states
            values[:, :, start : self._end] = value_states
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
        """Makes the ``count`` positions of each row that were written last valid."""
        self.lengths = [length + count for length in self.lengths]

    def rollback(self, lengths: int | Sequence[int]) -> None:
        """Keeps so many positions, of all rows or of each; nothing changes for a row in which fewer are valid."""
        wanted = [lengths] * len(self.lengths) if isinstance(lengths, int) else lengths
        self.lengths = [min(pair) for pair in zip(self.lengths, wanted, strict=True)]

    def compact(self, start: int, kept: Tensor) -> None:
        """Moves what lies at ``start`` + ``kept`` (int64 [K], ascending) to the places from ``start`` on."""
        for keys, values in self._buffers.values():
            for buffer in (keys, values):
                buffer[:, :, start : start + len(kept)] = buffer[:, :, start + kept]

    def row(self, index: int) -> KVCache:
        """An empty cache in the place of one row; :meth:`adopt` makes what is written there the row's."""
        alone = KVCache(self._layers, self.capacity)
        alone._buffers, alone._batch, alone._slice = self._buffers, len(self.lengths), slice(index, index + 1)
        return alone

    def adopt(self, index: int, length: int) -> None:
        """The row begins anew with the ``length`` positions that were written through :meth:`row`."""
        self.lengths[index] = length

    def keep_rows(self, rows: Tensor) -> None:
        """Drops all rows of the batch but these, int64 [rows kept]."""
        self._buffers = {layer: (keys[rows], values[rows]) for layer, (keys, values) in self._buffers.items()}
        self.lengths = [self.lengths[row] for row in rows.tolist()]
        self._batch = len(self.lengths)

    def release(self) -> None:
        """Lets go of the buffers. For the end of the texts: nothing is written or read afterwards."""
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
    """The tokens that a model has yet to be fed, as many for each row as for the one that lacks most; int64 [B,S].

    tokens: int64 [B,T], of which the first ``lengths`` are texts. A row that lacks fewer is fed some again: its cache
    is rolled back by so many.
    """
    width = max(length - known for length, known in zip(lengths, cache.lengths, strict=True))
    starts = [length - width for length in lengths]
    cache.rollback(starts)
    if min(starts) == max(starts):
        return tokens[:, starts[0] : starts[0] + width]
    positions = to_device(torch.tensor(starts), tokens.device)[:, None] + torch.arange(width, device=tokens.device)
    return tokens.gather(1, positions)


def causal_mask(position_ids: Tensor, end: int, window: int | None = None) -> Tensor:
    """What queries at ``position_ids`` (int64 [B,S]) see of the keys before ``end``: themselves and all before, or the
    last ``window`` of these. bool [B,1,S,end]"""
    keys = torch.arange(end, device=position_ids.device)
    queries = position_ids[..., None]
    seen = keys <= queries
    if window is not None:
        seen &= keys > queries - window
    return seen[:, None]
