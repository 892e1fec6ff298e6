"""Caches of texts that are written: rows that are rolled back by arithmetic on lengths, or from checkpoints."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import TypeVar

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import LinearAttentionLayer

from fsd_core.ops.kernels import folded, to_device

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


class RefedCache(KVCache):
    """The cache of one text whose state lacks the last tokens after some rollbacks. The caller feeds these again
    (:meth:`missing`)."""

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers, capacity)
        self._tokens: Tensor | None = None  # int64 [1,capacity]; the first ``self.length`` are the text
        self._included = 0  # number of tokens in the state
        self._clear()

    @abstractmethod
    def _clear(self) -> None:
        """Start from the first token."""

    def record(self, tokens: Tensor) -> None:
        """Remember the tokens about to be fed, int64 [1,S]."""
        if self._tokens is None:
            self._tokens = tokens.new_zeros(1, self.capacity)
        self._tokens[:, self.length : self.length + tokens.shape[1]] = tokens

    def advance(self, count: int) -> None:
        super().advance(count)
        self._included = self.length

    def missing(self) -> Tensor | None:
        """Return the text's tokens that the state lacks, int64 [1,n], and end the cache before them. The caller feeds
        them. ``None`` if it lacks none."""
        length, self.lengths = self.length, [self._included]
        return None if self._tokens is None or length == self._included else self._tokens[:, self._included : length]

    def adopt(self, index: int, length: int) -> None:
        super().adopt(index, length)
        self._clear()

    def release(self) -> None:
        super().release()
        self._clear()


class RecurrentCache(RefedCache):
    """The cache of one text, with a recurrent state for each layer that keeps one.

    A state is the sum of all tokens fed, so a rejected token cannot be cut off it. Therefore the state is copied at the
    boundary of a round, before drafts are fed. After a rollback the checkpoint is restored, and the model is fed the
    accepted tokens behind it again (:meth:`missing`): at most those of one round. A rollback further than that starts
    from the first token. Keys and values are kept by position, as in any text.

    ``states``: how many states each layer keeps.
    """

    layers: list[LinearAttentionLayer]  # pyrefly: ignore[bad-override]

    def __init__(self, layers: int, capacity: int, states: int = 1) -> None:
        self._num_states = states
        super().__init__(layers, capacity)

    def _clear(self) -> None:
        self.layers = [LinearAttentionLayer(self._num_states) for _ in range(self._layers)]
        self._included = 0
        self._saved, self._saved_length = _copies(self.layers), 0
        self._at_boundary = True

    def checkpoint(self) -> None:
        """Copy the state, if this is the first forward after a rollback: one round's drafts come next."""
        if self._at_boundary:
            self._saved, self._saved_length = _copies(self.layers), self.length
            self._at_boundary = False

    def first_state(self) -> Tensor:
        """Return the state of the first layer that has one: the recurrent state, or else the last inputs of the
        convolution."""
        layer = next(layer for layer in self.layers if any(layer.has_previous_state.values()))
        states = (*layer.recurrent_states.values(), *layer.conv_states.values())
        return next(state for state in states if state is not None).float()

    def rollback(self, lengths: int | Sequence[int]) -> None:
        super().rollback(lengths)
        self._at_boundary = True
        if self.length < self._included:
            if self.length < self._saved_length:
                self._clear()
            else:
                self.layers, self._included = _copies(self._saved), self._saved_length


def _copies(layers: Sequence[LinearAttentionLayer]) -> list[LinearAttentionLayer]:
    """Return layers whose states the next forward does not change in place."""
    return [_copied(layer) for layer in layers]


def _copied(layer: LinearAttentionLayer) -> LinearAttentionLayer:
    other = copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):  # by the number of the state
            setattr(
                other, name, {key: item.clone() if isinstance(item, Tensor) else item for key, item in value.items()}
            )
    return other


class LinearCache(RefedCache):
    """The cache of one text: for each layer the sum S over finished groups, and keys and values of what came later.

    What is folded into S cannot be taken out again, so nothing is folded that may be rejected: only groups that end
    before what the last rollback has kept, and before the values that the convolution still reads. A rollback into that
    reach starts from the first token, and the caller feeds the text again (:meth:`missing`).

    ``group``: positions of a group. ``taps``: of the convolution.
    """

    def __init__(self, layers: int, capacity: int, group: int, taps: int) -> None:
        self._group, self._taps = group, taps
        super().__init__(layers, capacity)

    def _clear(self) -> None:
        self.states: dict[int, Tensor] = {}
        """of each layer, float32 [1,key heads,d,d]; empty before the first group is folded"""
        self.base = 0
        """number of tokens in the states"""
        self._included = 0
        self._kept = 0  # tokens that were left after the last rollback
        self._buffers = {}

    def fold(self, before: int | None = None) -> None:
        """Fold the groups that nothing reads singly any more: those whose last value is out of the convolution's reach
        from what was kept, and from ``before`` if given."""
        kept = self._kept if before is None else min(self._kept, before)
        count = (max(kept - self._taps + 1, 0) // self._group) * self._group - self.base
        if count <= 0:
            return
        for layer, (keys, values) in self._buffers.items():
            self.states[layer] = folded(self.states.get(layer), keys[:, :, :count], values[:, :, :count])
            self._buffers[layer] = keys[:, :, count:], values[:, :, count:]
        self.base += count

    def reserve(self, count: int, device: torch.device) -> None:
        """Do nothing: the tokens follow the cache's length."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[Tensor, Tensor]:
        """Write [1,key heads,S,d] after the cache's contents. Return all that is not in the states, [1,key heads,L,d]
        each."""
        if layer_idx in self._buffers:
            kept = self.length - self.base
            new = zip(self._buffers[layer_idx], (key_states, value_states), strict=True)
            key_states, value_states = (torch.cat([old[:, :, :kept], more], 2) for old, more in new)
        self._buffers[layer_idx] = key_states, value_states
        return key_states, value_states

    def rollback(self, lengths: int | Sequence[int]) -> None:
        super().rollback(lengths)
        if self.base and self.length < self.base + self._taps - 1:
            self._clear()
        self._kept = self._included = min(self._included, self.length)

    def compact(self, start: int, accepted: Tensor) -> None:
        super().compact(start - self.base, accepted)
        if self._tokens is not None:
            self._tokens[:, start : start + len(accepted)] = self._tokens[:, start + accepted]

    def bytes(self) -> int:
        """Return what states, keys and values take."""
        parts = [*self.states.values(), *(part for pair in self._buffers.values() for part in pair)]
        return sum(part.numel() * part.element_size() for part in parts)
