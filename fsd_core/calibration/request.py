"""Building a calibration from plain options, for the command line, the library, pages and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from fsd_core.config.calibration_config import (
    DRAFT_LENGTHS,
    FEWEST_CHOOSING,
    MORE_THAN_ENOUGH,
    MOST_FRESH_PROMPTS,
    REPLAYED,
    SIGNIFICANCE_LEVEL,
    CalibrationConfig,
    candidates,
    engine_candidates,
)
from fsd_core.config.options import METHOD_OPTIONS, SHARED_OPTIONS, Named, Option, in_python
from fsd_core.errors import NotApplicable, NotCalibratable, NotEnough, OutOfRange, UnfitEngine
from fsd_core.frozen import check_fields
from fsd_core.models.model_pairs import check_drafter
from fsd_core.rules import VERIFIERS, FuzzyReducible, Served
from fsd_core.statistics import paired
from fsd_core.statistics.intervals import by_group, numbered
from fsd_core.tasks import Task
from fsd_core.tasks.custom.reading import CheckedFile

_LONGEST_NAME = 120
IN_PYTHON = MappingProxyType(
    {"acceptance": "accepted"}
    | {name: name for name in ("margin", "minutes", "limit", "choosing")}
    | {"other goals": "the goal 'acceptance' or 'speed'"}
)
"""names that programs use for the fields of a calibration and the goals besides accuracy; there ``acceptance`` is the
rules"""


def build_calibration(
    task: Task,
    options: Sequence[Mapping[str, Any]] = ({},),
    named: Named = in_python,
    field_names: Mapping[str, str] = IN_PYTHON,
    *,
    pair: str = "bundled",
    limit: int | None = None,
    name: str = "",
    endpoint: Served | None = None,
    **others: Any,
) -> CalibrationConfig:
    """Return the calibration of these options.

    What is ``None`` gets its default, such as the task's prompts up to 600 for ``limit``. If no draft length is named,
    replay proposes them.

    Args:
        options: of methods, by name; each mapping yields candidates, as :func:`candidates` combines them
        named: returns the user-facing name of a method's option, for messages
        field_names: user-facing names of the calibration's fields, by field
        limit: maximum number of prompts
        endpoint: a running engine that is told the rules, in place of our own loop
        others: other fields of :class:`CalibrationConfig`

    Raises ``InvalidSetting`` before anything is loaded: for a task whose later turns follow answers, as ``candidates``,
    for settings with different sampling, for values out of range, for more prompts than the task has or too few, for a
    promise of accuracy if nothing is scored, and for a drafter that the pair lacks.
    """
    task.check_alone("a calibration")
    given = [
        {option: value for option, value in entry.items() if value is not None and value != []} for entry in options
    ]
    if endpoint is not None:
        given = [_of_an_engine(entry, named) for entry in given]
    replayed = endpoint is None and not any("draft_length" in entry for entry in given)
    defaults = {} if replayed or endpoint else {"draft_length": DRAFT_LENGTHS}
    decodings = dict.fromkeys(decoding for entry in given for decoding in candidates(defaults | entry, named))
    if any(entry.shared != next(iter(decodings)).shared for entry in decodings):
        raise NotCalibratable(
            "A calibration holds its settings against one target, so all are asked and sampled alike: give each the "
            "same temperature, top_k, top_p, min_p, max_new_tokens, template_arguments and template_date."
        )
    if endpoint is not None:
        decodings = dict.fromkeys(engine_candidates(endpoint, list(decodings)))
        from fsd_core.engines.client import check_sampling

        check_sampling(endpoint, next(iter(decodings)).sampling)
    fields = {field: value for field, value in others.items() if value is not None}
    limit = min(task.size, MOST_FRESH_PROMPTS) if limit is None else limit
    fields |= {"name": name.strip()[:_LONGEST_NAME] or f"Find the setting on {task.title}"}
    fields |= {"pair": pair, "task": task.name, "decodings": tuple(decodings), "lengths": REPLAYED if replayed else ()}
    if isinstance(share := fields.get("acceptance"), int | float) and share >= 1:
        raise OutOfRange(
            f"{field_names['acceptance']} is {share}: expected less than 1, for it is a share, such as 0.9 for 90 %."
        )
    fields["whole_groups"] = any(example.group for example in task.all_examples())
    unlimited = check_fields(
        CalibrationConfig, field_names, limit=MORE_THAN_ENOUGH, **fields
    )  # checks every other field
    if unlimited.goal == "accuracy" and not task.scored:
        raise NotCalibratable(
            f"The task '{task.name}' scores nothing, so no accuracy can be promised: choose "
            f"{field_names['other goals']}, or a task with references."
        )
    if isinstance(limit, int) and 1 <= limit <= task.size and limit < unlimited.fewest:
        raise NotEnough(_too_few(unlimited, task, limit, field_names))
    config = check_fields(CalibrationConfig, field_names, limit=limit, **fields)
    task.check_limit(limit)
    _check_groups(config, task)
    for decoding in decodings:
        check_drafter(pair, decoding)
    return config


def _check_groups(config: CalibrationConfig, task: Task) -> None:
    """Raise ``NotEnough`` if the prompts come in groups, of which each counts once, and a setting that loses none could
    not be shown to."""
    if config.goal != "accuracy" or not config.whole_groups:
        return
    (run,) = config.round_runs([config.target], 0, config.limit)
    examples, order = task.all_examples(), task.positions(run)
    clusters = by_group(order, {i: examples[i].group for i in order if examples[i].group})
    if (most := int(np.bincount(clusters).max(initial=1))) == 1:
        return
    bound, level = config.accuracy_bound, SIGNIFICANCE_LEVEL / config.finalists
    chosen, fresh = clusters[: config.choosing], clusters[config.choosing :]
    fresh = numbered(fresh[~np.isin(fresh, chosen)].tolist())
    laid = paired.stakes_for(paired.together(np.full(len(chosen), 0.5), numbered(chosen.tolist()), most, bound), bound)
    if paired.capital(paired.together(np.full(len(fresh), 0.5), fresh, most, bound), bound, laid) < 1 / level:
        raise NotEnough(
            f"{config.needs} where none depends on another, and the prompts of '{task.name}' come in groups of up to "
            f"{most}, which count once: even a setting that loses none could not be shown to. Take more prompts, or "
            "raise the margin."
        )


USUAL_MARGIN: float = CalibrationConfig.model_fields["margin"].default
WIDEST_MARGIN = 20
"""points of accuracy"""


@cache
def _usual() -> CalibrationConfig:
    return CalibrationConfig(decodings=tuple(candidates({})), limit=MORE_THAN_ENOUGH)


def fewest_for(margin: float) -> int:
    """Return how many prompts a search takes that is sure of an accuracy margin in points."""
    return _usual().model_copy(update={"margin": margin}).fewest


def sure_margin(prompts: int, wanted: float) -> float | None:
    """Return the accuracy margin in points that a search on so many prompts can be sure of: the ``wanted`` one, or else
    the least whole number above it, up to 20; ``None`` if there is none."""
    wider = range(math.floor(wanted) + 1, WIDEST_MARGIN + 1)
    return next((margin for margin in (wanted, *map(float, wider)) if fewest_for(margin) <= prompts), None)


def margins_for(file: CheckedFile) -> str:
    """Return which margins a search can be sure of with a file's prompts; empty if the usual one is one, for a file
    with problems, and where nothing is scored."""
    usual, prompts = USUAL_MARGIN, len(file.lines)
    if file.scorer == "none" or file.problems or (least := sure_margin(prompts, usual)) == usual:
        return ""
    return f"To be sure of {usual:g} points a search takes {fewest_for(usual)} prompts, and these are {prompts}: " + (
        f"they do for {least:g} points or more."
        if least
        else f"too few for any margin of up to {WIDEST_MARGIN} points."
    )


def is_told_to_engines(option: Option) -> bool:
    """Whether an option says how a running engine that is calibrated judges or samples, and not how it drafts."""
    return option.part == "acceptance" or option.name in SHARED_OPTIONS


def _of_an_engine(options: Mapping[str, Any], named: Named) -> dict[str, Any]:
    """Return the options of an engine's settings. Raises ``InvalidSetting`` for those of our own loop."""
    given = [METHOD_OPTIONS[name] for name in options if name in METHOD_OPTIONS]
    if own := [option for option in given if not is_told_to_engines(option)]:
        raise NotApplicable(
            f"{named(own[0], options[own[0].name])} does not apply to an endpoint, which was started with its own "
            "drafts: leave it out."
        )
    rule = options.get("acceptance") or FuzzyReducible().kind
    if other := next((kind for kind in ([rule] if isinstance(rule, str) else rule) if kind in VERIFIERS), None):
        raise UnfitEngine(f"The rule '{other}' judges several drafts, and an endpoint is told of one: leave it out.")
    return {**options, "acceptance": rule}


def _too_few(config: CalibrationConfig, task: Task, limit: int, field_names: Mapping[str, str]) -> str:
    """Return a message that the calibration needs more prompts than it may use, with the remedies that
    ``field_names`` names."""
    fewest, available = config.fewest, f"the task '{task.name}' has {task.size}"
    if limit < task.size:
        available += f", of which {limit} may be used"
    remedies = []
    if fewest <= task.size and "limit" in field_names:
        remedies.append(f"raise {field_names['limit']} to {fewest} or more (at most {task.size})")
    elif fewest <= MOST_FRESH_PROMPTS:
        remedies.append(f"take a task with {fewest} prompts or more")
    elif "limit" in field_names:
        remedies.append(f"take a task with {fewest} prompts or more and raise {field_names['limit']} to {fewest}")
    fewer = (config.model_copy(update={"choosing": n}) for n in range(config.choosing - 1, FEWEST_CHOOSING - 1, -1))
    if (enough := next((one for one in fewer if one.fewest <= limit), None)) and "choosing" in field_names:
        remedies.append(f"lower {field_names['choosing']} to {enough.choosing} or less")
    if config.goal == "accuracy":
        remedies.append(f"raise {field_names['margin'][0].lower()}{field_names['margin'][1:]}")
    return f"{config.needs}, and {available}: {', or '.join(remedies)}."
