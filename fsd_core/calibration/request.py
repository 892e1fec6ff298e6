"""From plain options to the calibration that they ask for, for the command line, the library, pages and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fsd_core.config.building import Named, in_python
from fsd_core.config.calibration_config import (
    DRAFT_LENGTHS,
    FEWEST_CHOOSING,
    MOST_FRESH_PROMPTS,
    REPLAYED,
    CalibrationConfig,
    candidates,
)
from fsd_core.errors import InvalidSetting
from fsd_core.frozen import checked_words
from fsd_core.models.model_pairs import check_drafter
from fsd_core.tasks import Task

_LONGEST_NAME = 120
_MORE_THAN_ENOUGH = 10**9
"""prompts, for any margin"""
IN_PYTHON = MappingProxyType(
    {"acceptance": "accepted"}
    | {name: name for name in ("margin", "minutes", "limit", "choosing")}
    | {"other goals": "the goal 'acceptance' or 'speed'"}
)
"""what programs call the fields of a calibration, where ``acceptance`` is the rules, and the goals besides accuracy"""


def asked_for(
    task: Task,
    options: Sequence[Mapping[str, Any]] = ({},),
    named: Named = in_python,
    words: Mapping[str, str] = IN_PYTHON,
    *,
    pair: str = "bundled",
    limit: int | None = None,
    name: str = "",
    **asked: Any,
) -> CalibrationConfig:
    """The calibration of these options, with the usual values for what is ``None``: the task's prompts up to 600. Where
    no draft length is named, replay proposes them.

    Args:
        options: of methods, by name: those of each mapping make candidates together, as :func:`candidates` says
        named: what a person calls an option of a method, for sentences
        words: what a person calls a field of the calibration, by the field's name
        limit: prompts that may be used
        asked: other fields of :class:`CalibrationConfig`

    Raises ``InvalidSetting``, before anything is loaded: as ``candidates``, for settings that are not sampled alike,
    for values out of range, for prompts that the task has not or that are too few, for a promise of accuracy where
    nothing is scored, and for a drafter that the pair has not.
    """
    given = [{option: value for option, value in one.items() if value is not None and value != []} for one in options]
    replayed = not any("draft_length" in one for one in given)
    usual = {} if replayed else {"draft_length": DRAFT_LENGTHS}
    decodings = dict.fromkeys(decoding for one in given for decoding in candidates(usual | one, named))
    if len({(one.sampling, one.max_new_tokens) for one in decodings}) > 1:
        raise InvalidSetting(
            "A calibration holds its settings against one target, so all are sampled alike: give each the same "
            "temperature, top_k, top_p, min_p and max_new_tokens."
        )
    fields = {field: value for field, value in asked.items() if value is not None}
    limit = min(task.size, MOST_FRESH_PROMPTS) if limit is None else limit
    fields |= {"name": name.strip()[:_LONGEST_NAME] or f"Find the setting on {task.title}"}
    fields |= {"pair": pair, "task": task.name, "decodings": tuple(decodings), "lengths": REPLAYED if replayed else ()}
    if isinstance(share := fields.get("acceptance"), int | float) and share >= 1:
        raise InvalidSetting(
            f"{words['acceptance']} is {share}: expected less than 1, for it is a share, such as 0.9 for 90 %."
        )
    unlimited = checked_words(CalibrationConfig, words, limit=_MORE_THAN_ENOUGH, **fields)  # every other field is right
    if unlimited.goal == "accuracy" and not task.scored:
        raise InvalidSetting(
            f"The task '{task.name}' scores nothing, so no accuracy can be promised: choose {words['other goals']}, "
            "or a task with references."
        )
    if isinstance(limit, int) and 1 <= limit <= task.size and limit < unlimited.fewest:
        raise InvalidSetting(_too_few(unlimited, task, limit, words))
    config = checked_words(CalibrationConfig, words, limit=limit, **fields)
    task.check_limit(limit)
    for decoding in decodings:
        check_drafter(pair, decoding)
    return config


def _too_few(config: CalibrationConfig, task: Task, limit: int, words: Mapping[str, str]) -> str:
    """That a calibration needs more prompts than it may use, and what of that which ``words`` names is enough."""
    fewest, there = config.fewest, f"the task '{task.name}' has {task.size}"
    if limit < task.size:
        there += f", of which {limit} may be used"
    remedies = []
    if fewest <= task.size and "limit" in words:
        remedies.append(f"raise {words['limit']} to {fewest} or more (at most {task.size})")
    elif fewest <= MOST_FRESH_PROMPTS:
        remedies.append(f"take a task with {fewest} prompts or more")
    elif "limit" in words:
        remedies.append(f"take a task with {fewest} prompts or more and raise {words['limit']} to {fewest}")
    if config.fewest_fresh + FEWEST_CHOOSING <= limit and "choosing" in words:
        remedies.append(f"lower {words['choosing']} to {limit - config.fewest_fresh} or less")
    if config.goal == "accuracy":
        remedies.append(f"raise {words['margin'][0].lower()}{words['margin'][1:]}")
    return f"{config.needs}, and {there}: {', or '.join(remedies)}."
