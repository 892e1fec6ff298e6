"""The cache of a model with grouped linear attention: a state that does not grow, and the tokens not yet folded in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fsd_core.models.refed_cache import RefedCache
from fsd_core.ops.grouped_attention import folded


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
