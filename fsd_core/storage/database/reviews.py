"""The review log: events are appended and never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fsd_core.errors import Overtaken
from fsd_core.storage.database.rows import storable
from fsd_core.storage.database.store import Store
from fsd_core.storage.database.tables import ReviewEventRow, RunRow
from fsd_core.storage.records import LoggedEvent, same_weights
from fsd_core.storage.review_events import Act, Alias, AliasMoved, read_act

MOVES = AliasMoved.model_fields["kind"].default


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
            if isinstance(move.act, AliasMoved):
                aliases[move.use_id, move.act.alias] = move.act
        uses: dict[Alias, list[str]] = {"candidate": [], "approved": []}
        for (use, alias), event in sorted(aliases.items(), key=lambda item: item[0]):
            if event.setting == setting_id and (not event.weights or same_weights(event.weights, weights)):
                uses[alias].append(use)
        return AliasNames(uses, len(moves))

    def append_acts(self, use_id: str, who: str, role: str, acts: Sequence[Act], seen: int) -> list[LoggedEvent]:
        """Append one person's events to a use, all or none, after the ``seen`` ones that they were decided on.

        If an alias moves, the settings' runs are copied to MLflow again, because the copies state the alias. Raises
        ``Overtaken`` if the use has other events by now.
        """
        try:
            with self._database.session() as session:
                last = (
                    session.scalar(select(func.max(ReviewEventRow.sequence)).where(ReviewEventRow.use_id == use_id))
                    or 0
                )
                if last != seen:
                    raise _overtaken()
                rows = [
                    ReviewEventRow(
                        use_id=use_id, sequence=seen + i, who=storable(who), role=role, kind=act.kind,
                        act=storable(act.as_json()),
                    )
                    for i, act in enumerate(acts, start=1)
                ]  # fmt: skip
                session.add_all(rows)
                session.flush()
                _copy_again(session, acts)
                return [_view(row) for row in rows]
        except IntegrityError as error:
            raise _overtaken() from error


def _overtaken() -> Overtaken:
    return Overtaken("Somebody else acted here in the meantime: look at what is new, then do it again.")


def _copy_again(session: Session, events: Sequence[Act]) -> None:
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
    return LoggedEvent(row.id, row.use_id, row.sequence, row.at, row.who, row.role, read_act(row.act))
