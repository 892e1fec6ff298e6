"""Whether models fit into memory, checked before anything big is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from fsd_core.errors import InsufficientMemory
from fsd_core.models.json_files import read_object
from fsd_core.models.weight_files import loaded_bytes, weight_files

# Margin for caches, activations and the libraries: a tenth of the weights and half a gigabyte.
_MARGIN, _OVERHEAD = 1.1, 5e8


def weight_bytes(folder: Path, dtype: str = "auto") -> int:
    """Return the bytes of a model's weights once loaded as ``dtype``, from the headers of its safetensors files.

    Raises ``ModelUnavailable`` for a file of another format.
    """
    return sum(loaded_bytes(file, dtype) for file in weight_files(folder))


def free_bytes(device: torch.device) -> int:
    """Return the bytes of free memory on a device."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


def total_bytes(device: torch.device) -> int:
    """Return the bytes of memory of a device: of all CUDA devices together if none is named by its number, because a
    target is spread over them."""
    if device.type != "cuda":
        return psutil.virtual_memory().total
    devices = range(torch.cuda.device_count()) if device.index is None else (device.index,)
    return sum(torch.cuda.get_device_properties(index).total_memory for index in devices)


def copies(model_type: object, device: torch.device) -> int:
    """Return how often the weights are in memory: a Llama's on the CPU once more, in another order (``ops.linear``)."""
    return 2 if model_type == "llama" and device.type == "cpu" else 1


def _resident_bytes(folder: Path, device: torch.device, dtype: str) -> int:
    return copies(read_object(folder / "config.json").get("model_type"), device) * weight_bytes(folder, dtype)


def check_memory(
    name: str, target: Path, drafts: Sequence[Path], device: torch.device, dtype: str
) -> dict[int, int] | None:
    """Raise ``InsufficientMemory``, with the numbers, if a pair's target and all its drafts cannot fit.

    Returns ``None`` if one device holds them. A target that is too large for the first of several CUDA devices is
    spread, unless a device was requested by its number. Then this returns the bytes of it that each device may take,
    after the drafts, which are on the first.
    """
    resident = [_resident_bytes(folder, device, dtype) for folder in (target, *drafts)]
    sizes = [_MARGIN * bytes_ + _OVERHEAD / 2 for bytes_ in (resident[0], sum(resident[1:]))]
    free, needed = [free_bytes(device)], sum(sizes)
    if needed > free[0] and device.type == "cuda" and device.index is None:
        free = [free_bytes(torch.device("cuda", index)) for index in range(torch.cuda.device_count())]
        needed += _OVERHEAD * (len(free) - 1)
    if needed > sum(free):
        advice = "choose a smaller pair" + ("" if dtype in ("bfloat16", "float16") else ", or the dtype bfloat16")
        location = device if len(free) == 1 else f"{len(free)} CUDA devices together"
        raise InsufficientMemory(
            f"The pair '{name}' needs about {needed / 1e9:.1f} GB on {location}, with {sum(free) / 1e9:.1f} GB free: "
            f"{advice}."
        )
    if len(free) == 1:
        return None
    return {
        index: int((bytes_ - _OVERHEAD - (sizes[1] if index == 0 else 0)) / _MARGIN)
        for index, bytes_ in enumerate(free)
    }
