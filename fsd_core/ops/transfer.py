"""Between host and device, without making the host wait more than it must."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def to_host(values: Tensor) -> list[Any]:
    """A tensor as nested lists: the one place of the loop where the host waits for the device."""
    if values.device.type != "cuda":
        return values.tolist()
    landed = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    landed.copy_(values, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    arrived.synchronize()
    return landed.tolist()


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device, which need not have it yet when this returns."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)
