"""Saved views: one of a name on each page, shared by all."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from fsd_core.errors import Refused, Taken
from fsd_core.roles import Person, folded
from fsd_core.storage.database.store import Store, changed, get_row, insert
from fsd_core.storage.database.tables import SavedViewRow, now
from fsd_core.storage.saved_views import SavedView, checked_view_name, checked_view_page, checked_view_query


class ViewStore(Store):
    def save_view(self, id: str, page: str, name: str, query: str, person: Person) -> SavedView:
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
            added = insert(session, SavedViewRow).values(id=id, folded=key, who=person.name, at=now(), **values)
            if not changed(session, added.on_conflict_do_nothing()):  # the name or the id is there
                row = _named(session, page, key) or session.get_one(SavedViewRow, id)
                _refuse_others(row, person)
                row.query, row.at = values["query"], now()
            row = _named(session, page, key) or session.get_one(SavedViewRow, id)
            return _view(row)

    def saved_views(self, page: str | None = None) -> list[SavedView]:
        """Return the views of a page, or of all, in the order of their names."""
        statement = select(SavedViewRow).order_by(SavedViewRow.page, SavedViewRow.folded)
        if page is not None:
            statement = statement.where(SavedViewRow.page == page)
        with self._database.session(readonly=True) as session:
            return [_view(row) for row in session.scalars(statement)]

    def rename_view(self, id: str, name: str, person: Person) -> SavedView:
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
            return _view(row)

    def delete_view(self, id: str, person: Person) -> SavedView:
        """Delete a view and return it. What it showed stays. Raises ``UnknownName``, and ``Refused`` for somebody
        else's."""
        with self._database.session() as session:
            row = get_row(session, SavedViewRow, id, "view")
            _refuse_others(row, person)
            session.execute(delete(SavedViewRow).where(SavedViewRow.id == id))
            return _view(row)


def _named(session: Session, page: str, key: str) -> SavedViewRow | None:
    return session.scalars(
        select(SavedViewRow).where(SavedViewRow.page == page, SavedViewRow.folded == key)
    ).one_or_none()


def _refuse_others(row: SavedViewRow, person: Person) -> None:
    if not _view(row).may_change(person):
        raise Refused(f"{row.who} saved the view “{row.name}”: only they and admins may change it. Use another name.")


def _view(row: SavedViewRow) -> SavedView:
    return SavedView(row.id, row.page, row.name, row.query, row.who, row.at)
