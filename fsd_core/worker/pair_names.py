"""Pairs by name: those of the program, and those that people have named."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.config.model_names import MODELS, PAIR_NAME
from fsd_core.errors import FsdError, Malformed, Taken, UnknownName
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair, unknown_pair
from fsd_core.models.pair_check import PairCheck, check_pair
from fsd_core.models.specs import HubModel
from fsd_core.worker.device_memory import device_memory

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

_PREFIXES = ("path:", "hub:", MODELS)


def checked_pair_name(name: str) -> str:
    """Return a name under which a pair can be kept. Raises ``InvalidSetting``."""
    if not PAIR_NAME.fullmatch(name):
        raise Malformed(
            f"The pair's name {name[:60]!r} cannot be used: expected 1 to 40 small letters, digits, dots and hyphens, "
            "such as support-7b."
        )
    if name in MODEL_PAIRS:
        raise Taken(f"The name '{name}' is that of a pair of the program: choose another one.")
    return name


def add_checked(repository: Repository, name: str, models: str, who: str) -> PairCheck:
    """Keep a pair under a name, unless it cannot be used. Returns what was found of it.

    ``models``: the name that says its models. Raises ``InvalidSetting`` for a name that cannot be kept, and what
    ``get_pair`` raises.
    """
    name, checked = checked_pair_name(name.strip()), check_pair(get_pair(models), device_memory(repository))
    if not checked.problems:
        repository.add_pair(name, models, who)
    return checked


def recorded_name(repository: Repository, name: str) -> str:
    """Return the name under which runs of a pair are recorded: of a pair that somebody has named, its models.

    Raises ``UnknownName``, which lists the known ones, for a name that nobody has given.
    """
    if name in MODEL_PAIRS or name.startswith(_PREFIXES):
        return name
    own = {pair.name: pair.models for pair in repository.own_pairs()}
    if name not in own:
        raise unknown_pair(name, own)
    return own[name]


def offered_pairs(repository: Repository) -> list[tuple[str, str]]:
    """Return the titles of all pairs that can be chosen, with the names under which their runs are recorded."""
    own = [(pair.name, pair.models) for pair in repository.own_pairs()]
    return [*own, *((spec.title, name) for name, spec in MODEL_PAIRS.items())]


def check_offered(repository: Repository, pair: object) -> None:
    """Raise ``UnknownName`` for a pair that the lists do not offer."""
    if all(pair != name for _, name in offered_pairs(repository)):
        raise UnknownName(
            f"The list has no model pair called '{str(pair)[:80]}': choose one of it, or name models of your own on "
            "the page Experiments."
        )


def known_models(repository: Repository | None) -> list[Path | HubModel]:
    """Return the targets and drafts of all pairs, whether they are here or not."""
    names = [*MODEL_PAIRS, *(pair.models for pair in (repository.own_pairs() if repository else ()))]
    models: dict[Path | HubModel, None] = {}
    for name in names:
        with suppress(FsdError):  # a folder that is gone
            spec = get_pair(name)
            models |= dict.fromkeys(model for model in (spec.target, spec.draft) if model is not None)
    return list(models)
