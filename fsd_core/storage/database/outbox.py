"""Messages that wait to be sent: each is stored once, claimed by one sender at a time, and tried until it is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import ValidationError
from sqlalchemy import ColumnElement, delete, func, select, update

from fsd_core.errors import DataDamaged
from fsd_core.storage.database.store import Store, changed, insert, new_id
from fsd_core.storage.database.tables import OutboxCursorRow, OutboxRow, ReviewEventRow, now
from fsd_core.storage.outbox_message import NoticeContent, OutboxMessage

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
                session.execute(insert(session, OutboxCursorRow).values(values).on_conflict_do_nothing())
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
                session.execute(insert(session, OutboxRow).values(values).on_conflict_do_nothing())
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
