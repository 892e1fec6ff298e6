"""Which folders may be named as models: on a machine that others reach, those below given roots alone."""

from __future__ import annotations

from pathlib import Path

from fsd_core.config.model_names import HUB_ID, MODELS, models_of
from fsd_core.errors import FsdError, Refused
from fsd_core.settings import Settings


def check_folders(pair: str, settings: Settings) -> None:
    """Raise ``Refused`` for a pair with a folder that may not be named here, whether it exists or not."""
    if not settings.access_is_on:
        return
    roots = settings.roots
    for folder in _folders(pair):
        if not any(folder.resolve().is_relative_to(root.resolve()) for root in roots):
            below = " or ".join(map(str, roots)) or "none: FSD_MODEL_ROOTS names them"
            raise Refused(
                f"Models are taken from folders below {below} here: name one of those, or a model of the hub."
            )


def _folders(pair: str) -> list[Path]:
    if pair.startswith("path:"):
        return [Path(pair.removeprefix("path:")).expanduser().absolute()]
    if not pair.startswith(MODELS):
        return []
    try:
        models = models_of(pair)
    except FsdError:
        return []
    return [Path(value).expanduser() for value in models.values() if not HUB_ID.fullmatch(value)]
