"""The memory that pairs have to fit into: that of the device on which the worker computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from fsd_core.models.pair_check import CPU, DeviceMemory

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def device_memory(repository: Repository | None) -> DeviceMemory:
    """Return the memory of the worker's device, as it last reported it; this machine's if it never did, or cannot
    tell."""
    worker = repository.worker() if repository else None
    if worker is None or worker.memory is None:
        return DeviceMemory(CPU, psutil.virtual_memory().total)
    return DeviceMemory(worker.device, worker.memory)
