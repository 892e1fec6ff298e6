"""Why a model cannot be loaded, told before it is tried or after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers

from fsd_core.errors import InsufficientMemory
from fsd_core.models.sources import loaded_bytes, read_object, weight_files

_LONGEST_QUOTE = 200


def load_failure(folder: Path, what: str, error: Exception, expected: str) -> str:
    """Return a sentence on ``what`` could not be loaded from a folder, and one on what to do.

    ``expected`` says what a folder has to hold, for what is not recognised.
    """
    found = _found(folder, read_object(folder / "config.json"), error)
    if found is None:
        found = (
            f"({type(error).__name__}: {quote(str(error))}): expected {expected}",
            "Restore the folder from where it came",
        )
    reason, advice = found
    return f"The {what} in {folder} cannot be loaded {reason}. {advice}."


def _found(folder: Path, config: dict[str, Any], error: Exception) -> tuple[str, str] | None:
    """Return the cause and a remedy, or ``None`` if they are unknown."""
    message, kind = str(error), str(config.get("model_type"))[:_LONGEST_QUOTE]
    if quantisation := config.get("quantization_config"):
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else None
        return (
            f"because it is quantised ({method or 'by an unnamed method'}), and transformers says: {quote(message)}",
            "Install the package that it names, or choose the weights without quantisation",
        )
    if "trust_remote_code" in message:
        return "because it needs code of its own, which is never run here", "Choose a model that transformers knows"
    if "does not recognize this architecture" in message:
        return (
            f"because transformers {transformers.__version__} does not know models of the type {kind!r}",
            "Update transformers (pip install --upgrade transformers), or choose another model",
        )
    if "Unrecognized configuration class" in message:
        return (
            f"because transformers has no language model of the type {kind!r} that continues a text",
            "Choose a causal language model; of a model of several media, that is its text model",
        )
    if isinstance(error, ImportError) or any(name in message for name in ("sentencepiece", "tiktoken", "pip install")):
        return f"because a package is missing: {quote(message)}", "Install it"
    return None


def quote(message: str) -> str:
    """Return the beginning of an error's message, in quotes and on one line."""
    return repr(" ".join(message.split())[:_LONGEST_QUOTE])


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
