"""Prefill of the experiment form by a link: from a run, or with the settings of a job of the Playground."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dashboard.ui.algorithms import BEAM_RULES, PLAIN_RULES, SEVERAL, TUNED
from dashboard.ui.pair_defaults import pair_defaults
from fsd_core.config.building import reads
from fsd_core.config.flat import options_of, options_read
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.config.sweeps import LENGTH_OPTIONS, LISTED
from fsd_core.config.thresholds import OFF
from fsd_core.errors import UnknownName
from fsd_core.models.model_pairs import get_pair
from fsd_core.roles import NOBODY, Person
from fsd_core.rules import Served
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.tasks.custom.lookup import find_task
from fsd_core.tasks.suitable import offered

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig, RunConfig
    from fsd_core.storage.database.repository import Repository

_ID = re.compile("[0-9a-f]{32}")
MOST_REPEATED = 20
"""runs that a link may name to be measured again"""
_SAMPLING = tuple(name for name, option in METHOD_OPTIONS.items() if option.part == "sampling")


def prefilled(repository: Repository, query: Mapping[str, str], person: Person = NOBODY) -> dict[str, Any]:
    """Return values of the form's fields by name, or none if the link names neither a run nor a job.

    ``like=`` is the id of a run. ``rules=`` has comma-separated baselines that replace the run's own rule. Sampling
    options may be named too. Invalid values in a link are replaced by the run's.

    ``settings=`` is the id of a job of the Playground, whose settings are measured, and ``task=`` the name of a task.

    ``again=`` has ids of runs between commas, whose settings are measured once more, on ``limit=`` prompts.

    Raises ``UnknownName`` for a pair that is not known here, and for a job that is somebody else's.
    """
    if ids := [id for id in query.get("again", "").split(",") if _ID.fullmatch(id)]:
        return _of_runs(repository, ids, query.get("limit", ""))
    id = query.get("settings", "")
    if not _ID.fullmatch(id):
        return _of_run(repository, query)
    values = _of_job(repository, id, person)
    if name := query.get("task"):
        task = find_task(name, repository)
        values |= {"task": task.name, "limit": min(task.size, pair_defaults(values["pair"]).limit)}
    return values


def _of_job(repository: Repository, id: str, person: Person) -> dict[str, Any]:
    """Return the settings of a Playground job as lists of an experiment, which measures every combination."""
    state = repository.job(id)
    if state.kind != PlaygroundJob.kind:
        raise UnknownName("The link names no texts of the Playground: open it there again.")
    job = PlaygroundJob.read(state.payload)
    if job.owner not in (None, person.name if person.known else None):
        raise UnknownName("The settings of this link are somebody else's: choose your own here.")
    spec = get_pair(job.pair)
    return {"pair": job.pair, "seeds": f"{job.seed}", "task": offered(spec)[0].name} | _of_decodings(job.decodings)


def _of_runs(repository: Repository, ids: Sequence[str], limit: str) -> dict[str, Any]:
    """Return the settings of runs as lists of an experiment on the same task, with more prompts if it has them."""
    by_id = {run.id: run for run in repository.runs(ids=ids[:MOST_REPEATED])}
    if not (runs := [by_id[id] for id in ids if id in by_id]):
        return {}
    first = runs[0]
    get_pair(first.pair)
    prompts = int(limit) if limit.isascii() and limit.isdigit() and len(limit) < 7 else first.config.limit
    values: dict[str, Any] = {
        "pair": first.pair, "task": first.task, "seeds": f"{first.seed}", "batch": first.config.batch,
        "rates": _rate(first.config),
        "limit": max(1, min(find_task(first.task, repository).size, prompts)),
    }  # fmt: skip
    return values | _of_decodings([run.decoding for run in runs if run.pair == first.pair])


def _of_decodings(decodings: Sequence[DecodingConfig]) -> dict[str, Any]:
    """Return the options of some settings as lists of an experiment, which measures every combination."""
    kinds = [*dict.fromkeys(decoding.acceptance.kind for decoding in decodings)]
    values: dict[str, Any] = {
        "baselines": [kind for kind in kinds if kind in PLAIN_RULES],
        "tuned": [kind for kind in kinds if kind in TUNED],
        "several": [kind for kind in kinds if kind in (*SEVERAL, *BEAM_RULES)],
    }  # fmt: skip
    for name, option in METHOD_OPTIONS.items():
        if name == "acceptance":
            continue
        found = [
            *dict.fromkeys(
                options[name] for options in map(options_of, decodings) if name in options and reads(option, options)
            )
        ]
        if option.is_knob:
            found = [OFF if value is None else f"{value:g}" for value in found]
        if found:
            listed = option.is_knob or name in LENGTH_OPTIONS
            values[name] = found if name in LISTED else ", ".join(map(str, found)) if listed else found[0]
    return values


def _of_run(repository: Repository, query: Mapping[str, str]) -> dict[str, Any]:
    id = query.get("like", "")
    if not _ID.fullmatch(id):
        return {}
    try:
        run = repository.run(id)
    except UnknownName:
        return {}
    get_pair(run.pair)
    options = options_read(run.config)
    rules = [kind for kind in query.get("rules", "").split(",") if kind in PLAIN_RULES]
    values: dict[str, Any] = {
        "pair": run.pair, "task": run.task, "limit": run.config.limit, "seeds": f"{run.seed}",
        "batch": f"{run.config.batch}", "rates": _rate(run.config),
        "baselines": rules or ["autoregressive", "speculative"], "tuned": [], "several": [],
        "endpoints": [served.endpoint] if isinstance(served := run.decoding.acceptance, Served) else [],
    }  # fmt: skip
    for name, option in METHOD_OPTIONS.items():
        if name not in options or name == "acceptance" or option.is_knob:
            continue
        value = options[name]
        values[name] = [value] if name in LISTED else f"{value}" if name in LENGTH_OPTIONS else value
    return values | {name: number for name in _SAMPLING if (number := _number(query.get(name, ""))) is not None}


def _rate(config: RunConfig) -> str:
    return f"{config.rate:g}" if config.rate else ""


def _number(text: str) -> float | None:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
