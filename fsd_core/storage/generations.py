"""Generations, prompt by prompt, and the trace of every round."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, case, delete, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from fsd_core.decoding.trace import RoundRecord, pack_rounds, unpack
from fsd_core.errors import DataDamaged, UnknownName
from fsd_core.frozen import built
from fsd_core.metrics import Conditions, foreign_ratios
from fsd_core.storage.column_types import bounded
from fsd_core.storage.opening import Store, changed, get_row, unknown
from fsd_core.storage.records import GenerationRecord, GenerationView, PromptCounts
from fsd_core.storage.runs import LONGEST_SEARCH, generation_view
from fsd_core.storage.tables import GenerationRow, MeasurementSessionRow, RunRow, TraceRow, now

_BATCH = 50  # traces read at once


class GenerationStore(Store):
    def record_generation(self, run_id: str, record: GenerationRecord, conditions: Conditions | None = None) -> None:
        """Record a prompt, its trace and the run's progress, all or nothing. A prompt recorded before is left alone.

        ``conditions`` are those under which it was measured. Without them it belongs to no measurement session. Raises
        ``InvalidSetting`` for a figure that no import would take.
        """
        columns = record.columns()
        figures = {name: columns[name] for name in bounded(GenerationRow).model_fields}
        built(bounded(GenerationRow), lambda path: f"The value {path[0]} of prompt {record.position + 1}", figures)
        data, checksum = pack_rounds(record.records)
        with self._database.session() as session:
            # The lock on the run's row makes two recorders take turns. SQLite has one writer anyway.
            run = session.scalar(select(RunRow).where(RunRow.id == run_id).with_for_update(of=RunRow))
            if run is None:
                raise unknown("run", run_id)
            same_prompt = GenerationRow.run_id == run_id, GenerationRow.position == record.position
            if session.scalar(select(GenerationRow.id).where(*same_prompt)) is not None:
                return
            measurement_session = None if conditions is None else _measurement_session(session, run, dict(conditions))
            session.add(
                GenerationRow(
                    run_id=run_id,
                    **columns,
                    measurement_session=measurement_session,
                    trace=TraceRow(data=data, sha256=checksum),
                )
            )
            run.prompts_done += 1
            run.decoding_seconds += record.seconds
            if run.losses:
                run.losses = {key: n for key, n in run.losses.items() if key != str(record.position)} or None

    def set_scores(
        self, run_id: str, scores: Mapping[int, tuple[str, str | None]], metrics: dict[str, Any],
        provenance: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Replace outcome and answer of generations, by their ids, and the run's metrics, and its provenance if it is
        given. MLflow then gets them again."""
        with self._database.session() as session:
            for id, (outcome, answer) in scores.items():
                values = {"outcome": outcome, "answer": answer, "error": None}
                session.execute(
                    update(GenerationRow).where(GenerationRow.id == id, GenerationRow.run_id == run_id).values(values)
                )
            run = get_row(session, RunRow, run_id, "run")
            run.metrics, run.mlflow_synced_at = metrics, None
            run.provenance = run.provenance if provenance is None else provenance

    def move_to_task(self, run_ids: Sequence[str], task: str) -> None:
        """Let runs, and their experiments, name another version of their task, which asks the same."""
        with self._database.session() as session:
            for run in session.scalars(select(RunRow).where(RunRow.id.in_(run_ids))):
                run.task, run.config = task, {**run.config, "task": task}
                if run.experiment is not None:
                    run.experiment.config = {**run.experiment.config, "task": task}

    def done_positions(self, run_id: str) -> set[int]:
        """Return the positions of the prompts that need not be done again."""
        with self._database.session(readonly=True) as session:
            return set(session.scalars(select(GenerationRow.position).where(GenerationRow.run_id == run_id)))

    def generations(
        self,
        run_id: str,
        *,
        position: int | None = None,
        outcome: str | None = None,
        search: str | None = None,
        worst_first: bool = False,
        limit: int | None = None,
        offset: int = 0,
        without: Collection[int] = (),
    ) -> list[GenerationView]:
        """Return generations in order of position, except those at the positions ``without``.

        ``worst_first``: lowest acceptance rate first, and those without drafted tokens last. ``search`` looks into the
        prompt, the text and the answer.
        """
        rate = GenerationRow.accepted / func.nullif(1.0 * GenerationRow.drafted, 0.0)
        order = (rate.asc().nulls_last(), GenerationRow.position) if worst_first else (GenerationRow.position,)
        statement = _filtered(select(GenerationRow), run_id, outcome, search).order_by(*order)
        if position is not None:
            statement = statement.where(GenerationRow.position == position)
        if without:
            statement = statement.where(GenerationRow.position.not_in(without))
        with self._database.session(readonly=True) as session:
            return [generation_view(row) for row in session.scalars(statement.limit(limit).offset(offset))]

    def prompts(self, run_ids: Iterable[str]) -> dict[str, dict[int, PromptCounts]]:
        """Return the counts of the prompts of some runs, by run and position, in order of position."""
        result: dict[str, dict[int, PromptCounts]] = {run_id: {} for run_id in run_ids}
        names = [f.name for f in fields(PromptCounts)][: -1 if foreign_ratios() else -2]
        columns = GenerationRow.run_id, GenerationRow.position, *(getattr(GenerationRow, name) for name in names)
        statement = select(*columns).where(GenerationRow.run_id.in_(result)).order_by(GenerationRow.position)
        with self._database.session(readonly=True) as session:
            for run_id, position, *counts in session.execute(statement):
                result[run_id][position] = PromptCounts(*counts)
        return result

    def differing_texts(self, run_ids: Iterable[str], baseline_ids: Iterable[str]) -> dict[str, int]:
        """Return how many prompts each run did not answer with the text of a baseline, by position in the task.

        Failed prompts count as different. Runs without a prompt in common with a baseline are left out.
        """
        baseline = aliased(GenerationRow)
        failed = or_(GenerationRow.outcome == "failed", baseline.outcome == "failed")
        differs = case((or_(failed, GenerationRow.text != baseline.text), 1), else_=0)
        statement = (
            select(GenerationRow.run_id, func.sum(differs))
            .join(baseline, baseline.position == GenerationRow.position)
            .where(GenerationRow.run_id.in_(list(run_ids)), baseline.run_id.in_(list(baseline_ids)))
            .group_by(GenerationRow.run_id)
        )
        with self._database.session(readonly=True) as session:
            return {run_id: int(number) for run_id, number in session.execute(statement)}

    def answers_that_differ(
        self, run_ids: Collection[str], baseline_ids: Collection[str]
    ) -> set[tuple[str, str, int]]:  # fmt: skip
        """Return where a run and a baseline wrote other texts for one prompt: their ids, and its position."""
        baseline = aliased(GenerationRow)
        statement = (
            select(GenerationRow.run_id, baseline.run_id, GenerationRow.position)
            .join(baseline, baseline.position == GenerationRow.position)
            .where(GenerationRow.run_id.in_(run_ids), baseline.run_id.in_(baseline_ids))
            .where(GenerationRow.text != baseline.text)
        )
        with self._database.session(readonly=True) as session:
            return {(run, other, position) for run, other, position in session.execute(statement)}

    def scores(self, run_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return each run's numbers of solved and of done prompts, except for runs with no done or with unscored
        prompts."""
        solved = func.sum(case((GenerationRow.outcome == "correct", 1), else_=0))
        unscored = func.sum(case((GenerationRow.outcome == "unscored", 1), else_=0))
        statement = select(GenerationRow.run_id, solved, func.count(), unscored).group_by(GenerationRow.run_id)
        with self._database.session(readonly=True) as session:
            rows = session.execute(statement.where(GenerationRow.run_id.in_([*run_ids])))
            return {
                run_id: (int(num_solved), int(num_done))
                for run_id, num_solved, num_done, num_unscored in rows
                if not num_unscored
            }

    def session_positions(self, run_id: str) -> dict[int, list[int]]:
        """Return the positions of the prompts of each measurement session of a run, by its id, in order."""
        statement = select(GenerationRow.sitting_id, GenerationRow.position).where(GenerationRow.run_id == run_id)
        result: dict[int, list[int]] = {}
        with self._database.session(readonly=True) as session:
            for sitting_id, position in session.execute(statement.order_by(GenerationRow.position)):
                if sitting_id is not None:
                    result.setdefault(sitting_id, []).append(position)
        return result

    def count_generations(
        self, run_id: str, *, outcome: str | None = None, search: str | None = None, without: Collection[int] = ()
    ) -> int:
        statement = _filtered(select(func.count(GenerationRow.id)), run_id, outcome, search)
        if without:
            statement = statement.where(GenerationRow.position.not_in(without))
        with self._database.session(readonly=True) as session:
            return session.scalar(statement) or 0

    def trace(self, generation_id: int) -> list[RoundRecord]:
        """Return every round of a generation. Raises ``UnknownName`` if they were deleted, or ``DataDamaged``."""
        with self._database.session(readonly=True) as session:
            row = session.get(TraceRow, generation_id)
            if row is None:
                raise UnknownName(
                    "The rounds of this text are no longer kept: they were deleted to save room (FSD_KEEP_TRACES_DAYS)."
                )
            return _unpacked(row.data, row.sha256)

    def traces(self, run_id: str) -> Iterator[tuple[int, list[RoundRecord]]]:
        """Yield position and rounds of every prompt of a run, in order. Reads in batches, so a run need not fit in
        memory."""
        last = -1
        while True:
            statement = (
                select(GenerationRow.position, TraceRow.data, TraceRow.sha256)
                .join(TraceRow, TraceRow.generation_id == GenerationRow.id)
                .where(GenerationRow.run_id == run_id, GenerationRow.position > last)
                .order_by(GenerationRow.position)
                .limit(_BATCH)
            )
            # Closed before anything is yielded: an open reader keeps SQLite's writers from committing.
            with self._database.session(readonly=True) as session:
                rows = session.execute(statement).all()
            for position, data, checksum in rows:
                yield position, _unpacked(data, checksum)
            if len(rows) < _BATCH:
                return
            last = rows[-1][0]

    def prune_traces(self, older_than: timedelta) -> int:
        """Delete the traces of runs that ended longer ago than this, and return their number. Texts and figures
        stay."""
        old = select(TraceRow.generation_id).join(TraceRow.generation).join(RunRow, RunRow.id == GenerationRow.run_id)
        batch = old.where(RunRow.finished_at < now() - older_than).limit(20 * _BATCH)
        total = 0
        while True:  # in batches, so that nobody waits long
            with self._database.session() as session:
                ids = list(session.scalars(batch))
                total += changed(session, delete(TraceRow).where(TraceRow.generation_id.in_(ids)))
            if not ids:
                return total

    def has_traces(self, run_id: str) -> bool:
        """Whether the rounds of all prompts of a run are stored."""
        missing = select(GenerationRow.id).outerjoin(TraceRow, TraceRow.generation_id == GenerationRow.id)
        missing = missing.where(GenerationRow.run_id == run_id, TraceRow.generation_id.is_(None))
        with self._database.session(readonly=True) as session:
            return session.scalar(missing.limit(1)) is None


def _measurement_session(session: Session, run: RunRow, conditions: dict[str, Any]) -> MeasurementSessionRow:
    """Return the run's measurement session with these conditions, which is added if missing.

    Prompts measured before such sessions were recorded then get one with unknown conditions.
    """
    for measurement_session in run.measurement_sessions:
        if measurement_session.conditions == conditions:
            return measurement_session
    if not run.measurement_sessions:
        earlier = GenerationRow.run_id == run.id, GenerationRow.sitting_id.is_(None), GenerationRow.seconds > 0
        if session.scalar(select(GenerationRow.id).where(*earlier).limit(1)) is not None:
            run.measurement_sessions.append(
                unrecorded := MeasurementSessionRow(conditions={}, started_at=run.started_at)
            )
            session.flush()
            session.execute(update(GenerationRow).where(*earlier).values(sitting_id=unrecorded.id))
    run.measurement_sessions.append(added := MeasurementSessionRow(conditions=conditions, started_at=now()))
    return added


def _unpacked(data: bytes, checksum: str) -> list[RoundRecord]:
    try:
        return unpack(data, checksum)
    except ValueError as error:
        raise DataDamaged(str(error)) from error


def _filtered(statement: Select, run_id: str, outcome: str | None, search: str | None) -> Select:
    statement = statement.where(GenerationRow.run_id == run_id)
    if outcome == "unread":
        statement = statement.where(GenerationRow.unread)
    elif outcome is not None:
        statement = statement.where(GenerationRow.outcome == outcome)
    if search and search.strip():
        columns = (GenerationRow.prompt, GenerationRow.text, GenerationRow.answer)
        needle = search.strip()[:LONGEST_SEARCH]
        statement = statement.where(or_(*(column.icontains(needle, autoescape=True) for column in columns)))
    return statement
