"""Detects code that makes the host wait for the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "is_nonzero", "equal")
"""operations whose result, or its shape, the host must know"""


class _Refusing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool
            for part in args[1:]
            if isinstance(part, list | tuple)
            for index in part
        )
        if name in _WAITS or by_mask:
            raise RuntimeError(f"The host waits for the device in {name}.")
        return func(*args, **(kwargs or {}))


@contextmanager
def no_waiting(device: torch.device) -> Iterator[None]:
    """Raise ``RuntimeError`` if code in the block makes the host wait for the device.

    On CUDA torch's own check detects it, elsewhere the names of the operations that would wait on CUDA.
    """
    if device.type == "cuda":
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
    else:
        with _Refusing():
            yield
