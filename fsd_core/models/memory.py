"""Whether models fit, told before anything big is loaded."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from fsd_core.errors import ModelUnavailable

_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}
_ASKED = {"float32": 4, "bfloat16": 2, "float16": 2}
# Room for caches, activations and what the libraries keep: a tenth of the weights and half a gigabyte.
_MARGIN, _ROOM = 1.1, 5e8


def weight_bytes(folder: Path, dtype: str = "auto") -> int:
    """Bytes that a model's weights take once loaded as ``dtype``, read from the headers of its safetensors files.

    Raises ``ModelUnavailable`` for a file that has no such header.
    """
    total = 0
    for file in folder.glob("*.safetensors"):
        for tensor in _header(file).values():
            stored = _BYTES.get(tensor["dtype"], 1)
            total += math.prod(tensor["shape"]) * (_ASKED.get(dtype, stored) if stored > 1 else 1)
    return total


def _header(file: Path) -> dict[str, dict]:
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, 100_000_000)))
        header.pop("__metadata__", None)
        return header
    except (struct.error, ValueError, AttributeError) as error:
        raise ModelUnavailable(
            f"The model in {file.parent} cannot be loaded ({file.name} is no safetensors file): restore the "
            "folder from where it came."
        ) from error


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had on a device."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


def check_memory(name: str, folders: Sequence[Path], device: torch.device, dtype: str) -> None:
    """Raises ``ModelUnavailable``, with the numbers, if models cannot fit on a device."""
    needed = _MARGIN * sum(weight_bytes(folder, dtype) for folder in folders) + _ROOM
    free = free_bytes(device)
    if needed > free:
        advice = "choose a smaller pair" + ("" if dtype in ("bfloat16", "float16") else ", or the dtype bfloat16")
        raise ModelUnavailable(
            f"The pair '{name}' needs about {needed / 1e9:.1f} GB on {device}, which has {free / 1e9:.1f} GB free: "
            f"{advice}."
        )
