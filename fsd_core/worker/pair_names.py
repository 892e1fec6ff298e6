"""Pairs by name: checked, kept and fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from fsd_core.config import RunConfig, SweepConfig
from fsd_core.config.model_names import HUB_ID, MODELS, PAIR_NAME, folder_of, models_of, parts_of
from fsd_core.errors import DataDamaged, FsdError, Malformed, Taken, UnknownName
from fsd_core.models.model_pairs import MODEL_PAIRS, folders_named, get_pair, unknown_pair
from fsd_core.models.pair_check import (
    CPU,
    DeviceMemory,
    PairCheck,
    check_pair,
    fingerprints,
    identity_of,
    models_by_role,
)
from fsd_core.models.sources import HubModel, obtained, remember_moved
from fsd_core.settings import get_settings
from fsd_core.storage.messages import PairFetchJob
from fsd_core.storage.records import fingerprint_of, same_weights

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import JobRow


def device_memory(repository: Repository | None) -> DeviceMemory:
    """Return the memory of the worker's device, as it last reported it; this machine's if it never did, or cannot
    tell."""
    worker = repository.worker() if repository else None
    if worker is None or worker.memory is None:
        return DeviceMemory(CPU, psutil.virtual_memory().total)
    return DeviceMemory(worker.device, worker.memory)


Config = TypeVar("Config", bound=RunConfig | SweepConfig)
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

    Where models that were measured under the name are not here and these are the same, the name is theirs, and they are
    loaded from these folders from then on: settings that were measured keep their ids.

    ``models``: the name that says its models. Raises ``InvalidSetting`` for a name that cannot be kept, and what
    ``get_pair`` raises.
    """
    name, checked = checked_pair_name(name.strip()), check_pair(get_pair(models), device_memory(repository))
    if checked.problems:
        return checked
    measured = [it for it in repository.pair_versions(name) if _weights(repository, it)]
    same = [it for it in measured if _are_same(repository, it, models)]
    if old := next((it for it in same if (away := _away(it)) and parts_of(models) | away == parts_of(it)), ""):
        folders = models_of(models)
        moves = {model: folders[role] for role, model in models_of(old).items() if model != folders[role]}
        remember_moved(moves, get_settings().home)
        repository.add_pair(name, old, who)
        checked.notes.append(f"Its weights are those that were measured: they were in {', '.join(moves)}.")
        return checked
    repository.add_pair(name, models, who)
    _placed(repository, identity_of(models), models)
    if measured and not same and not checked.missing:
        checked.notes.append(
            f"These are not the models that were measured as {name} ({', '.join(models_of(measured[0]).values())}): "
            "weights, tokenizer, dtype or template differ. Those have other settings and runs. If you meant them, add "
            "the pair again with their folders."
        )
    return checked


def identified(repository: Repository, config: Config, identity: str | None = None) -> Config:
    """Return a configuration with the identity of its pair, and under the name by which these models are known. All
    that is stored comes from here. ``identity``: of models that are in memory already."""
    asked: Any = config.setting if isinstance(config, RunConfig) else config
    home = get_settings().home.absolute()
    if inside := [folder for folder in folders_named(asked.pair) if folder.is_relative_to(home)]:
        remember_moved({str(folder): str(folder.relative_to(home)) for folder in inside}, home)
    identity = identity_of(asked.pair) if identity is None else identity
    found = {"identity": identity, "pair": _placed(repository, identity, asked.pair)}
    if isinstance(config, RunConfig):
        found = {"setting": config.setting.model_copy(update=found)}
    return config.model_copy(update=found)


def _placed(repository: Repository, identity: str, pair: str) -> str:
    """Return the name by which models with an identity are known from now on: as before if they are still in its
    folders, and somebody gave it or nobody gave the other; else ``pair``."""
    known, given = repository.pair_of(identity), repository.given_names()
    if known and (known in given or pair not in given) and identity_of(known) == identity:
        return known
    if identity:
        repository.place_models(identity, pair)
    return pair


def _are_same(repository: Repository, old: str, new: str) -> bool:
    """Return whether models have the fingerprints that were measured, and the dtype and template arguments."""
    parts, found = parts_of(new), models_by_role(get_pair(new))
    if parts.keys() != parts_of(old).keys() or parts | models_of(old) != parts_of(old):
        return False
    here = {role: folder for role, model in found if (folder := obtained(model)) is not None}
    return same_weights(fingerprints(here), _weights(repository, old))


def _weights(repository: Repository, pair: str) -> dict[str, str]:
    """Return the fingerprints that a pair was measured with last, by role; empty if it was not."""
    measured = next((run.weights for run in repository.runs(pair=pair) if run.weights), {})
    return {role: fingerprint_of(origin) for role, origin in measured.items()}


def _away(pair: str) -> dict[str, str]:
    """Return the folders that a pair's name says and that are not here, by role."""
    named = models_of(pair).items()
    return {role: it for role, it in named if not (HUB_ID.fullmatch(it) or os.path.isdir(folder_of(it)))}


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


def pair_fetches(repository: Repository) -> Mapping[str, JobRow]:
    """Return the newest fetch of each pair, by the name under which its runs are recorded."""
    newest: dict[str, JobRow] = {}
    for job in repository.latest_jobs(PairFetchJob.kind):
        try:
            newest.setdefault(PairFetchJob.read(job.payload).pair, job)
        except DataDamaged:  # of another version
            continue
    return newest
