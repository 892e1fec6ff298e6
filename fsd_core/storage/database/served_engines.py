"""Running engines that people have named, and what their counters said about runs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from fsd_core.errors import UnknownName
from fsd_core.rules import Served
from fsd_core.storage.database.store import Store, changed, insert
from fsd_core.storage.database.tables import EngineReadingRow, ServedEngineRow, now
from fsd_core.storage.records import ServedEngine


class ServedEngineStore(Store):
    def add_engine(
        self, served: Served, key_variable: str, who: str, *, hardware: str = "", guarded: bool = False
    ) -> ServedEngine:
        """Store an endpoint, in place of one of its name. Runs keep the engine that they were measured with."""
        values = {"served": served.as_json(), "key_variable": key_variable, "added_by": who}
        values |= {"added_at": now(), "hardware": hardware, "guarded": guarded}
        with self._database.session() as session:
            row = insert(session, ServedEngineRow).values(name=served.endpoint, **values)
            session.execute(row.on_conflict_do_update(index_elements=["name"], set_=values))
        return self.engine(served.endpoint)

    def engines(self) -> list[ServedEngine]:
        """Return all endpoints, in the order of their names."""
        with self._database.session(readonly=True) as session:
            return [_view(row) for row in session.scalars(select(ServedEngineRow).order_by(ServedEngineRow.name))]

    def engine(self, name: str) -> ServedEngine:
        """Return an endpoint. Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            row = session.get(ServedEngineRow, name)
            if row is None:
                raise _unknown(session, name)
            return _view(row)

    def remove_engine(self, name: str) -> None:
        """Forget an endpoint. What was measured stays. Raises ``UnknownName``."""
        with self._database.session() as session:
            if not changed(session, delete(ServedEngineRow).where(ServedEngineRow.name == name)):
                raise _unknown(session, name)

    def record_reading(self, run_id: str, id: str, reading: dict[str, Any]) -> None:
        """Record what counters said about a stretch of a run, in place of an earlier reading of the same stretch."""
        values = {"reading": reading, "at": now()}
        with self._database.session() as session:
            row = insert(session, EngineReadingRow).values(id=id, run_id=run_id, **values)
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


def _view(row: ServedEngineRow) -> ServedEngine:
    return ServedEngine(
        Served.model_validate(row.served), row.key_variable, row.added_by, row.added_at, row.hardware, row.guarded
    )
