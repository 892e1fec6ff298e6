"""JSON files of model folders, which may come from anyone, and how large they may be. No torch: the pages read this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fsd_core.errors import ModelUnavailable

LARGEST_JSON = 16_000_000
"""bytes of a configuration or an index; read, they may take 20 times as many"""
LARGEST_TOKENIZER = 100_000_000
LARGEST_TEMPLATE = 1_000_000
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt")
_TEMPLATES = ".jinja"
_READ = (".json", ".txt", ".model", _TEMPLATES)
"""ends of the names of files that the loaders of several libraries read whole"""


def read_object(file: Path) -> dict[str, Any]:
    """Return the object in a file, or an empty one if it is unreadable or too large. Loading the model then reports the
    error."""
    try:
        content = json.loads(bounded_text(file, LARGEST_JSON))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def bounded_text(file: Path, largest: int) -> str:
    """Return a file's text. Raises ``ValueError`` for more than ``largest`` bytes, and ``OSError``."""
    with file.open("rb") as stream:
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"{file.name} is larger than {largest:,} bytes")
    return data.decode("utf-8")


def is_file(path: Path) -> bool:
    """Whether a path is that of a file. One that no file can have is not."""
    try:
        return path.is_file()
    except OSError:  # a part of it is too long
        return False


def check_sizes(folder: Path) -> None:
    """Raise ``ModelUnavailable`` for a folder with a file beside the weights that is too large to be read whole."""
    for file in sorted(folder.glob("*")):
        if not file.name.endswith(_READ):
            continue
        largest = LARGEST_TOKENIZER if file.name in _TOKENIZERS else LARGEST_JSON
        largest = LARGEST_TEMPLATE if file.name.endswith(_TEMPLATES) else largest
        if (size := file.stat().st_size) > largest:
            raise ModelUnavailable(
                f"{file.name} in {folder} has {size:,} bytes: expected at most {largest:,}. Restore the folder from "
                "where it came."
            )
