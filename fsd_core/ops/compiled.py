"""Functions of a few small operations, compiled into one kernel where torch can do that."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

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
