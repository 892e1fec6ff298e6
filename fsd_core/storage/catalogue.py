"""Things that people have named: each version stored once, by the hash of its content."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode
from weakref import WeakMethod

from pydantic import Field, StringConstraints, ValidationError
from sqlalchemy import Select, delete, func, or_, select
from sqlalchemy.orm import Session

from fsd_core.config.model_names import take_names
from fsd_core.errors import (
    DataDamaged,
    FsdError,
    Malformed,
    NotGiven,
    OutOfRange,
    Refused,
    Taken,
    UnknownChoice,
    UnknownName,
)
from fsd_core.frozen import Frozen, content_hash, text_hash
from fsd_core.roles import Person, folded
from fsd_core.rules import Served
from fsd_core.storage.opening import Database, Store, changed, dialect_insert, get_row, storable, unknown
from fsd_core.storage.records import TaskView
from fsd_core.storage.tables import EngineReadingRow, OwnPairRow, ReportRow, SavedViewRow, ServedEngineRow, TaskRow, now
from fsd_core.texts import whole

LONGEST_TITLE = 120
_COLUMNS = (
    TaskRow.name, TaskRow.version, TaskRow.title, TaskRow.scorer, TaskRow.prompts,
    TaskRow.added_by, TaskRow.added_at,
)  # fmt: skip


class TaskStore(Store):
    def add_task(self, name: str, content: str, *, title: str, scorer: str, prompts: int, who: str) -> TaskView:
        """Store a version of a task, and make it the one that the name refers to.

        Content that exists under this name is stored once.
        """
        version, moment = text_hash(content), now()
        updated = {"title": whole(title)[:LONGEST_TITLE], "added_by": whole(who), "added_at": moment}
        fixed = {"name": name, "version": version, "content": content, "scorer": scorer, "prompts": prompts}
        with self._database.session() as session:
            row = dialect_insert(session, TaskRow).values(
                fixed | updated
            )  # another process may add the same at this moment
            session.execute(row.on_conflict_do_update(index_elements=["name", "version"], set_=updated))
        return TaskView(name, version, updated["title"], scorer, prompts, updated["added_by"], moment)

    def task_versions(self, name: str | None = None) -> list[TaskView]:
        """Return the versions of a task, or of all, latest first."""
        statement = select(*_COLUMNS).order_by(TaskRow.added_at.desc(), TaskRow.name, TaskRow.version)
        if name is not None:
            statement = statement.where(TaskRow.name == name)
        with self._database.session(readonly=True) as session:
            return [TaskView(*row) for row in session.execute(statement)]

    def task_content(self, name: str, version: str) -> str:
        """Return the lines of a version.

        Raises ``UnknownName``, and ``DataDamaged`` if the lines are not what was added.
        """
        with self._database.session(readonly=True) as session:
            row = session.get(TaskRow, (name, version))
            content = None if row is None else row.content
        if content is None:
            raise unknown("task", f"{name}@{version}")
        if text_hash(content) != version:
            raise DataDamaged(
                f"The prompts of the task '{name}@{version}' are damaged: restore the database from a backup."
            )
        return content


class OwnPairStore(Store):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._names: tuple[float, Mapping[str, str]] = 0.0, {}
        take_names(WeakMethod(self.given_names))

    def given_names(self) -> Mapping[str, str]:
        """Return the names that people gave to pairs, by the names that say the models: of several the first given.

        Another process's are up to a second old. It is empty while the database cannot be read.
        """
        if time.monotonic() > self._names[0]:
            try:
                latest_first = sorted(self.own_pairs(), key=lambda pair: pair.added_at, reverse=True)
            except FsdError:
                latest_first = []
            self._names = time.monotonic() + 1, {pair.models: pair.name for pair in latest_first}
        return self._names[1]

    def add_pair(self, name: str, models: str, who: str) -> OwnPairRow:
        """Store a version of a named pair, and make it the one that the name refers to.

        ``models``: the name that says which models it is made of. What the name refers to already stays as it is.
        """
        if same := next((pair for pair in self.own_pairs() if (pair.name, pair.models) == (name, models)), None):
            return same
        values = {"name": name, "version": text_hash(models), "models": models}
        updated = {"added_by": who, "added_at": now()}
        with self._database.session() as session:
            row = dialect_insert(session, OwnPairRow).values(values | updated)  # another process may add the same now
            session.execute(row.on_conflict_do_update(index_elements=["name", "version"], set_=updated))
        self._names = 0.0, {}
        return OwnPairRow(**values, **updated)

    def own_pairs(self) -> list[OwnPairRow]:
        """Return the latest version of each named pair, in the order of their names."""
        statement = select(OwnPairRow).order_by(OwnPairRow.name, OwnPairRow.added_at.desc())
        latest: dict[str, OwnPairRow] = {}
        with self._database.session(readonly=True) as session:
            for row in session.scalars(statement):
                latest.setdefault(row.name, row)
        return list(latest.values())

    def pair_versions(self, name: str) -> list[str]:
        """Return the models that a name has referred to, the latest first."""
        statement = select(OwnPairRow.models).where(OwnPairRow.name == name).order_by(OwnPairRow.added_at.desc())
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement))

    def remove_pair(self, name: str) -> None:
        """Forget a name with all its versions. What was measured stays. Raises ``UnknownName``."""
        with self._database.session() as session:
            if not changed(session, delete(OwnPairRow).where(OwnPairRow.name == name)):
                raise unknown("pair", name)
        self._names = 0.0, {}


class ServedEngineStore(Store):
    def add_engine(
        self, served: Served, key_variable: str, who: str, *, hardware: str = "", guarded: bool = False
    ) -> ServedEngineRow:
        """Store an endpoint, in place of one of its name. Runs keep the engine that they were measured with."""
        values = {"served": served, "key_variable": key_variable, "added_by": who}
        values |= {"added_at": now(), "hardware": hardware, "guarded": guarded}
        with self._database.session() as session:
            row = dialect_insert(session, ServedEngineRow).values(name=served.endpoint, **values)
            session.execute(row.on_conflict_do_update(index_elements=["name"], set_=values))
        return self.engine(served.endpoint)

    def engines(self) -> list[ServedEngineRow]:
        """Return all endpoints, in the order of their names."""
        with self._database.session(readonly=True) as session:
            return list(session.scalars(select(ServedEngineRow).order_by(ServedEngineRow.name)))

    def engine(self, name: str) -> ServedEngineRow:
        """Return an endpoint. Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            row = session.get(ServedEngineRow, name)
            if row is None:
                raise _unknown(session, name)
            return row

    def remove_engine(self, name: str) -> None:
        """Forget an endpoint. What was measured stays. Raises ``UnknownName``."""
        with self._database.session() as session:
            if not changed(session, delete(ServedEngineRow).where(ServedEngineRow.name == name)):
                raise _unknown(session, name)

    def record_reading(self, run_id: str, id: str, reading: dict[str, Any]) -> None:
        """Record what counters said about a stretch of a run, in place of an earlier reading of the same stretch."""
        values = {"reading": reading, "at": now()}
        with self._database.session() as session:
            row = dialect_insert(session, EngineReadingRow).values(id=id, run_id=run_id, **values)
            session.execute(row.on_conflict_do_update(index_elements=["id"], set_=values))

    def readings(self, run_id: str) -> list[dict[str, Any]]:
        """Return the readings of a run, in the order of their stretches."""
        statement = select(EngineReadingRow.reading).where(EngineReadingRow.run_id == run_id)
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement.order_by(EngineReadingRow.at, EngineReadingRow.id)))


def _unknown(session: Session, name: str) -> UnknownName:
    names = session.scalars(select(ServedEngineRow.name).order_by(ServedEngineRow.name)).all()
    known = f"expected {' or '.join(names)}" if names else "none was added yet, see 'endpoints add' or Running engines"
    return UnknownName(f"There is no endpoint '{name}': {known}.")


LONGEST_REPORT_TITLE = 200
LONGEST_REPORT_TEXT = 50_000
MOST_REPORT_RUNS = 100

_Id = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]


class ReportRun(Frozen):
    """A run as it was. ``digest`` identifies its measurement."""

    id: _Id
    name: str
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]


class ReportTable(Frozen):
    """A table as texts: a title for each column, and a text for each column of each row."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


class ReportFigure(Frozen):
    """A figure as the data that Plotly draws it from."""

    title: str
    plot: dict[str, Any]


class ReportContent(Frozen):
    """All that is frozen. ``text`` is Markdown. ``query`` is that of the comparison on the page Compare."""

    title: str = Field(title="Title", min_length=1, max_length=LONGEST_REPORT_TITLE)
    text: str = Field(title="Text", max_length=LONGEST_REPORT_TEXT)
    subject: str
    query: str
    runs: list[ReportRun] = Field(title="Runs", min_length=1, max_length=MOST_REPORT_RUNS)
    figures: list[ReportFigure]
    tables: list[ReportTable]


class ReportView(NamedTuple):
    """A report with what it holds."""

    row: ReportRow
    content: ReportContent


def _searched(statement: Select, search: str) -> Select:
    for word in search.split():
        columns = ReportRow.title, ReportRow.who
        statement = statement.where(or_(*(column.icontains(word, autoescape=True) for column in columns)))
    return statement


class ReportStore(Store):
    def add_report(self, id: str, content: ReportContent, who: str) -> None:
        """Store a report under an id that the caller has made. A second one of the same id is not stored."""
        content = ReportContent.model_validate(storable(content.as_json()))
        values = {"title": content.title, "version": content_hash(content), "content": content.as_json()}
        with self._database.session() as session:
            if session.get(ReportRow, id) is None:
                session.add(ReportRow(id=id, who=who, **values))

    def reports(
        self, limit: int = 100, offset: int = 0, search: str = "", *, order_by: str = "at", descending: bool = True
    ) -> list[ReportRow]:
        """Return the reports that match, in order of ``order_by``: ``at``, ``title`` or ``who``."""
        column = {"at": ReportRow.at, "title": func.lower(ReportRow.title), "who": func.lower(ReportRow.who)}[order_by]
        statement = _searched(select(ReportRow), search).order_by(column.desc() if descending else column, ReportRow.id)
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement.limit(limit).offset(offset)))

    def count_reports(self, search: str = "") -> int:
        """Return the number of reports that match."""
        with self._database.session(readonly=True) as session:
            return session.scalar(_searched(select(func.count(ReportRow.id)), search)) or 0

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
            return ReportView(row, content)

    def delete_report(self, id: str) -> None:
        """Delete a report. Its runs stay. Raises ``UnknownName``."""
        with self._database.session() as session:
            if not changed(session, delete(ReportRow).where(ReportRow.id == id)):
                raise unknown("report", id)


VIEW_PAGES = ("runs", "compare")
"""pages whose whole state is in their address, by their paths"""
LONGEST_VIEW_NAME = 80
LONGEST_VIEW_QUERY = 8_000


def checked_view_page(page: str) -> str:
    """Return the page. Raises ``InvalidSetting`` for one that has no views."""
    if page not in VIEW_PAGES:
        raise UnknownChoice(f"The page {page[:40]!r} has no saved views: expected {' or '.join(VIEW_PAGES)}.")
    return page


def checked_view_name(name: str) -> str:
    """Return the name of a view, stripped, in the form NFKC. Raises ``InvalidSetting``."""
    name = unicodedata.normalize("NFKC", name).strip()
    if not name:
        raise NotGiven("The view needs a name: type one.")
    if len(name) > LONGEST_VIEW_NAME or not name.isprintable():
        raise Malformed(
            f"The name {name[:40]!r} cannot be used for a view: expected 1 to {LONGEST_VIEW_NAME} printable characters."
        )
    return name


def checked_view_query(query: str) -> str:
    """Return the query of a page's address, without its question mark and in one spelling. Raises
    ``InvalidSetting``."""
    if len(query) > LONGEST_VIEW_QUERY:
        raise OutOfRange(
            f"The view has an address of {len(query):,} characters: choose less, for {LONGEST_VIEW_QUERY:,} are kept."
        )
    try:
        values = parse_qsl(query.removeprefix("?"), strict_parsing=True, max_num_fields=100) if query else []
    except ValueError:
        raise Malformed(
            "The view's address cannot be read: expected what stands behind the question mark of the page's address, "
            "such as sort=accuracy."
        ) from None
    if not values:
        raise NotGiven("There is nothing to keep yet: choose runs, filters or an order first.")
    return urlencode(values, safe=",")


class ViewStore(Store):
    def save_view(self, id: str, page: str, name: str, query: str, person: Person) -> SavedViewRow:
        """Store a view under an id that the caller has made, or replace what the view of this name on the page holds.

        Done twice, it is done once. Raises ``InvalidSetting``, and ``Refused`` where the name is that of somebody
        else's view.
        """
        values = {
            "page": checked_view_page(page), "name": checked_view_name(name),
            "query": checked_view_query(query),
        }  # fmt: skip
        key = folded(values["name"])
        with self._database.session() as session:
            added = dialect_insert(session, SavedViewRow).values(id=id, folded=key, who=person.name, at=now(), **values)
            if not changed(session, added.on_conflict_do_nothing()):  # the name or the id is there
                row = _named(session, page, key) or session.get_one(SavedViewRow, id)
                _refuse_others(row, person)
                row.query, row.at = values["query"], now()
            return _named(session, page, key) or session.get_one(SavedViewRow, id)

    def saved_views(self, page: str | None = None) -> list[SavedViewRow]:
        """Return the views of a page, or of all, in the order of their names."""
        statement = select(SavedViewRow).order_by(SavedViewRow.page, SavedViewRow.folded)
        if page is not None:
            statement = statement.where(SavedViewRow.page == page)
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement))

    def rename_view(self, id: str, name: str, person: Person) -> SavedViewRow:
        """Give a view another name. Raises ``UnknownName``, ``Refused`` for somebody else's view, and
        ``InvalidSetting`` for a name that cannot be used or is taken."""
        name = checked_view_name(name)
        with self._database.session() as session:
            row = get_row(session, SavedViewRow, id, "view")
            _refuse_others(row, person)
            other = _named(session, row.page, folded(name))
            if other is not None and other.id != id:
                raise Taken(f"A view is called “{other.name}” already: choose another name, or delete it.")
            row.name, row.folded = name, folded(name)
            return row

    def delete_view(self, id: str, person: Person) -> SavedViewRow:
        """Delete a view and return it. What it showed stays. Raises ``UnknownName``, and ``Refused`` for somebody
        else's."""
        with self._database.session() as session:
            row = get_row(session, SavedViewRow, id, "view")
            _refuse_others(row, person)
            session.execute(delete(SavedViewRow).where(SavedViewRow.id == id))
            return row


def _named(session: Session, page: str, key: str) -> SavedViewRow | None:
    return session.scalars(
        select(SavedViewRow).where(SavedViewRow.page == page, SavedViewRow.folded == key)
    ).one_or_none()


def _refuse_others(row: SavedViewRow, person: Person) -> None:
    if not row.may_change(person):
        raise Refused(f"{row.who} saved the view “{row.name}”: only they and admins may change it. Use another name.")
