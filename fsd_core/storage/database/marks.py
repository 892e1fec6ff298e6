"""Marks on outputs: each person's verdict, good or bad, with a note."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select

from fsd_core.errors import OutOfRange, UnknownChoice, UnknownName
from fsd_core.roles import same_name
from fsd_core.storage.database.store import Store
from fsd_core.storage.database.tables import GenerationRow, MarkRow, now
from fsd_core.storage.records import MarkView
from fsd_core.storage.review_events import LONGEST_TEXT

VERDICTS = ("good", "bad")


class MarkStore(Store):
    def mark(self, run_id: str, position: int, who: str, verdict: str | None, note: str = "") -> None:
        """Replace a person's mark on an output. Without a verdict and a note the mark is removed.

        Raises ``UnknownName`` for an output that does not exist, ``InvalidSetting`` for another verdict or a note that
        is too long.
        """
        if verdict not in (None, *VERDICTS):
            raise UnknownChoice(f"The mark is {str(verdict)[:20]!r}: expected {' or '.join(VERDICTS)}.")
        if len(note) > LONGEST_TEXT:
            raise OutOfRange(f"The note has {len(note):,} characters: expected at most {LONGEST_TEXT:,}.")
        with self._database.session() as session:
            generation = select(GenerationRow.id).where(
                GenerationRow.run_id == run_id, GenerationRow.position == position
            )
            if session.scalar(generation) is None:
                raise UnknownName("There is no such output: it was deleted, or the page is old. Reload it.")
            at_once = select(MarkRow.who).where(MarkRow.run_id == run_id, MarkRow.position == position)
            who = next((other for other in session.scalars(at_once) if same_name(other, who)), who)
            if verdict or note:
                values = {"verdict": verdict, "note": note, "at": now()}
                session.merge(MarkRow(run_id=run_id, position=position, who=who, **values))
            elif (row := session.get(MarkRow, (run_id, position, who))) is not None:
                session.delete(row)

    def marks(self, run_ids: Iterable[str]) -> list[MarkView]:
        """Return everybody's marks on the outputs of runs, oldest first."""
        statement = select(MarkRow).where(MarkRow.run_id.in_(list(run_ids))).order_by(MarkRow.at, MarkRow.who)
        with self._database.session(readonly=True) as session:
            return [
                MarkView(row.run_id, row.position, row.who, row.verdict, row.note, row.at)
                for row in session.scalars(statement)
            ]
