"""JSON files of model folders, which anybody may have written. No torch: the pages read this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_object(file: Path) -> dict[str, Any]:
    """The object in a file; an empty one where there is none that can be read, which loading the model then tells."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
