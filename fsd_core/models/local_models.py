"""Local copies of models: where they are and where they came from. No torch: the pages read this."""

from __future__ import annotations

import json
from pathlib import Path

from fsd_core.models.json_files import read_object
from fsd_core.models.specs import HubModel
from fsd_core.settings import get_settings

_ABOUT = "source.json"
"""Beside the weights, or alone if these are in the hub's own cache; written last."""


def models_folder() -> Path:
    """Return the folder of the models that are not in the hub's own cache."""
    return get_settings().home / "models"


def obtained(model: Path | HubModel) -> Path | None:
    """Return the folder of a model that is already on this machine, without using the network."""
    if isinstance(model, Path):
        return model
    local_folder = models_folder() / model.slug
    about = read_object(local_folder / _ABOUT)
    if "folder" not in about:
        return None
    folder = Path(about["folder"] or local_folder)
    return folder if (folder / "config.json").is_file() else None


def origin(model: Path | HubModel) -> str | None:
    """Return the source of a local copy, with its revision; ``None`` for a plain folder."""
    if isinstance(model, Path):
        return None
    return read_object(models_folder() / model.slug / _ABOUT).get("origin")


def write_about(path: Path, origin: str, folder: Path | None) -> None:
    """Record a local copy of a model. ``folder`` holds its weights if ``path`` does not."""
    partial = path / f"{_ABOUT}.part"
    partial.write_text(json.dumps({"origin": origin, "folder": str(folder) if folder else None}) + "\n")
    partial.replace(path / _ABOUT)
