"""From plain options to the calibration that they ask for, for the command line, the library, pages and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fsd_core.benchmarks.tasks import Task
from fsd_core.config.building import Named, in_python
from fsd_core.config.calibration import LENGTHS, MOST_PROMPTS, REPLAYED, CalibrationConfig, candidates
from fsd_core.errors import InvalidSetting
from fsd_core.models.model_pairs import check_drafter
from fsd_core.values import checked_words

LONGEST_NAME = 120
IN_PYTHON = MappingProxyType(
    {"acceptance": "accepted"} | {name: name for name in ("margin", "minutes", "limit", "choosing")}
)
"""what programs call the fields of a calibration, where ``acceptance`` is the rules"""


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
    usual = {} if replayed else {"draft_length": LENGTHS}
    decodings = dict.fromkeys(decoding for one in given for decoding in candidates(usual | one, named))
    if len({(one.sampling, one.max_new_tokens) for one in decodings}) > 1:
        raise InvalidSetting(
            "A calibration holds its settings against one target, so all are sampled alike: give each the same "
            "temperature, top_k, top_p, min_p and max_new_tokens."
        )
    fields = {field: value for field, value in asked.items() if value is not None}
    limit = min(task.size, MOST_PROMPTS) if limit is None else limit
    config = checked_words(
        CalibrationConfig, words, name=name.strip()[:LONGEST_NAME] or f"Find the setting on {task.title}", pair=pair,
        task=task.name, limit=limit, decodings=tuple(decodings), lengths=REPLAYED if replayed else (), **fields,
    )  # fmt: skip
    task.check_limit(limit)
    if config.goal == "accuracy" and not task.scored:
        raise InvalidSetting(
            f"The task '{task.name}' scores nothing, so no accuracy can be promised: choose the goal of so many "
            "percent accepted, or the fastest, or a task with references."
        )
    for decoding in decodings:
        check_drafter(pair, decoding)
    return config
