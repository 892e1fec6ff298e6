"""Local copies of models: where they are and where they came from. No torch: the pages read this."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from fsd_core.models.json_files import read_object
from fsd_core.models.known_sizes import known_size
from fsd_core.models.specs import HubModel, PairSpec
from fsd_core.settings import get_settings
from fsd_core.whole_files import whole_file

_ABOUT = "source.json"
"""Beside the weights, or alone if these are in the hub's own cache; written last."""
_MOVED = "moved-models.json"
"""in the home: folders that pairs are named after, with those where the same models are on this machine"""


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


def missing_models(spec: PairSpec) -> list[HubModel]:
    """Return the models of a pair that have to be fetched, each once."""
    models = (model for model in (spec.target, spec.draft, spec.head) if isinstance(model, HubModel))
    return [model for model in dict.fromkeys(models) if obtained(model) is None]


def origin(model: Path | HubModel) -> str | None:
    """Return the source of a local copy, with its revision; ``None`` for a plain folder."""
    if isinstance(model, Path):
        return None
    return read_object(models_folder() / model.slug / _ABOUT).get("origin")


def remember_size(model: HubModel, bytes_: int) -> None:
    """Record what the hub said of a model's size, so that lists can tell it without asking."""
    try:
        models_folder().mkdir(parents=True, exist_ok=True)
        _size_file(model).write_text(f"{bytes_}\n")
    except OSError:  # it is asked again
        pass


def remembered_size(model: HubModel) -> int:
    """Return the bytes of a model as the hub last said or as the program knows them, or 0 if neither is so."""
    try:
        return int(_size_file(model).read_text())
    except (OSError, ValueError):
        return known_size(model)


def _size_file(model: HubModel) -> Path:
    return models_folder() / f"{model.slug}.size"


def moved(folder: Path, home: Path) -> Path:
    """Return a folder, or if it is not on this machine where its models are, as :func:`remember_moved` has it."""
    return folder if os.path.isdir(folder) else home / read_object(home / _MOVED).get(str(folder), folder)


def remember_moved(folders: Mapping[str, str], home: Path) -> None:
    """Record where the models of folders are once these are not on this machine. A path from the home moves with it."""
    with whole_file(home / _MOVED) as partial:
        partial.write_text(json.dumps({**read_object(home / _MOVED), **folders}, ensure_ascii=False) + "\n")


def write_about(path: Path, origin: str, folder: Path | None) -> None:
    """Record a local copy of a model. ``folder`` holds its weights if ``path`` does not."""
    with whole_file(path / _ABOUT) as partial:
        partial.write_text(json.dumps({"origin": origin, "folder": str(folder) if folder else None}) + "\n")
