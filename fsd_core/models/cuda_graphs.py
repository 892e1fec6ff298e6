"""Forwards at fixed addresses and of fixed shapes, as CUDA graphs need them.

Starting a kernel takes the host some microseconds, and a forward of one token starts hundreds of them: for a small
model that is longer than the GPU works. A CUDA graph starts them all at once, but then nothing in it may move or change
its shape. So the cache's buffers stay where they are from text to text, positions are read from the device, and
attention goes over a *bucket* of positions, a multiple of ``BUCKET``, of which a mask leaves those that are valid. One
graph is captured for each number of tokens and each bucket. Where there is no CUDA, the same code runs without graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeGuard

import torch
from torch import Tensor

from fsd_core.models.kv_cache import KVCache

BUCKET = 256  # positions
_MOST_TOKENS = 64  # of a forward that is captured; a prompt's is not


@dataclass
class _Inputs:
    """Where a forward of some tokens reads them and their positions; int64 [1,S] each."""

    tokens: Tensor
    position_ids: Tensor
    offsets: Tensor
    """0 … S−1"""


@dataclass
class Storage:
    """What outlives a text, so that graphs captured for one serve the next."""

    capacity: int
    buffers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    inputs: dict[int, _Inputs] = field(default_factory=dict)
    graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor]] = field(default_factory=dict)
    """(tokens, bucket) → graph and where it leaves its logits"""


class StaticCache(KVCache):
    """The cache of one text in a storage, which goes back to ``free`` when the cache is released.

    Whoever asked for the cache releases it. If nobody does, no later text has the storage, and its memory goes with it.
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
        """Reserves positions for ``tokens`` (int64 [1,S]) as ``reserve`` does, and copies both to where a captured
        forward of as many tokens reads them."""
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
        """Positions that the reserved forward attends over."""
        return self._end


class StaticForward:
    """A model's forward through static caches, captured where that is possible.

    ``forward``: tokens int64 [1,S], position_ids int64 [1,S], end, cache → logits [1,S,V]; must not read anything else
    that changes.
    """

    def __init__(self, forward: Callable[[Tensor, Tensor, int, KVCache], Tensor], layers: int) -> None:
        self._forward, self._layers = forward, layers
        self._free: list[Storage] = []
        self._pool: object = None

    def new_cache(self, capacity: int) -> StaticCache:
        """An empty cache for at least ``capacity`` positions."""
        wanted = -(-capacity // BUCKET) * BUCKET
        fitting = sorted((s for s in self._free if s.capacity >= wanted), key=lambda storage: storage.capacity)
        storage = fitting[0] if fitting else Storage(wanted)
        if fitting:
            self._free.remove(storage)
        return StaticCache(self._layers, storage, self._free)

    @staticmethod
    def takes(cache: KVCache, count: int) -> TypeGuard[StaticCache]:
        """Whether ``count`` more tokens of a text run here: a few, behind a prompt that was read, in such a cache."""
        return isinstance(cache, StaticCache) and count <= _MOST_TOKENS and cache.length > 0

    def __call__(self, tokens: Tensor, cache: StaticCache, logits_to_keep: int) -> Tensor:
        """Logits of the last ``logits_to_keep`` of ``tokens`` (int64 [1,S]), which are written behind what the cache
        holds; [1,logits_to_keep,V]."""
        inputs = cache.reserve_fixed(tokens)
        if tokens.device.type != "cuda":
            return self._forward(inputs.tokens, inputs.position_ids, cache.end, cache)[:, -logits_to_keep:]
        graphs, key = cache.storage.graphs, (tokens.shape[1], cache.end)
        if key not in graphs:
            graphs[key] = self._captured(inputs, cache)
        graph, logits = graphs[key]
        graph.replay()
        return logits[:, -logits_to_keep:].clone()  # the next replay overwrites it

    def _captured(self, inputs: _Inputs, cache: StaticCache) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """The forward as a graph. Run before it is captured, so that what is allocated once is there."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._forward(inputs.tokens, inputs.position_ids, cache.end, cache)
        torch.cuda.current_stream().wait_stream(aside)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):  # type: ignore[arg-type]
            logits = self._forward(inputs.tokens, inputs.position_ids, cache.end, cache)
        return graph, logits
