"""How runs are selected and sorted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

from sqlalchemy import Select, false, func, or_, select
from sqlalchemy.sql.elements import ColumnElement

from fsd_core.errors import UnknownChoice
from fsd_core.metrics import METRICS
from fsd_core.storage.database.tables import ExperimentRow, OwnPairRow, RunRow, SettingRow

_COLUMNS: dict[str, Any] = {
    "created_at": RunRow.created_at, "started_at": RunRow.started_at, "finished_at": RunRow.finished_at,
    "position": RunRow.position, "task": RunRow.task, "seed": RunRow.seed, "status": RunRow.status,
    "prompts_done": RunRow.prompts_done, "prompts_total": RunRow.prompts_total, "experiment_name": ExperimentRow.name,
    "pair": SettingRow.pair, "label": SettingRow.label, "acceptance": SettingRow.acceptance,
    "threshold": SettingRow.threshold,
}  # fmt: skip
LONGEST_SEARCH = 200
"""characters that are searched for; the rest is ignored"""
RUN_ORDERS = (*_COLUMNS, *METRICS)
"""Values by which runs can be sorted."""


class RunFilters(TypedDict, total=False):
    """Filters that must all hold; ``None`` is no filter. ``search`` looks into names, labels, notes and tags, and
    for the beginning of ids."""

    pair: str | None
    task: str | None
    """for a custom task, the name of all versions or of one"""
    acceptance: str | None
    status: str | None
    experiment_id: str | None
    setting_id: str | None
    search: str | None
    id_prefix: str | None
    """the beginning of a run's id, or of its experiment's"""
    archived: bool | None
    """whether the run or its experiment is archived"""
    calibration_rounds: bool | None
    """whether the run is a round of a calibration"""


def filtered(
    statement: Select,
    ids: Iterable[str] | None,
    *,
    pair: str | None = None,
    task: str | None = None,
    acceptance: str | None = None,
    status: str | None = None,
    experiment_id: str | None = None,
    setting_id: str | None = None,
    search: str | None = None,
    id_prefix: str | None = None,
    archived: bool | None = None,
    calibration_rounds: bool | None = None,
) -> Select:
    """Return the statement with the runs that the filters leave: ``ids``, and those of :class:`RunFilters`."""
    statement = statement.select_from(RunRow).join(RunRow.setting).outerjoin(RunRow.experiment)
    if ids is not None:
        statement = statement.where(RunRow.id.in_(list(ids)))
    if task is not None:  # the name alone of a custom task means all versions
        versions = RunRow.task.startswith(f"{task}@", autoescape=True)
        statement = statement.where((RunRow.task == task) | versions)
    exact = (SettingRow.pair, pair), (SettingRow.acceptance, acceptance), (RunRow.status, status)
    for column, value in (*exact, (RunRow.experiment_id, experiment_id), (RunRow.setting_id, setting_id)):
        if value is not None:
            statement = statement.where(column == value)
    if id_prefix is not None:
        begins = (id.startswith(id_prefix, autoescape=True) for id in (RunRow.id, RunRow.experiment_id))
        statement = statement.where(or_(*begins))
    if archived is not None:
        statement = statement.where(~listed() if archived else listed())
    if calibration_rounds is not None:
        statement = statement.where(~ordinary() if calibration_rounds else ordinary())
    for word in (search or "")[:LONGEST_SEARCH].split():
        note_columns = RunRow.tags, RunRow.note, ExperimentRow.tags, ExperimentRow.note
        columns = (SettingRow.label, SettingRow.pair, RunRow.task, ExperimentRow.name, *note_columns)
        inside = [text_column.icontains(word, autoescape=True) for text_column in columns]
        statement = statement.where(or_(RunRow.id.istartswith(word, autoescape=True), named_like(word), *inside))
    return statement


def named_like(word: str) -> ColumnElement[bool]:
    """Return the condition that somebody gave a setting's pair a name with this word."""
    return SettingRow.pair.in_(select(OwnPairRow.models).where(OwnPairRow.name.icontains(word, autoescape=True)))


def listed() -> ColumnElement[bool]:
    """Return the condition that neither a run nor its experiment is archived."""
    return ~RunRow.archived & ~func.coalesce(ExperimentRow.archived, false())


def ordinary() -> ColumnElement[bool]:
    """Return the condition that a run is no round of a calibration. It reads each experiment's config, not each
    run's."""
    calibrations = select(ExperimentRow.id).where(ExperimentRow.config["goal"].as_string().is_not(None))
    return or_(RunRow.experiment_id.is_(None), RunRow.experiment_id.not_in(calibrations))


def order_of(name: str) -> ColumnElement[Any]:
    """Return the column that runs are sorted by. Raises ``InvalidSetting`` if ``name`` is not in ``RUN_ORDERS``."""
    if name in METRICS:
        return RunRow.metrics[name].as_float()
    if name not in _COLUMNS:
        raise UnknownChoice(f"Runs cannot be sorted by '{name}': expected one of {', '.join(RUN_ORDERS)}.")
    return _COLUMNS[name]
