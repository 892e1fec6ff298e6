"""The interface of a model's forward, also as a CUDA graph.

Forwards at fixed addresses and of fixed shapes, as CUDA graphs need them.

Launching a kernel takes the host some microseconds, and a forward of one token launches hundreds of them. For a small
model that takes longer than the GPU's work. A CUDA graph launches them all at once, but nothing in it may move or
change its shape. So the cache's buffers keep their addresses from text to text, positions are read from the device, and
attention covers a *bucket* of positions, a multiple of ``BUCKET``, with a mask over the invalid ones. One graph is
captured for each shape of a forward that comes again. Without CUDA the same code runs without graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from fsd_core.models.caches import KVCache, causal_mask
from fsd_core.ops.kernels import TreeAttention, to_device


@dataclass
class AuxHiddenStates:
    """Hidden states of a model with L layers, for a drafter that reads them.

    ``layers``: their indices; i is the input of layer i, and L the input of the LM head, after the final norm.
    """

    layers: tuple[int, ...]
    _states: list[Tensor] = field(default_factory=list)

    @property
    def states(self) -> Tensor:
        """States of the tokens fed last, concatenated in the order of ``layers``: [B,S,len(layers)·H]."""
        return torch.cat(self._states, -1)

    def keep(self, states: Sequence[Tensor]) -> None:
        """Store one tensor [B,S,H] for each of ``layers``, in place of the earlier ones."""
        self._states = list(states)

    def keep_joined(self, parts: Sequence[AuxHiddenStates]) -> None:
        """Store the states of consecutive tokens, which were fed in several parts."""
        self._states = [torch.cat(states, 1) for states in zip(*(part._states for part in parts), strict=True)]


def cache_name(module: nn.Module) -> str:
    """Return the argument of a transformers module that takes the cache. All are ``cache`` from 5.24 on; before, models
    of recurrent layers alone had another name than the rest."""
    taken = signature(module.forward).parameters
    named = (name for name in ("cache", "cache_params") if name in taken)
    return next(named, "past_key_values")


class Forward(ABC):
    """A model that appends tokens to a cache and returns logits."""

    one_text = False
    """whether it reads one text at a time, since its state is of one"""

    def new_cache(self, layers: int, capacity: int, rows: int) -> KVCache:
        """Return an empty cache for ``capacity`` positions of each of ``rows`` texts.

        Raises ``IncompatibleModels`` for several rows of a model that reads one text at a time.
        """
        return KVCache(layers, capacity, rows)

    @abstractmethod
    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Append ``tokens`` (int64 [B,S]) to the cache. Return logits of the last ``logits_to_keep``,
        [B,logits_to_keep,V].

        ``tree_attention``: of the last tokens then in the cache, if they are a tree (B = 1). ``aux_hidden_states``
        receives the hidden states of its layers. Raises ``IncompatibleModels`` for what a model of this kind cannot do.
        """


BUCKET = 256  # positions
_MOST_TOKENS = 64  # of a text in a captured forward; a prompt's forward is not captured
_MOST_IN_ALL = 512  # of all texts; a forward of more takes the GPU longer than the host


class _Shape(NamedTuple):
    """What a forward is captured for."""

    tokens: int
    """of each text"""
    end: int
    """number of positions that attention covers"""
    is_tree: bool
    aux_layers: tuple[int, ...] | None
    """layers whose hidden states it returns"""


class FixedInputs:
    """A forward's buffers for S tokens of R texts, and its graph once it is captured.

    tokens, position_ids, slots (where the cache stores the tokens): int64 [R,S]. mask: bool [1,1,S,end] of a tree. In
    all but trees, tokens are stored at their positions and the mask follows from these. states: [R,S,H] for a head,
    which reads a state with each token. aux: receives hidden states, if the caller wants any.
    """

    def __init__(self, shape: _Shape, rows: int, device: torch.device, states: Tensor | None) -> None:
        self._offsets = torch.arange(shape.tokens, device=device)[None]
        self.tokens = self._offsets.new_zeros(rows, shape.tokens)
        self.slots = self._offsets.repeat(rows, 1)
        self.position_ids = self.slots.clone() if shape.is_tree else self.slots
        mask_size = (1, 1, shape.tokens, shape.end)
        self.mask = torch.zeros(mask_size, dtype=torch.bool, device=device) if shape.is_tree else None
        self.states = None if states is None else states.new_zeros(rows, *states.shape[1:])
        self.end = shape.end
        self.aux = None if shape.aux_layers is None else AuxHiddenStates(shape.aux_layers)
        self.captured: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
        """graph, and the buffer of its result"""

    @property
    def visible(self) -> Tensor:
        """Which places each token attends to, bool [R or 1,1,S,end]."""
        return causal_mask(self.position_ids, self.end) if self.mask is None else self.mask

    def put(
        self, tokens: Tensor, lengths: Sequence[int], tree_attention: TreeAttention | None, states: Tensor | None
    ) -> None:
        """Take the tokens of the first B texts, int64 [B,S], which come after ``lengths`` others, and their states,
        [B,S,H]. What other texts had here before stays, and nobody reads what is computed of it."""
        rows, count = tokens.shape
        self.tokens[:rows] = tokens
        if min(lengths) == max(lengths):
            torch.add(self._offsets.expand(rows, -1), lengths[0], out=self.slots[:rows])
        else:
            self.slots[:rows] = to_device(torch.tensor(lengths), tokens.device)[:, None] + self._offsets
        if states is not None and self.states is not None:
            self.states[:rows] = states
        if tree_attention is not None and self.mask is not None:
            self.position_ids.copy_(tree_attention.position_ids(count))
            mask = tree_attention.mask(count)
            self.mask.zero_()[..., : mask.shape[-1]] = mask


FixedForward = Callable[[FixedInputs, KVCache], Tensor]
"""(inputs for R texts, cache with places for them) → [R,S,·]. It must not read anything else that changes."""


@dataclass
class Storage:
    """Memory for the caches of R texts that outlives them, so that graphs captured for some serve the next."""

    capacity: int
    rows: int = 1
    buffers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    forwards: dict[_Shape, FixedInputs] = field(default_factory=dict)
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
        self, tokens: Tensor, tree_attention: TreeAttention | None, aux: AuxHiddenStates | None, states: Tensor | None
    ) -> tuple[FixedInputs, bool]:
        """Reserve positions for ``tokens`` (int64 [B,S]) like ``reserve``, and copy the inputs to the buffers of a
        forward of this shape. Return these, and whether a forward had the shape before."""
        count = tokens.shape[1]
        end = min(self.capacity, -(-(self.length + count) // BUCKET) * BUCKET)
        shape = _Shape(count, end, tree_attention is not None, None if aux is None else aux.layers)
        known = shape in self.storage.forwards
        if not known:
            self.storage.forwards[shape] = FixedInputs(shape, self.storage.rows, tokens.device, states)
        inputs = self.storage.forwards[shape]
        inputs.put(tokens, self.lengths, tree_attention, states)
        self._cache_positions, self._end = inputs.slots, end
        return inputs, known


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
        tree_attention: TreeAttention | None,
        aux_hidden_states: AuxHiddenStates | None = None,
        states: Tensor | None = None,
    ) -> Tensor:
        """Append ``tokens`` (int64 [B,S]) to the cache. Return the forward's result, [B,S,·], which the next call
        overwrites. states: [B,S,H], if the forward takes any. The rest as :meth:`LanguageModel.forward`."""
        inputs, known = cache.reserve_fixed(tokens, tree_attention, aux_hidden_states, states)
        if tokens.device.type != "cuda" or not known:
            result = self._forward(inputs, cache)
        else:
            graph, result = inputs.captured = inputs.captured or self._capture(inputs, cache)
            graph.replay()
        if aux_hidden_states is not None and inputs.aux is not None:
            aux_hidden_states.keep_joined([inputs.aux])  # copies them
        cache.advance(tokens.shape[1])
        return result[: len(tokens)]

    def _capture(self, inputs: FixedInputs, cache: StaticCache) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Capture the forward as a graph, after one run that makes its one-time allocations."""
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            self._forward(inputs, cache)
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=cache.storage.pool):
            result = self._forward(inputs, cache)
        cache.storage.pool = graph.pool()
        return graph, result
