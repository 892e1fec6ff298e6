"""Kernels: many small operations as few calls of a device, and attention over trees.

Grouped linear attention with a causal convolution: what replaces softmax attention in a Linearized-LLM.

Source: You et al., ICML 2024, arXiv 2406.07368. With q̂ = q/‖q‖, k̂ = k/‖k‖ after the rotary positions, groups of g
positions, G(i) = ⌊i/g⌋, a learned scale a of a layer and a learned kernel w of K taps for each head:

    out_i = Σ_{j ≤ i, G(j) = G(i)} max(q̂_i·k̂_j, 0)² v_j  +  a · Σ_{G(j) < G(i)} (q̂_i·k̂_j) v_j  +  Σ_{t < K} w_t v_{i−t}

The second sum is a · q̂_iᵀ S with the state S = Σ k̂ vᵀ of finished groups, whose size does not depend on the text.
On a branch of a tree the same holds of the tokens above a token: the group follows the depth, and a group that ends
within the tree is finished for what comes after it on that branch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


def to_host(values: Tensor) -> list[Any]:
    """Return a tensor as nested lists. Only here does the loop make the host wait for the device."""
    if values.device.type != "cuda":
        return values.tolist()
    pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    pinned.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()
    copied.synchronize()
    return pinned.tolist()


def finished_at(device: torch.device | str) -> float:
    """Return the time in seconds, once a device has finished its queued work. For measurements, not for the loop."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return a host tensor on a device. The copy may finish after this returns."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


log = logging.getLogger(__name__)


class Compiled:
    """A pure function of tensors.

    On CUDA torch's compiler makes one kernel of it. That takes it some seconds for each model, of which its cache on
    disk spares the next process most. Elsewhere, and on a machine that lacks what the compiler needs (Triton, a C
    compiler), the function runs as it is written. Either way the result is the same up to rounding.
    """

    def __init__(self, function: Callable[..., Any], device: torch.device) -> None:
        self._function = self._run = function
        if device.type == "cuda":
            self._run = torch.compile(function, dynamic=True, options={"compile_threads": 1})

    def __call__(self, *arguments: Any) -> Any:
        if self._run is self._function:
            return self._function(*arguments)
        try:
            return self._run(*arguments)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # which the errors of torch.compile are
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            log.warning("'%s' runs uncompiled, which costs a GPU some time: %s", self._function.__name__, reason)
            self._run = self._function
            return self._function(*arguments)


_MOST_GRAPHS = 32
"""shapes of arguments; each keeps its arguments and what is computed on the way on the device"""
_MOST_NUMBERS = 2**25
"""in all arguments; computing with more takes the GPU longer than the host takes to launch it"""


class _Captured(NamedTuple):
    graph: Any
    arguments: list[Tensor]
    results: tuple[Tensor | None, ...]


class Graphed:
    """A pure function of tensors that never makes the host wait.

    Launching a kernel takes the host some microseconds, and judging a draft launches a hundred. On CUDA, they are
    captured as a graph once arguments of the same shapes come again, and launched together from then on: the same
    kernels, so the same result. Elsewhere, for larger tensors, and if it makes the host wait after all, as a rule of a
    package may, the function runs as it is written.

    ``name``: what the log calls it. Arguments are tensors, and ``None`` or numbers, for each of which there is another
    graph. It may be called from several threads. What it captured is freed with it, so the function must not refer to
    whoever holds it.
    """

    def __init__(self, name: str, function: Callable[..., tuple[Tensor | None, ...]]) -> None:
        self._name, self._function = name, function
        self._captured: dict[tuple, _Captured | None] = {}
        self._lock = threading.Lock()
        self._may_capture = True

    def __call__(self, *arguments: Tensor | int | None) -> tuple[Any, ...]:
        """Return what the function returns."""
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        device, numbers = tensors[0].device, sum(tensor.numel() for tensor in tensors)
        if device.type != "cuda" or numbers > _MOST_NUMBERS or not self._may_capture:
            return self._function(*arguments)
        key = tuple((a.shape, a.dtype) if isinstance(a, Tensor) else a for a in arguments)
        with self._lock:
            if key not in self._captured:
                if len(self._captured) < _MOST_GRAPHS:
                    self._captured[key] = None
                return self._function(*arguments)
            captured = self._captured[key] = self._captured[key] or self._capture(arguments)
            if captured is None:
                return self._function(*arguments)
            for own, given in zip(captured.arguments, tensors, strict=True):
                own.copy_(given)
            captured.graph.replay()
            return tuple(None if result is None else result.clone() for result in captured.results)

    def _capture(self, arguments: tuple[Tensor | int | None, ...]) -> _Captured | None:
        """Return the graph for arguments of these shapes, ``None`` if the function cannot be captured."""
        own = [a.clone(memory_format=torch.contiguous_format) if isinstance(a, Tensor) else a for a in arguments]
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                # Not torch.cuda.graph, which waits for the device and empties the allocator's cache.
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    results = self._function(*own)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            log.warning("The %s is launched kernel by kernel: %s", self._name, reason)
            self._may_capture = False
            return None
        torch.cuda.current_stream().wait_stream(side)
        return _Captured(graph, [a for a in own if isinstance(a, Tensor)], results)


Linear = Callable[[Tensor], Tensor]
"""[..., in] → [..., out]"""

_LEAST = 2**18
"""Least size of a float32 weight for which the copy pays off. Its call starts some 12 µs later than ``F.linear``'s.
Measured on one thread with 1 to 24 tokens: 1.7 to 4 times slower at 160 x 160, equal at 864 x 160, faster from 512 x
512."""


def prepack_linear(weight: Tensor) -> Linear:
    """Return ``x`` ↦ ``x · weightᵀ`` for a fixed weight [out, in].

    On the CPU the weight is copied once into the order in which oneDNN reads it. ``F.linear`` would reorder it at every
    call. A few tokens then cost little more than reading the copy. On other devices, for small weights, and for dtypes
    that oneDNN does not multiply here, the result is ``F.linear`` itself.
    """
    if not _reorders(weight):
        return partial(F.linear, weight=weight)
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)

    def product(x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, ordered, None, "none", [], "")

    return product


def _reorders(weight: Tensor) -> bool:
    """Whether :func:`prepack_linear` copies a weight, which takes its memory once more."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 and weight.numel() >= _LEAST


@dataclass(frozen=True, slots=True)
class TreeAttention:
    """S tokens after a linear ``prefix`` of a text that is alone in its batch. The last of them are fed now.

    depths: int64 [S], positions of the tokens after the prefix, from 0. attends_to: bool [S,S], the tokens that each
    token attends to, itself included.
    """

    prefix: int
    depths: Tensor
    attends_to: Tensor

    def position_ids(self, count: int) -> Tensor:
        """Return the positions of the last ``count`` tokens, int64 [1,count]."""
        return self.prefix + self.depths[None, -count:]

    def mask(self, count: int, window: int | None = None) -> Tensor:
        """Return the tokens of prefix and tree that the last ``count`` tokens attend to, among the last ``window``
        positions if given; bool [1,1,count,prefix + S]."""
        attended = F.pad(self.attends_to[-count:], (self.prefix, 0), value=True)
        if window is not None:
            prefix_positions = torch.arange(self.prefix, device=self.depths.device)
            keys = torch.cat([prefix_positions, self.prefix + self.depths])
            attended = attended & (keys > self.position_ids(count)[0][:, None] - window)
        return attended[None, None]


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """A path down a tree: the node of each level and its index among those fed to the drafter, int64 [D] each."""

    nodes: Tensor
    fed: Tensor


class TreeBuilder:
    """A tree that is fed level by level after a linear ``prefix``."""

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        self._attention: TreeAttention | None = None

    def add(self, parents: Tensor) -> TreeAttention:
        """Add n nodes and return the attention. parents: int64 [n], in feeding order, −1 for the prefix's last
        token."""
        diagonal = torch.eye(len(parents), dtype=torch.bool, device=parents.device)
        if self._attention is None:
            self._attention = TreeAttention(self.prefix, torch.zeros_like(parents), diagonal)
            return self._attention
        depths, attends_to = self._attention.depths, self._attention.attends_to
        # The extra last row stands for no parent: it is one above the first level, and attends to nothing.
        depths = torch.cat([depths, F.pad(depths, (0, 1), value=-1)[parents] + 1])
        rows = torch.cat([F.pad(attends_to, (0, 0, 0, 1))[parents], diagonal], 1)
        self._attention = TreeAttention(self.prefix, depths, torch.cat([F.pad(attends_to, (0, len(parents))), rows]))
        return self._attention


def ancestors(parents: Tensor, depth: int) -> Tensor:
    """Return each node's ancestors, itself included, in a tree of at most ``depth`` levels. parents: int64 [N], −1 for
    none → bool [N,N]"""
    count = len(parents)
    attends_to = torch.eye(count, dtype=torch.bool, device=parents.device)
    for _ in range(depth - 1):
        above = F.pad(attends_to, (0, 0, 0, 1))  # the extra last row stands for no parent: it attends to nothing
        attends_to = attends_to | above[parents]
    return attends_to


def tree_layout(straight: int, parents: Tensor, levels: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Return depths and attention of ``straight`` tokens of the text and of a tree on the last of them, as
    :class:`TreeAttention` takes them.

    parents, levels: int64 [N], see :func:`ancestors`; levels count from 1. → int64 [S], bool [S,S]; S = straight + N.
    """
    device = parents.device
    trunk = torch.arange(straight, device=device)
    depths = torch.cat([trunk, straight - 1 + levels])
    attends_to = F.pad(ancestors(parents, depth), (straight, 0), value=True)
    first = F.pad(trunk[None] <= trunk[:, None], (0, len(parents)))
    return depths, torch.cat([first, attends_to])


class Forest:
    """Nodes behind ``prefix`` positions, in feeding order. Parents come before their children."""

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        self._depths: list[int] = []
        self._attends_to = torch.zeros(0, 0, dtype=torch.bool)

    @property
    def is_chain(self) -> bool:
        """Whether every node follows the one before it, so that no tree attention is needed."""
        return self._depths == list(range(len(self._depths)))

    def add(self, parents: Sequence[int], device: torch.device | str = "cpu") -> TreeAttention:
        """Add nodes and return the attention. ``parents``: in feeding order, −1 for the prefix's last token. A parent
        may be one of the nodes added by the same call."""
        start, count = len(self._depths), len(parents)
        self._attends_to = F.pad(self._attends_to, (0, count, 0, count))
        for node, parent in enumerate(parents, start):
            if parent >= 0:
                self._attends_to[node] = self._attends_to[parent]
            self._attends_to[node, node] = True
            self._depths.append(self._depths[parent] + 1 if parent >= 0 else 0)
        return TreeAttention(self.prefix, self._tensor(self._depths).to(device), self._attends_to.to(device))

    def keep(self, nodes: Sequence[int], shared: int) -> None:
        """Drop all nodes but these, ascending; their parents must be among them. The first ``shared`` of them, on the
        path to every other one, become part of the prefix."""
        rows = self._tensor(nodes[shared:])
        self._attends_to = self._attends_to[rows][:, rows]
        self._depths = [self._depths[node] - shared for node in nodes[shared:]]
        self.prefix += shared

    @staticmethod
    def _tensor(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class Sight:
    """What S queries see of L keys, none of which is in a state.

    within: bool [S,L], keys of the query's own group, up to itself. before: bool [S,L], keys of groups before it.
    distances: int64 [S,L], positions between a key and the query; −1 for a key that is not seen.
    """

    within: Tensor
    before: Tensor
    distances: Tensor

    @staticmethod
    def of(visible: Tensor, queries: Tensor, keys: Tensor, group: int) -> Sight:
        """Return what is seen of keys at positions ``keys`` (int64 [L]) from ``queries`` (int64 [S]).

        visible: bool [S,L], the keys that come before a query on its own branch, itself included.
        """
        same = queries[:, None] // group == keys // group
        distances = (queries[:, None] - keys).masked_fill(~visible, -1)
        return Sight(visible & same, visible & ~same, distances)

    @staticmethod
    def of_text(length: int, group: int, device: torch.device) -> Sight:
        """Return what each of a text's tokens sees of the text."""
        positions = torch.arange(length, device=device)
        return Sight.of(positions <= positions[:, None], positions, positions, group)


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, scale: Tensor, kernel: Tensor, state: Tensor | None
) -> Tensor:
    """Return the outputs of the formula above, [B,heads,S,d].

    queries: [B,heads,S,d]; keys, values: [B,key heads,L,d]; keys and queries have norm 1. scale: [], a. kernel:
    [heads,K], w. state: float32 [B,key heads,d,d], S of the groups before all keys, or ``None`` if there are none.
    """
    batch, heads, count, size = queries.shape
    key_heads, length = keys.shape[1:3]
    queries = queries.view(batch, key_heads, heads // key_heads, count, size)
    scores = queries @ keys[:, :, None].mT  # [B,key heads,heads per key head,S,L]
    taps = kernel.shape[1]
    near = (sight.distances >= 0) & (sight.distances < taps)
    convolved = torch.where(near, kernel[:, sight.distances.clamp(0, taps - 1)], 0.0)  # [heads,S,L]
    weights = torch.where(sight.within, scores.relu().square(), torch.where(sight.before, scale * scores, 0.0))
    weights = weights + convolved.view(key_heads, -1, count, length)
    mixed = weights.to(values.dtype) @ values[:, :, None]
    if state is not None:
        mixed = mixed + scale * (queries.to(state.dtype) @ state[:, :, None]).to(values.dtype)
    return mixed.reshape(batch, heads, count, size)


def folded(state: Tensor | None, keys: Tensor, values: Tensor) -> Tensor:
    """Return the state S with the sum of k̂ vᵀ over further tokens, float32 [B,key heads,d,d]. keys, values:
    [B,key heads,n,d]"""
    more = keys.float().mT @ values.float()
    return more if state is None else state + more


def normalised(heads: Tensor) -> Tensor:
    """Return vectors of norm 1, [..., d] → [..., d]"""
    return F.normalize(heads.float(), dim=-1).to(heads.dtype)
