"""Readings of a GPU through NVML: the energy that it has used, and its memory in use.

NVML is read through ``pynvml`` (the package ``nvidia-ml-py``, which is optional). Without it, without a GPU, or where
the GPU does not report a value, nothing is recorded.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import torch

from fsd_core.storage.records import GenerationRecord

logger = logging.getLogger(__name__)


class DeviceMeter(Protocol):
    """Reads counters of a device."""

    def energy(self) -> float | None:
        """Return the joules that the device has taken since some moment before; ``None`` if it does not report them."""
        ...

    def memory(self) -> int | None:
        """Return the bytes of its memory in use by all processes; ``None`` if it does not report them."""
        ...


class NvmlMeter:
    """A GPU, read through NVML."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """``nvml``: the module ``pynvml``, initialised. ``handle``: of the GPU."""
        self._nvml, self._handle = nvml, handle

    def energy(self) -> float | None:
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1000  # from millijoules
        except self._nvml.NVMLError:  # GPUs before Volta, and parts of a GPU, do not say
            return None

    def memory(self) -> int | None:
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        except self._nvml.NVMLError:
            return None


MeterOf = Callable[[str], DeviceMeter | None]
"""(torch's name of a device) -> what reads it; ``None`` if nothing does"""


def nvml_meter(device: str) -> NvmlMeter | None:
    """Return the meter of torch's device, such as ``cuda:1``; ``None`` without NVML or for another kind of device."""
    parsed = torch.device(device)
    if parsed.type != "cuda":
        return None
    try:
        uuid = str(torch.cuda.get_device_properties(parsed).uuid)  # CUDA_VISIBLE_DEVICES renumbers, this stays
    except (AttributeError, AssertionError, RuntimeError):
        return None
    return meter_of_gpu(uuid)


def meter_of_gpu(uuid: str) -> NvmlMeter | None:
    """Return the meter of the GPU with this UUID; ``None`` without ``pynvml``, a driver or that GPU."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        return NvmlMeter(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"))
    except nvml.NVMLError as error:
        logger.info("Neither energy nor memory of the GPU is recorded: %s", error)
        return None


def metered(records: Iterator[GenerationRecord], meter: DeviceMeter | None) -> Iterator[GenerationRecord]:
    """Yield the records, each with the joules that the device took until it came and the memory in use then.

    What the device takes between two questions for a record is nobody's. In a batch a record is charged with what all
    texts took since the one before it, so a run's sum is right and a prompt's share is not known.
    """
    if meter is None:
        yield from records
        return
    while True:
        before = meter.energy()
        record = next(records, None)
        if record is None:
            return
        after = meter.energy()
        energy = after - before if before is not None and after is not None and after >= before else None
        yield replace(record, energy=energy, device_memory=meter.memory())
