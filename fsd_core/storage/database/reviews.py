"""The review log: events are appended and never changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fsd_core.errors import Overtaken, Taken
from fsd_core.roles import Person, same_name
from fsd_core.storage.database.connection import storable
from fsd_core.storage.database.store import Store
from fsd_core.storage.database.tables import ReviewEventRow, RunRow
from fsd_core.storage.records import LoggedEvent, same_weights
from fsd_core.storage.review_events import Alias, AliasMoved, Proposed, ReviewEvent, read_event

MOVES = AliasMoved.model_fields["kind"].default
_PROPOSED = Proposed.model_fields["kind"].default


class AliasNames(NamedTuple):
    """The aliases of one setting."""

    uses: dict[Alias, list[str]]
    """ids of the uses whose alias names it, by alias"""
    moves: int
    """number of moves, of all aliases, on which this is based"""


class ReviewStore(Store):
    def review_log(self, use_id: str | None = None) -> list[LoggedEvent]:
        """Return the events of one use, or of all, oldest first."""
        statement = select(ReviewEventRow).order_by(ReviewEventRow.id)
        if use_id is not None:
            statement = statement.where(ReviewEventRow.use_id == use_id)
        with self._database.session(readonly=True) as session:
            return [_view(row) for row in session.scalars(statement)]

    def named(self, setting_id: str, weights: Mapping[str, str]) -> AliasNames:
        """Return the uses for which the setting is candidate or approved, unless other ``weights`` of it are
        approved."""
        statement = select(ReviewEventRow).where(ReviewEventRow.kind == MOVES).order_by(ReviewEventRow.id)
        with self._database.session(readonly=True) as session:
            moves = [_view(row) for row in session.scalars(statement)]
        aliases: dict[tuple[str, Alias], AliasMoved] = {}
        for move in moves:
            if isinstance(move.event, AliasMoved):
                aliases[move.use_id, move.event.alias] = move.event
        uses: dict[Alias, list[str]] = {"candidate": [], "approved": []}
        for (use, alias), event in sorted(aliases.items(), key=lambda item: item[0]):
            if event.setting == setting_id and (not event.weights or same_weights(event.weights, weights)):
                uses[alias].append(use)
        return AliasNames(uses, len(moves))

    def last_review_event(self) -> int:
        """Return the id of the last event of all uses, or 0."""
        with self._database.session(readonly=True) as session:
            return session.scalar(select(func.max(ReviewEventRow.id))) or 0

    def review_events(self, after: int, limit: int) -> list[LoggedEvent]:
        """Return events of all uses whose ids are above ``after``, in order."""
        statement = select(ReviewEventRow).where(ReviewEventRow.id > after).order_by(ReviewEventRow.id).limit(limit)
        with self._database.session(readonly=True) as session:
            return [_view(row) for row in session.scalars(statement)]

    def uses_of_runs(self, run_ids: Collection[str]) -> list[str]:
        """Return the ids of the uses for which a setting was proposed with one of these runs as evidence."""
        statement = select(ReviewEventRow.use_id, ReviewEventRow.act).where(ReviewEventRow.kind == _PROPOSED)
        with self._database.session(readonly=True) as session:
            rows = session.execute(statement.order_by(ReviewEventRow.id)).all()
        named = (use for use, act in rows if not set(run_ids).isdisjoint((*act["runs"], *act["baselines"])))
        return list(dict.fromkeys(named))

    def stored_event(self, key: str, use_id: str, who: str, act: Mapping[str, Any]) -> LoggedEvent | None:
        """Return the event that one person's act with this key was stored as, if it was.

        Raises ``InvalidSetting`` if the key is that of something else than ``act``, or of another person or use.
        """
        with self._database.session(readonly=True) as session:
            return _stored(session, key, use_id, who, act)

    def append_events(
        self, use_id: str, who: Person, events: Sequence[ReviewEvent], seen: int, key: str | None = None
    ) -> LoggedEvent:
        """Append one person's events to a use, all or none, after the ``seen`` ones that they were decided on.

        Returns the first one as it is stored. If there is one with the same ``key``, nothing is appended, and that one
        is returned. If an alias moves, the settings' runs are copied to MLflow again, because the copies state the
        alias. Raises ``Overtaken`` if the use has other events by now.
        """
        try:
            with self._database.session() as session:
                last = (
                    session.scalar(select(func.max(ReviewEventRow.sequence)).where(ReviewEventRow.use_id == use_id))
                    or 0
                )
                if key and (stored := _stored(session, key, use_id, who.name, {"kind": events[0].kind})):
                    return stored
                if last != seen:
                    raise _overtaken()
                rows = [
                    ReviewEventRow(
                        use_id=use_id, sequence=seen + i, who=who.name, role=who.role, owner=who.owner,
                        kind=event.kind, act=event.as_json(), key=key if i == 1 else None,
                    )
                    for i, event in enumerate(events, start=1)
                ]  # fmt: skip
                session.add_all(rows)
                session.flush()
                _copy_again(session, events)
                return _view(rows[0])
        except IntegrityError as error:
            if key and (stored := self.stored_event(key, use_id, who.name, {"kind": events[0].kind})):
                return stored
            raise _overtaken() from error


def _stored(session: Session, key: str, use_id: str, who: str, act: Mapping[str, Any]) -> LoggedEvent | None:
    row = session.scalar(select(ReviewEventRow).where(ReviewEventRow.key == key))
    if row is None:
        return None
    same = all(row.act.get(name) == storable(value) for name, value in act.items())
    if not same or row.use_id != use_id or not same_name(row.who, who):
        raise Taken("This key was used for something else already: each act has a key of its own.")
    return _view(row)


def _overtaken() -> Overtaken:
    return Overtaken("Somebody else acted here in the meantime: look at what is new, then do it again.")


def _copy_again(session: Session, events: Sequence[ReviewEvent]) -> None:
    settings = {
        id
        for event in events
        if isinstance(event, AliasMoved)
        for id in (event.setting, event.former)
        if id is not None
    }
    if settings:
        session.execute(update(RunRow).where(RunRow.setting_id.in_(settings)).values(mlflow_synced_at=None))


def count_moves(session: Session) -> int:
    """Return how often any alias has moved."""
    return session.scalar(select(func.count(ReviewEventRow.id)).where(ReviewEventRow.kind == MOVES)) or 0


def _view(row: ReviewEventRow) -> LoggedEvent:
    return LoggedEvent(row.id, row.use_id, row.sequence, row.at, row.who, row.role, read_event(row.act), row.owner)
