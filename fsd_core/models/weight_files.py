"""Which files of a model's folder are its weights. Some folders hold a second copy under other names."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

_FORMS = ("model.safetensors", "model-*-of-*.safetensors")
"""names of weights, in the order in which transformers looks for them"""
_ADAPTER = "adapter_model.safetensors"


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
