"""Transfers between host and device that make the host wait no more than necessary, and a clock that waits."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor


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
