"""Forwards at fixed addresses and of fixed shapes, as CUDA graphs need them.

Launching a kernel takes the host some microseconds, and a forward of one token launches hundreds of them. For a small
model that takes longer than the GPU's work. A CUDA graph launches them all at once, but nothing in it may move or
change its shape. So the cache's buffers keep their addresses from text to text, positions are read from the device, and
attention covers a *bucket* of positions, a multiple of ``BUCKET``, with a mask over the invalid ones. One graph is
captured for each shape of a forward that comes again. Without CUDA the same code runs without graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.kv_cache import KVCache
from fsd_core.ops.transfer import to_device
from fsd_core.ops.tree_attention import TreeAttention

BUCKET = 256  # positions
_MOST_TOKENS = 64  # of a text in a captured forward; a prompt's forward is not captured
_MOST_IN_ALL = 512  # of all texts; a forward of more takes the GPU longer than the host

FixedForward = Callable[[Tensor, Tensor, int, Tensor | None, KVCache, AuxHiddenStates | None], Tensor]
"""(tokens and position ids, int64 [R,S]; end; mask of a tree, bool [1,1,S,end]; cache; hidden states to keep) → logits
[R,S,V]. It must not read anything else that changes."""


class _Shape(NamedTuple):
    """What a forward is captured for."""

    tokens: int
    """of each text"""
    end: int
    """number of positions that attention covers"""
    is_tree: bool
    aux_layers: tuple[int, ...] | None
    """layers whose hidden states it returns"""


class _Fixed:
    """A forward's buffers for S tokens of R texts, and its graph once it is captured.

    tokens, position_ids, slots (where the cache stores the tokens): int64 [R,S]. mask: bool [1,1,S,end] of a tree. In
    all but trees, tokens are stored at their positions and the mask follows from these.
    """

    def __init__(self, shape: _Shape, rows: int, device: torch.device) -> None:
        self._offsets = torch.arange(shape.tokens, device=device)[None]
        self.tokens = self._offsets.new_zeros(rows, shape.tokens)
        self.slots = self._offsets.repeat(rows, 1)
        self.position_ids = self.slots.clone() if shape.is_tree else self.slots
        mask_size = (1, 1, shape.tokens, shape.end)
        self.mask = torch.zeros(mask_size, dtype=torch.bool, device=device) if shape.is_tree else None
        self.end = shape.end
        self.aux = None if shape.aux_layers is None else AuxHiddenStates(shape.aux_layers)
        self.captured: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
        """graph, and the buffer of its logits"""

    def put(self, tokens: Tensor, lengths: Sequence[int], tree_attention: TreeAttention | None) -> None:
        """Take the tokens of the first B texts, int64 [B,S], which come after ``lengths`` others. What other texts had
        here before stays, and nobody reads what is computed of it."""
        rows, count = tokens.shape
        self.tokens[:rows] = tokens
        if min(lengths) == max(lengths):
            torch.add(self._offsets.expand(rows, -1), lengths[0], out=self.slots[:rows])
        else:
            self.slots[:rows] = to_device(torch.tensor(lengths), tokens.device)[:, None] + self._offsets
        if tree_attention is not None and self.mask is not None:
            self.position_ids.copy_(tree_attention.position_ids(count))
            mask = tree_attention.mask(count)
            self.mask.zero_()[..., : mask.shape[-1]] = mask


@dataclass
class Storage:
    """Memory for the caches of R texts that outlives them, so that graphs captured for some serve the next."""

    capacity: int
    rows: int = 1
    buffers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    forwards: dict[_Shape, _Fixed] = field(default_factory=dict)
    pool: Any = None
    """where the graphs have their memory: a pool ends with the last of its graphs, which end with the storage"""


class StaticCache(KVCache):
    """The cache of up to R texts in a storage, which returns to ``free`` when the cache is released.

    The caller that requested the cache releases it. Otherwise no later text gets the storage, and its memory is freed.
    """

    def __init__(self, layers: int, storage: Storage, free: list[Storage]) -> None:
        super().__init__(layers, storage.capacity, storage.rows)
        self.storage, self._buffers = storage, storage.buffers
        self._free, self._released = free, False

    def release(self) -> None:
        super().release()
        if not self._released:
            self._released = True
            self._free.append(self.storage)

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these, which move to the front of the storage."""
        for pair in self._buffers.values():
            for buffer in pair:
                buffer[: len(rows)] = buffer[rows]
        self.lengths = [self.lengths[row] for row in rows.tolist()]

    def reserve_fixed(
        self, tokens: Tensor, tree_attention: TreeAttention | None, aux_layers: tuple[int, ...] | None
    ) -> tuple[_Fixed, bool]:
        """Reserve positions for ``tokens`` (int64 [B,S]) like ``reserve``, and copy both to the buffers of a forward of
        this shape. Return these, and whether a forward had the shape before."""
        count = tokens.shape[1]
        end = min(self.capacity, -(-(self.length + count) // BUCKET) * BUCKET)
        shape = _Shape(count, end, tree_attention is not None, aux_layers)
        known = shape in self.storage.forwards
        if not known:
            self.storage.forwards[shape] = _Fixed(shape, self.storage.rows, tokens.device)
        fixed = self.storage.forwards[shape]
        fixed.put(tokens, self.lengths, tree_attention)
        self._cache_positions, self._end = fixed.slots, end
        return fixed, known


class StaticForward:
    """A model's forward through static caches, captured where possible."""

    def __init__(self, forward: FixedForward, layers: int) -> None:
        self._forward, self._layers = forward, layers
        self._free: list[Storage] = []

    def new_cache(self, capacity: int, rows: int = 1) -> StaticCache:
        """Return an empty cache for at least ``capacity`` positions of each of ``rows`` texts."""
        required = -(-capacity // BUCKET) * BUCKET
        fitting = [storage for storage in self._free if storage.rows == rows and storage.capacity >= required]
        if fitting:
            storage = min(fitting, key=lambda storage: storage.capacity)
            self._free.remove(storage)
        else:
            self._free[:] = [storage for storage in self._free if storage.rows == 1]  # those of batches are large
            storage = Storage(required, rows)
        return StaticCache(self._layers, storage, self._free)

    @staticmethod
    def takes(cache: KVCache, count: int) -> TypeGuard[StaticCache]:
        """Whether ``count`` more tokens of each text can run here: a few, after the prompts, in a static cache."""
        if not isinstance(cache, StaticCache) or cache.length == 0:
            return False
        return count <= _MOST_TOKENS and count * cache.storage.rows <= _MOST_IN_ALL

    def __call__(
        self,
        tokens: Tensor,
        cache: StaticCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Append ``tokens`` (int64 [B,S]) to the cache. Return float32 logits of the last ``logits_to_keep``,
        [B,logits_to_keep,V]. The rest as :meth:`LanguageModel.forward`."""
        layers = None if aux_hidden_states is None else aux_hidden_states.layers
        fixed, known = cache.reserve_fixed(tokens, tree_attention, layers)
        if tokens.device.type != "cuda" or not known:
            logits = self._run(fixed, cache)
        else:
            graph, logits = fixed.captured = fixed.captured or self._capture(fixed, cache)
            graph.replay()
        # Copies, since the next replay overwrites both.
        if aux_hidden_states is not None and fixed.aux is not None:
            aux_hidden_states.keep_joined([fixed.aux])
        return logits[: len(tokens), -logits_to_keep:].to(torch.float32, copy=True)

    def _run(self, fixed: _Fixed, cache: StaticCache) -> Tensor:
        return self._forward(fixed.tokens, fixed.position_ids, fixed.end, fixed.mask, cache, fixed.aux)

    def _capture(self, fixed: _Fixed, cache: StaticCache) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Capture the forward as a graph, after one run that makes its one-time allocations."""
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            self._run(fixed, cache)
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=cache.storage.pool):
            logits = self._run(fixed, cache)
        cache.storage.pool = graph.pool()
        return graph, logits
