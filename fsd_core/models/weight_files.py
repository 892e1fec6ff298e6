"""Which files of a model's folder are its weights. Some folders hold a second copy under other names."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from fsd_core.errors import ModelUnavailable
from fsd_core.formatting import count
from fsd_core.models.json_files import read_object

_FORMS = ("model.safetensors", "model-*-of-*.safetensors")
"""names of weights, in the order in which transformers looks for them"""
_ADAPTER = "adapter_model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
INDEX = "model.safetensors.index.json"
_STORED_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LONGEST_HEADER = 20_000_000
"""bytes: some 150,000 tensors. The format allows five times as many, which take 2 GB to read"""


def weights_among(names: Iterable[str]) -> list[str]:
    """Return those of a folder's files that are loaded: the model's, and an adapter's beside it.

    Of files by other names, such as ``consolidated.safetensors`` of Mistral, all are taken if there are no such ones.
    """
    weights = sorted(name for name in names if name.endswith(".safetensors"))
    for form in _FORMS:
        if chosen := [name for name in weights if fnmatch(name, form)]:
            return [name for name in weights if name in chosen or name == _ADAPTER]
    return weights


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold its weights, by name."""
    return [folder / name for name in weights_among(file.name for file in folder.glob("*.safetensors"))]


def folder_fault(role: str, folder: Path) -> str | None:
    """Return why the model in a folder cannot be loaded, as what it lacks or has; ``None`` if nothing is found.

    Loading and the check before it both ask this. Weights are looked for as the loaders do: in one file, or else in
    those that an index names. ``role``: as in a pair.
    """
    is_adapter = "adapter" in role
    config, whole = ("adapter_config.json", _ADAPTER) if is_adapter else ("config.json", _FORMS[0])
    if not read_object(folder / config):
        return f"has a {config} that cannot be read: restore the folder."
    if not (folder / whole).is_file() and (fault := _without_one_file(role, folder, whole)):
        return fault
    try:
        for file in weight_files(folder):
            stored_numbers(file)
    except ModelUnavailable as error:
        return f"has broken weights. {error}"
    return None


def _without_one_file(role: str, folder: Path, whole: str) -> str | None:
    """See :func:`folder_fault`, for a folder without the file ``whole``."""
    if role in ("target", "draft") and (folder / INDEX).is_file():
        files = read_object(folder / INDEX).get("weight_map")
        named = {name for name in files.values() if isinstance(name, str)} if isinstance(files, dict) else set()
        missing = sorted(name for name in named if not (folder / Path(name).name).is_file())
        if missing:
            return f"lacks {count(len(missing), 'file')} of its weights, such as {missing[0]}: fetch it again."
        return None if named else f"has a {INDEX} that names no files: fetch it again."
    if role == "head" and (folder / "pytorch_model.bin").is_file():  # of which only tensors are read
        return None
    if others := weight_files(folder):
        shards = f", or shards and their {INDEX}" if role in ("target", "draft") else ""
        return f"has its weights as {others[0].name}, which no loader reads: expected {whole}{shards}. Fetch it again."
    if pickles := [file.name for form in _PICKLES for file in folder.glob(form)]:
        return f"has its weights as {pickles[0]}, a pickle, which may run any program: convert them to safetensors."
    return "has no weights: expected files of safetensors."


def stored_numbers(file: Path) -> Mapping[int, int]:
    """Return how many numbers a safetensors file has of each size in bytes; empty for a file without tensors.

    Raises ``ModelUnavailable`` for a file of another format, and for one that is shorter than its header says.
    """
    try:
        stat = file.stat()
        return _stored_numbers(file, stat.st_size, stat.st_mtime_ns)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise ModelUnavailable(
            f"{file.name} is no whole safetensors file: fetch it again, or convert the weights to safetensors."
        ) from None


def loaded_bytes(file: Path, dtype: str = "auto") -> int:
    """Return the bytes of a safetensors file's weights once loaded as ``dtype``. Raises as :func:`stored_numbers` does.

    Weights of one byte are quantised, and stay as they are.
    """
    return sum(
        numbers * (_DTYPE_BYTES.get(dtype, stored) if stored > 1 else 1)
        for stored, numbers in stored_numbers(file).items()
    )


@lru_cache(maxsize=512)
def _stored_numbers(file: Path, size: int, changed_ns: int) -> Mapping[int, int]:
    """See :func:`stored_numbers`. Lists of pairs ask at every poll, so a header is read again when the file's size in
    bytes or the time of its change is another. Raises any of the errors that a forged header causes."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= min(size - 8, LONGEST_HEADER):
            raise ValueError
        header = json.loads(stream.read(length))
    tensors = [about for name, about in header.items() if name != "__metadata__"]
    if max((about["data_offsets"][1] for about in tensors), default=0) != size - 8 - length:
        raise ValueError
    numbers: Counter[int] = Counter()
    for about in tensors:
        dtype, shape = about["dtype"], about["shape"]
        if not isinstance(dtype, str) or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError
        numbers[_STORED_BYTES.get(dtype, 1)] += math.prod(shape)
    return MappingProxyType(numbers)
