"""What was generated, prompt by prompt, and the trace of every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import Select, func, or_, select, update

from fsd_core.decoding.trace import StepRecord, pack, unpack
from fsd_core.errors import DatabaseUnavailable
from fsd_core.tracking.database.models import Generation, Run, Trace
from fsd_core.tracking.database.store import Store, found, unknown
from fsd_core.tracking.database.views import generation_view, storable
from fsd_core.tracking.records import GenerationRecord, GenerationView

_BATCH = 50  # traces read at once


class GenerationStore(Store):
    def record_generation(self, run_id: str, record: GenerationRecord) -> None:
        """Writes a prompt, its trace and the run's progress: all or nothing. A prompt recorded before is left alone."""
        data, checksum = pack(record.records)
        values = {f.name: getattr(record, f.name) for f in fields(record) if f.name != "records"}
        values = {name: storable(value) if isinstance(value, str) else value for name, value in values.items()}
        with self._database.session() as session:
            # The lock on the run's row makes two recorders take turns; SQLite has one writer anyway.
            if session.scalar(select(Run.id).where(Run.id == run_id).with_for_update()) is None:
                raise unknown("run", run_id)
            mine = Generation.run_id == run_id
            if session.scalar(select(Generation.id).where(mine, Generation.position == record.position)) is not None:
                return
            session.add(Generation(run_id=run_id, **values, trace=Trace(data=data, sha256=checksum)))
            session.flush()
            run = found(session, Run, run_id, "run")
            run.prompts_done = session.scalar(select(func.count(Generation.id)).where(mine)) or 0

    def set_scores(self, run_id: str, scores: Mapping[int, tuple[str, str | None]], metrics: dict[str, Any]) -> None:
        """Replaces outcome and answer of generations, by their ids, and the run's metrics; MLflow gets it anew."""
        with self._database.session() as session:
            for id, (outcome, answer) in scores.items():
                values = {"outcome": outcome, "answer": storable(answer)}
                session.execute(
                    update(Generation).where(Generation.id == id, Generation.run_id == run_id).values(values)
                )
            run = found(session, Run, run_id, "run")
            run.metrics, run.mlflow_synced_at = storable(metrics), None

    def done_positions(self, run_id: str) -> set[int]:
        """The prompts that need not be done again."""
        with self._database.session(readonly=True) as session:
            return set(session.scalars(select(Generation.position).where(Generation.run_id == run_id)))

    def generations(
        self,
        run_id: str,
        *,
        outcome: str | None = None,
        search: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[GenerationView]:
        """In order of position. ``search`` looks into the prompt, the text and the answer."""
        statement = _filtered(select(Generation), run_id, outcome, search).order_by(Generation.position)
        with self._database.session(readonly=True) as session:
            return [generation_view(row) for row in session.scalars(statement.limit(limit).offset(offset))]

    def count_generations(self, run_id: str, *, outcome: str | None = None, search: str | None = None) -> int:
        with self._database.session(readonly=True) as session:
            return session.scalar(_filtered(select(func.count(Generation.id)), run_id, outcome, search)) or 0

    def trace(self, generation_id: int) -> list[StepRecord]:
        """Every round of a generation. Raises ``UnknownName``, or ``DatabaseUnavailable`` if its bytes are damaged."""
        with self._database.session(readonly=True) as session:
            row = found(session, Trace, generation_id, "trace of generation")
            return _unpacked(row.data, row.sha256)

    def traces(self, run_id: str) -> Iterator[tuple[int, list[StepRecord]]]:
        """Position and rounds of every prompt of a run, in order; read in batches, so a run need not fit in memory."""
        last = -1
        while True:
            statement = (
                select(Generation.position, Trace.data, Trace.sha256)
                .join(Trace, Trace.generation_id == Generation.id)
                .where(Generation.run_id == run_id, Generation.position > last)
                .order_by(Generation.position)
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


def _unpacked(data: bytes, checksum: str) -> list[StepRecord]:
    try:
        return unpack(data, checksum)
    except ValueError as error:
        raise DatabaseUnavailable(str(error)) from error


def _filtered(statement: Select, run_id: str, outcome: str | None, search: str | None) -> Select:
    statement = statement.where(Generation.run_id == run_id)
    if outcome is not None:
        statement = statement.where(Generation.outcome == outcome)
    if search and search.strip():
        places = (Generation.prompt, Generation.text, Generation.answer)
        needle = storable(search.strip())
        statement = statement.where(or_(*(place.icontains(needle, autoescape=True) for place in places)))
    return statement
