"""Pairs that people have named: versions, each stored once, by the hash of the models that it is made of."""

from __future__ import annotations

from sqlalchemy import delete, select

from fsd_core.frozen import text_hash
from fsd_core.storage.database.store import Store, changed, insert, unknown
from fsd_core.storage.database.tables import OwnPairRow, now
from fsd_core.storage.records import OwnPair


class OwnPairStore(Store):
    def add_pair(self, name: str, models: str, who: str) -> OwnPair:
        """Store a version of a named pair, and make it the one that the name refers to.

        ``models``: the name that says which models it is made of. Models that exist under this name are stored once.
        """
        values = {"name": name, "version": text_hash(models), "models": models}
        updated = {"added_by": who, "added_at": now()}
        with self._database.session() as session:
            row = insert(session, OwnPairRow).values(values | updated)  # another process may add the same now
            session.execute(row.on_conflict_do_update(index_elements=["name", "version"], set_=updated))
        return OwnPair(**values, **updated)

    def own_pairs(self) -> list[OwnPair]:
        """Return the latest version of each named pair, in the order of their names."""
        statement = select(OwnPairRow).order_by(OwnPairRow.name, OwnPairRow.added_at.desc())
        latest: dict[str, OwnPair] = {}
        with self._database.session(readonly=True) as session:
            for row in session.scalars(statement):
                latest.setdefault(row.name, OwnPair(row.name, row.version, row.models, row.added_by, row.added_at))
        return list(latest.values())

    def remove_pair(self, name: str) -> None:
        """Forget a name with all its versions. What was measured stays. Raises ``UnknownName``."""
        with self._database.session() as session:
            if not changed(session, delete(OwnPairRow).where(OwnPairRow.name == name)):
                raise unknown("pair", name)
