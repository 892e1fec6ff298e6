"""The rows that an exported file has and the database lacks, and the conflicts between the two."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from fsd_core.config.calibration_config import GRANTED
from fsd_core.errors import Taken
from fsd_core.storage.database.tables import (
    ChangeRow,
    ExperimentRow,
    GenerationRow,
    MeasurementSessionRow,
    ReviewEventRow,
    RunRow,
    TraceRow,
)
from fsd_core.storage.records import UNENDED
from fsd_core.storage.workspace.columns import names, plain, row_values

_BATCH = 100
Entry = TypeVar("Entry", ReviewEventRow, ChangeRow)
REQUEST_COLUMNS = ("setting_id", "experiment_id", "position", "task", "seed", "config", "created_at", "prompts_total")
"""columns of a run that define the request, and never change"""
_ELSEWHERE = "Import the file into an empty database instead, or delete it here first."


class Prompt(NamedTuple):
    """Digests of one prompt of a run, for comparison: of its record, and of its trace if that is stored."""

    digest: str
    trace: str | None

    def same(self, other: Prompt) -> bool:
        return self.digest == other.digest and (self.trace == other.trace or None in (self.trace, other.trace))


def new_experiments(source: Session, target: Session) -> list[ExperimentRow]:
    """Return new experiments. One that is here gets the time that was granted to it later."""
    new = []
    for incoming in source.scalars(select(ExperimentRow).order_by(ExperimentRow.created_at, ExperimentRow.id)):
        existing = target.get(ExperimentRow, incoming.id)
        if existing is None:
            new.append(incoming)
        elif (_request(existing), existing.created_at) != (_request(incoming), incoming.created_at):
            raise Taken(f"Nothing was imported: the experiment {incoming.id} is here with other settings. {_ELSEWHERE}")
        elif incoming.config.get(GRANTED, 0) > existing.config.get(GRANTED, 0):
            existing.config = dict(incoming.config)
    return new


def _request(experiment: ExperimentRow) -> dict[str, Any]:
    """Return the experiment's configuration, without the time that a calibration was granted later."""
    return {name: value for name, value in experiment.config.items() if name != GRANTED}


def new_prompts(source: Session, target: Session) -> dict[str, list[int] | None]:
    """Return the positions of the prompts to add, by run of the file; ``None`` leaves the run alone."""
    additions: dict[str, list[int] | None] = {}
    for incoming_run in source.scalars(select(RunRow).order_by(RunRow.created_at, RunRow.position, RunRow.id)):
        incoming = _prompts(source, incoming_run.id)
        existing_run = target.get(RunRow, incoming_run.id)
        if existing_run is None:
            additions[incoming_run.id] = sorted(incoming)
            continue
        if any(getattr(existing_run, name) != getattr(incoming_run, name) for name in REQUEST_COLUMNS):
            raise Taken(f"Nothing was imported: the run {existing_run.id} is here with other settings. {_ELSEWHERE}")
        existing = _prompts(target, existing_run.id)
        if conflicts := [p for p in incoming.keys() & existing.keys() if not incoming[p].same(existing[p])]:
            raise Taken(
                f"Nothing was imported: prompt {min(conflicts) + 1} of the run {existing_run.id} is here with another "
                f"record. {_ELSEWHERE}"
            )
        further, missing = sorted(incoming.keys() - existing.keys()), existing.keys() - incoming.keys()
        if further and (missing or existing_run.status in UNENDED):
            raise Taken(
                f"Nothing was imported: the run {existing_run.id} has gone on both here and in the file. {_ELSEWHERE}"
            )
        additions[existing_run.id] = further or None
    return additions


def _prompts(session: Session, run_id: str) -> dict[int, Prompt]:
    columns = [GenerationRow.__table__.columns[name] for name in names(GenerationRow, "id", "run_id", "sitting_id")]
    statement = select(*columns, MeasurementSessionRow.conditions, TraceRow.sha256).select_from(GenerationRow)
    statement = statement.outerjoin(MeasurementSessionRow, MeasurementSessionRow.id == GenerationRow.sitting_id)
    statement = statement.outerjoin(TraceRow, TraceRow.generation_id == GenerationRow.id).where(
        GenerationRow.run_id == run_id
    )
    prompts = {}
    for row in session.execute(statement.execution_options(yield_per=_BATCH)).mappings():
        # A measurement session without conditions is added when a run continues; see GenerationStore.
        values = plain(row) | {"conditions": row["conditions"] or None, "sha256": None}
        content = json.dumps(values, sort_keys=True).encode()
        prompts[row["position"]] = Prompt(hashlib.sha256(content).hexdigest(), row["sha256"])
    return prompts


def new_events(source: Session, target: Session) -> list[ReviewEventRow]:
    """Return the entries of the file's review log that are not here."""
    new: list[ReviewEventRow] = []
    for use in source.scalars(select(ReviewEventRow.use_id).distinct().order_by(ReviewEventRow.use_id)):
        log = select(ReviewEventRow).where(ReviewEventRow.use_id == use).order_by(ReviewEventRow.sequence)
        new += _continued(f"the use '{use}'", source.scalars(log).all(), target.scalars(log).all())
    return new


def new_changes(source: Session, target: Session) -> list[ChangeRow]:
    """Return new changes, except those to subjects that exist here but were deleted in the file."""
    new: list[ChangeRow] = []
    subjects = select(ChangeRow.kind, ChangeRow.subject).distinct().order_by(ChangeRow.subject)
    for kind, subject in source.execute(subjects):
        model = RunRow if kind == "run" else ExperimentRow
        if source.get(model, subject) is None and target.get(model, subject) is not None:
            continue
        log = select(ChangeRow).where(ChangeRow.subject == subject).order_by(ChangeRow.sequence)
        new += _continued(f"the {kind} {subject}", source.scalars(log).all(), target.scalars(log).all())
    return new


def _continued(what: str, incoming: Sequence[Entry], existing: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries that the file's log adds to the existing one.

    Raises ``InvalidSetting`` if neither continues the other.
    """
    logs = [[row_values(entry, "id") for entry in log] for log in (incoming, existing)]
    if any(left != right for left, right in zip(*logs, strict=False)):
        raise Taken(
            f"Nothing was imported: {what} has another history here than in the file, and a log is never rewritten. "
            "Import the file into an empty database instead."
        )
    return incoming[len(existing) :]
