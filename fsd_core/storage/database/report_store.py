"""Reports, each stored once and never changed."""

from __future__ import annotations

from pydantic import ValidationError
from sqlalchemy import delete, func, select

from fsd_core.errors import DataDamaged
from fsd_core.frozen import content_hash
from fsd_core.storage.database.connection import storable
from fsd_core.storage.database.store import Store, changed, get_row, unknown
from fsd_core.storage.database.tables import ReportRow
from fsd_core.storage.report_content import ReportContent, ReportName, ReportView

_NAME = (ReportRow.id, ReportRow.title, ReportRow.version, ReportRow.who, ReportRow.at)


class ReportStore(Store):
    def add_report(self, id: str, content: ReportContent, who: str) -> None:
        """Store a report under an id that the caller has made. A second one of the same id is not stored."""
        content = ReportContent.model_validate(storable(content.as_json()))
        values = {"title": content.title, "version": content_hash(content), "content": content.as_json()}
        with self._database.session() as session:
            if session.get(ReportRow, id) is None:
                session.add(ReportRow(id=id, who=who, **values))

    def reports(self, limit: int = 100, offset: int = 0) -> list[ReportName]:
        """Return the reports, newest first."""
        statement = select(*_NAME).order_by(ReportRow.at.desc(), ReportRow.id).limit(limit).offset(offset)
        with self._database.session(readonly=True) as session:
            return [ReportName(*row) for row in session.execute(statement)]

    def count_reports(self) -> int:
        """Return the number of reports."""
        with self._database.session(readonly=True) as session:
            return session.scalar(select(func.count(ReportRow.id))) or 0

    def report(self, id: str) -> ReportView:
        """Return a report. Raises ``UnknownName``, and ``DataDamaged`` if it is not what was saved."""
        with self._database.session(readonly=True) as session:
            row = get_row(session, ReportRow, id, "report")
            try:
                content = ReportContent.model_validate(row.content)
            except ValidationError:
                content = None
            if content is None or content_hash(content) != row.version:
                raise DataDamaged(f"The report {id} is not what was saved: restore the database from a backup.")
            return ReportView(row.id, row.title, row.version, row.who, row.at, content)

    def delete_report(self, id: str) -> None:
        """Delete a report. Its runs stay. Raises ``UnknownName``."""
        with self._database.session() as session:
            if not changed(session, delete(ReportRow).where(ReportRow.id == id)):
                raise unknown("report", id)
