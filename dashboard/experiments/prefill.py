"""Prefill of the experiment form by a link: some rules, measured on the prompts and with the options of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dashboard.ui.algorithms import PLAIN_RULES
from fsd_core.config.flat import options_read
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.config.sweeps import LENGTH_OPTIONS, LISTED
from fsd_core.errors import UnknownName
from fsd_core.models.model_pairs import get_pair

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

_ID = re.compile("[0-9a-f]{32}")
_SAMPLING = tuple(name for name, option in METHOD_OPTIONS.items() if option.part == "sampling")


def prefilled(repository: Repository, query: Mapping[str, str]) -> dict[str, Any]:
    """Return values of the form's fields by name, or none without ``like=``, the id of a run.

    ``rules=`` has comma-separated baselines that replace the run's own rule. Sampling options may be named too. Invalid
    values in a link are replaced by the run's. Raises ``UnknownName`` for a run of a pair that is not known here.
    """
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
        "batch": run.config.batch,
        "baselines": rules or ["autoregressive", "speculative"], "tuned": [], "several": [],
    }  # fmt: skip
    for name, option in METHOD_OPTIONS.items():
        if name not in options or name == "acceptance" or option.is_knob:
            continue
        value = options[name]
        values[name] = [value] if name in LISTED else f"{value}" if name in LENGTH_OPTIONS else value
    return values | {name: number for name in _SAMPLING if (number := _number(query.get(name, ""))) is not None}


def _number(text: str) -> float | None:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
