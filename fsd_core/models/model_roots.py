"""Which folders may be named as models: on a machine that others reach, those below given roots alone."""

from __future__ import annotations

from pathlib import Path

from fsd_core.config.model_names import HUB_ID, MODELS, folder_of, models_of
from fsd_core.errors import FsdError, Refused
from fsd_core.models.local_models import moved
from fsd_core.settings import Settings


def check_folders(pair: str, settings: Settings) -> None:
    """Raise ``Refused`` for a pair with a folder that may not be named here, whether it exists or not."""
    if not settings.access_is_on:
        return
    roots = settings.roots
    for folder in folders_named(pair):
        if not any(moved(folder, settings.home).resolve().is_relative_to(root.resolve()) for root in roots):
            raise Refused(
                f"Models are taken from folders below {' or '.join(map(str, roots))} here: name one of those, or a "
                "model of the hub. Whoever runs this installation puts folders there, or sets FSD_MODEL_ROOTS to "
                "others."
            )


def may_be_named(pair: str, settings: Settings) -> bool:
    """Whether :func:`check_folders` lets a pair pass. Ask before anything of it is looked at."""
    try:
        check_folders(pair, settings)
    except Refused:
        return False
    return True


def folders_named(pair: str) -> list[Path]:
    """Return the folders that a pair's name says, whether they exist or not."""
    if pair.startswith("path:"):
        return [folder_of(pair.removeprefix("path:")).absolute()]
    if not pair.startswith(MODELS):
        return []
    try:
        models = models_of(pair)
    except FsdError:
        return []
    return [folder_of(value) for value in models.values() if not HUB_ID.fullmatch(value)]
