"""Forwards at fixed addresses and of fixed shapes, as CUDA graphs need them.

Launching a kernel takes the host some microseconds, and a forward of one token launches hundreds of them. For a small
model that takes longer than the GPU's work. A CUDA graph launches them all at once, but nothing in it may move or
change its shape. So the cache's buffers keep their addresses from text to text, positions are read from the device, and
attention covers a *bucket* of positions, a multiple of ``BUCKET``, with a mask over the invalid ones. One graph is
captured for each number of tokens and each bucket. Without CUDA the same code runs without graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import Tensor

from fsd_core.models.kv_cache import KVCache

BUCKET = 256  # positions
_MOST_TOKENS = 64  # in a captured forward; a prompt's forward is not captured


@dataclass
class _Inputs:
    """Fixed buffers of a forward's tokens and positions, int64 [1,S] each."""

    tokens: Tensor
    position_ids: Tensor
    offsets: Tensor
    """0 … S−1"""


@dataclass
class Storage:
    """Memory that outlives a text, so that graphs captured for one text serve the next."""

    capacity: int
    buffers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    inputs: dict[int, _Inputs] = field(default_factory=dict)
    graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor]] = field(default_factory=dict)
    """(tokens, bucket) → graph and the buffer of its logits"""
    pool: Any = None
    """where the graphs have their memory: a pool ends with the last of its graphs, which end with the storage"""


class StaticCache(KVCache):
    """The cache of one text in a storage, which returns to ``free`` when the cache is released.

    The caller that requested the cache releases it. Otherwise no later text gets the storage, and its memory is freed.
    """

    def __init__(self, layers: int, storage: Storage, free: list[Storage]) -> None:
        super().__init__(layers, storage.capacity)
        self.storage, self._buffers = storage, storage.buffers
        self._free, self._released = free, False

    def release(self) -> None:
        super().release()
        if not self._released:
            self._released = True
            self._free.append(self.storage)

    def reserve_fixed(self, tokens: Tensor) -> _Inputs:
        """Reserve positions for ``tokens`` (int64 [1,S]) like ``reserve``, and copy both to the buffers that a captured
        forward of as many tokens reads."""
        count = tokens.shape[1]
        if count not in self.storage.inputs:
            offsets = torch.arange(count, device=tokens.device)[None]
            self.storage.inputs[count] = _Inputs(torch.zeros_like(offsets), torch.zeros_like(offsets), offsets)
        inputs = self.storage.inputs[count]
        torch.add(inputs.offsets, self.length, out=inputs.position_ids)
        inputs.tokens.copy_(tokens)
        self._cache_positions = inputs.position_ids
        self._end = min(self.capacity, -(-(self.length + count) // BUCKET) * BUCKET)
        return inputs

    @property
    def end(self) -> int:
        """Number of positions that the reserved forward attends to."""
        return self._end


class StaticForward:
    """A model's forward through static caches, captured where possible.

    ``forward``: tokens int64 [1,S], position_ids int64 [1,S], end, cache → logits [1,S,V]. It must not read anything
    else that changes.
    """

    def __init__(self, forward: Callable[[Tensor, Tensor, int, KVCache], Tensor], layers: int) -> None:
        self._forward, self._layers = forward, layers
        self._free: list[Storage] = []

    def new_cache(self, capacity: int) -> StaticCache:
        """Return an empty cache for at least ``capacity`` positions."""
        required = -(-capacity // BUCKET) * BUCKET
        fitting = sorted((s for s in self._free if s.capacity >= required), key=lambda storage: storage.capacity)
        storage = fitting[0] if fitting else Storage(required)
        if fitting:
            self._free.remove(storage)
        return StaticCache(self._layers, storage, self._free)

    @staticmethod
    def takes(cache: KVCache, count: int) -> TypeGuard[StaticCache]:
        """Whether ``count`` more tokens of a text can run here: a few, after the prompt, in a static cache."""
        return isinstance(cache, StaticCache) and count <= _MOST_TOKENS and cache.length > 0

    def __call__(self, tokens: Tensor, cache: StaticCache, logits_to_keep: int) -> Tensor:
        """Append ``tokens`` (int64 [1,S]) to the cache. Return logits of the last ``logits_to_keep``,
        [1,logits_to_keep,V]."""
        inputs = cache.reserve_fixed(tokens)
        if tokens.device.type != "cuda":
            return self._forward(inputs.tokens, inputs.position_ids, cache.end, cache)[:, -logits_to_keep:]
        graphs, key = cache.storage.graphs, (tokens.shape[1], cache.end)
        if key not in graphs:
            graphs[key] = self._capture(inputs, cache)
        graph, logits = graphs[key]
        graph.replay()
        return logits[:, -logits_to_keep:].clone()  # the next replay overwrites it

    def _capture(self, inputs: _Inputs, cache: StaticCache) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Capture the forward as a graph, after one run that makes its one-time allocations."""
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            self._forward(inputs.tokens, inputs.position_ids, cache.end, cache)
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=cache.storage.pool):
            logits = self._forward(inputs.tokens, inputs.position_ids, cache.end, cache)
        cache.storage.pool = graph.pool()
        return graph, logits
