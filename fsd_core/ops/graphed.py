"""Functions of many small operations, which a GPU is given all at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

log = logging.getLogger(__name__)
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
