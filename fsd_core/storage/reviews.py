"""The review log, marks on outputs, and messages that wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fsd_core.errors import DataDamaged, OutOfRange, Overtaken, Taken, UnknownChoice, UnknownName
from fsd_core.roles import Person, same_name
from fsd_core.storage.messages import NoticeContent, OutboxMessage
from fsd_core.storage.opening import Store, changed, dialect_insert, new_id, storable
from fsd_core.storage.records import LoggedEvent, same_weights
from fsd_core.storage.review_events import LONGEST_TEXT, Alias, AliasMoved, Proposed, ReviewEvent, read_event
from fsd_core.storage.tables import GenerationRow, MarkRow, OutboxCursorRow, OutboxRow, ReviewEventRow, RunRow, now

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

    def marks(self, run_ids: Iterable[str]) -> list[MarkRow]:
        """Return everybody's marks on the outputs of runs, oldest first."""
        statement = select(MarkRow).where(MarkRow.run_id.in_(list(run_ids))).order_by(MarkRow.at, MarkRow.who)
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement))


_MOST_ERROR = 500
_UNREADABLE = "A message in the outbox cannot be read: it was damaged, or is of a newer version."
_DAMAGED = NoticeContent(kind="test", at="", use="", use_name="", who="", text=_UNREADABLE)


class OutboxCursor(NamedTuple):
    """Since when a channel is configured, and how far the review log was put into the outbox for it."""

    since: datetime
    last_event: int


class OutboxStore(Store):
    def open_channels(self, channels: Collection[str]) -> dict[str, OutboxCursor]:
        """Return the cursor of each configured channel. A new one begins at the end of the log.

        Cursors of other channels and what was left to send there are deleted, so that nothing old is sent when such a
        channel is configured again.
        """
        with self._database.session() as session:
            last = session.scalar(select(func.max(ReviewEventRow.id))) or 0
            for model in (OutboxCursorRow, OutboxRow):
                other = model.channel.not_in(channels)
                session.execute(delete(model).where(other, *([_unsent()] if model is OutboxRow else [])))
            for channel in channels:
                values = {"channel": channel, "since": now(), "last_event": last}
                session.execute(dialect_insert(session, OutboxCursorRow).values(values).on_conflict_do_nothing())
            rows = session.scalars(select(OutboxCursorRow))
            return {row.channel: OutboxCursor(row.since, row.last_event) for row in rows}

    def outbox_cursors(self, channels: Collection[str]) -> dict[str, OutboxCursor]:
        """Return the cursors of some channels that were opened."""
        statement = select(OutboxCursorRow).where(OutboxCursorRow.channel.in_(channels))
        with self._database.session(readonly=True) as session:
            return {row.channel: OutboxCursor(row.since, row.last_event) for row in session.scalars(statement)}

    def queue_messages(self, messages: Iterable[OutboxMessage], read: Mapping[str, int] | None = None) -> None:
        """Store messages that are not stored yet, and how far the log has been read for each channel, all or
        nothing."""
        with self._database.session() as session:
            for message in messages:
                values = {
                    "id": message.id, "channel": message.channel, "recipient": message.recipient,
                    "content": message.content.as_json(), "created_at": message.created_at,
                    "due_at": message.created_at, "attempts": 0,
                }  # fmt: skip
                session.execute(dialect_insert(session, OutboxRow).values(values).on_conflict_do_nothing())
            for channel, last in (read or {}).items():
                cursor = OutboxCursorRow.channel == channel, OutboxCursorRow.last_event < last
                session.execute(update(OutboxCursorRow).where(*cursor).values(last_event=last))

    def claim_message(self, channels: Collection[str], lease: timedelta) -> OutboxMessage | None:
        """Return a message that is due, for nobody else until the lease ends; ``None`` if there is none."""
        due = _unsent(), OutboxRow.due_at <= now(), OutboxRow.channel.in_(channels)
        first = select(OutboxRow.id).where(*due).order_by(OutboxRow.due_at, OutboxRow.id).limit(1)
        claim = new_id()
        with self._database.session() as session:
            id = session.scalar(first)
            values = {"claim": claim, "due_at": now() + lease}
            # The condition holds for one of two that claim at once.
            if id is None or not changed(session, update(OutboxRow).where(OutboxRow.id == id, *due).values(values)):
                return None
            row = session.get_one(OutboxRow, id, populate_existing=True)
            try:
                return _message(row)
            except DataDamaged as error:  # nothing behind it waits for it
                row.given_up_at, row.error, row.claim = now(), str(error), None
                return None

    def message_sent(self, message: OutboxMessage) -> None:
        """Note that a claimed message was taken."""
        self._note(message, sent_at=now(), error=None)

    def message_failed(self, message: OutboxMessage, error: str, again: timedelta | None) -> None:
        """Note that a claimed message was not taken, and when it is tried again; ``None``: never."""
        values = {"given_up_at": now()} if again is None else {"due_at": now() + again}
        self._note(message, error=error[:_MOST_ERROR], **values)

    def _note(self, message: OutboxMessage, **values: object) -> None:
        own = OutboxRow.id == message.id, OutboxRow.claim == message.claim
        noted = {"claim": None, "attempts": message.attempts + 1, **values}
        with self._database.session() as session:
            session.execute(update(OutboxRow).where(*own).values(noted))

    def unsent_messages(self, limit: int = 100) -> list[OutboxMessage]:
        """Return the messages that wait or were given up, newest first."""
        statement = select(OutboxRow).where(OutboxRow.sent_at.is_(None)).order_by(OutboxRow.created_at.desc())
        with self._database.session(readonly=True) as session:
            return [_message(row, damaged=_DAMAGED) for row in session.scalars(statement.limit(limit))]

    def prune_outbox(self, older_than: timedelta) -> int:
        """Delete messages that were sent or given up longer ago than this, and return their number."""
        ended = func.coalesce(OutboxRow.sent_at, OutboxRow.given_up_at) < now() - older_than
        with self._database.session() as session:
            return changed(session, delete(OutboxRow).where(ended))


def _unsent() -> ColumnElement[bool]:
    return OutboxRow.sent_at.is_(None) & OutboxRow.given_up_at.is_(None)


def _message(row: OutboxRow, damaged: NoticeContent | None = None) -> OutboxMessage:
    """Return a message, with ``damaged`` as its content if it cannot be read. Without one, raises ``DataDamaged``."""
    try:
        content = NoticeContent.model_validate(row.content)
    except ValidationError:
        if damaged is None:
            raise DataDamaged(_UNREADABLE) from None
        content = damaged
    return OutboxMessage(
        row.id, row.channel, row.recipient, content, row.created_at, row.attempts, row.claim or "", row.error or "",
        row.given_up_at is not None,
    )  # fmt: skip
