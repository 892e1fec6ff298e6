"""Pairs that people have named: versions, each stored once, by the hash of the models that it is made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from weakref import WeakMethod

from sqlalchemy import delete, select

from fsd_core.config.model_names import take_names
from fsd_core.errors import FsdError
from fsd_core.frozen import text_hash
from fsd_core.storage.database.connection import Database
from fsd_core.storage.database.store import Store, changed, insert, unknown
from fsd_core.storage.database.tables import OwnPairRow, now
from fsd_core.storage.records import OwnPair


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

    def add_pair(self, name: str, models: str, who: str) -> OwnPair:
        """Store a version of a named pair, and make it the one that the name refers to.

        ``models``: the name that says which models it is made of. What the name refers to already stays as it is.
        """
        if same := next((pair for pair in self.own_pairs() if (pair.name, pair.models) == (name, models)), None):
            return same
        values = {"name": name, "version": text_hash(models), "models": models}
        updated = {"added_by": who, "added_at": now()}
        with self._database.session() as session:
            row = insert(session, OwnPairRow).values(values | updated)  # another process may add the same now
            session.execute(row.on_conflict_do_update(index_elements=["name", "version"], set_=updated))
        self._names = 0.0, {}
        return OwnPair(**values, **updated)

    def own_pairs(self) -> list[OwnPair]:
        """Return the latest version of each named pair, in the order of their names."""
        statement = select(OwnPairRow).order_by(OwnPairRow.name, OwnPairRow.added_at.desc())
        latest: dict[str, OwnPair] = {}
        with self._database.session(readonly=True) as session:
            for row in session.scalars(statement):
                latest.setdefault(row.name, OwnPair(row.name, row.version, row.models, row.added_by, row.added_at))
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
