"""Models that were obtained: where they lie and where they came from. No torch: the pages read this."""

from __future__ import annotations

import json
from pathlib import Path

from fsd_core.models.json_files import read_object
from fsd_core.models.specs import HubModel
from fsd_core.settings import get_settings

_ABOUT = "source.json"
"""Beside the weights, or in their place where they are in the hub's own cache; written last."""


def models_folder() -> Path:
    """Where models are kept that the hub's own cache does not hold."""
    return get_settings().home / "models"


def obtained(model: Path | HubModel) -> Path | None:
    """The folder of a model that is on this machine already; asks no network."""
    if isinstance(model, Path):
        return model
    place = models_folder() / model.slug
    about = read_object(place / _ABOUT)
    if "folder" not in about:
        return None
    folder = Path(about["folder"] or place)
    return folder if (folder / "config.json").is_file() else None


def origin(model: Path | HubModel) -> str | None:
    """Where an obtained model came from, with its revision; ``None`` for a plain folder."""
    if isinstance(model, Path):
        return None
    return read_object(models_folder() / model.slug / _ABOUT).get("origin")


def write_about(place: Path, origin: str, folder: Path | None) -> None:
    """Makes a model an obtained one; ``folder`` is where its weights are, if not in ``place``."""
    partial = place / f"{_ABOUT}.part"
    partial.write_text(json.dumps({"origin": origin, "folder": str(folder) if folder else None}) + "\n")
    partial.replace(place / _ABOUT)
