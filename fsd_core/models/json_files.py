"""JSON files of model folders, which may come from anyone. No torch: the pages read this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_object(file: Path) -> dict[str, Any]:
    """Return the object in a file, or an empty one if it is unreadable. Loading the model then reports the error."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
