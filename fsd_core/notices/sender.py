"""A thread of the web process that puts what happens in reviews into the outbox, and sends it.

The review log is what is never lost: whatever stands in it and not in the outbox yet is put there, with an id that
follows from what happened. Two processes therefore make the same messages, and a claim in the database lets one of them
send each. A message whose sender was killed is sent by the next one, with the same id.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fsd_core.errors import FsdError, NotDelivered
from fsd_core.notices.channels import Channels
from fsd_core.notices.telling import Telling, of_event, of_expiry
from fsd_core.review import history
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.outbox_message import OutboxMessage, message_id

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.storage.database.outbox import OutboxCursor
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import LoggedEvent

logger = logging.getLogger(__name__)

NOTICE_TICK = 2.0
"""seconds between two looks at the log"""
_LEASE = timedelta(minutes=5)
"""for which a claim holds: longer than any delivery takes"""
LOG_OVERLAP = timedelta(minutes=10)
"""The end of the log is read again for so long, since transactions may end in another order than their events' ids."""
TOLD_WITHIN = timedelta(days=1)
"""Older events are not told: they came with an import, or nothing has run for long."""
EXPIRIES_EVERY = timedelta(minutes=1)
MOST_ATTEMPTS = 10
OUTBOX_KEPT = timedelta(days=90)
_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=10), timedelta(hours=6)
_BATCH = 200


class Notifier:
    """A context manager: the thread runs in it, if a channel is configured."""

    def __init__(self, repository: Repository, channels: Channels, public_url: str = "") -> None:
        self._repository, self._channels, self._base = repository, channels, public_url.rstrip("/")
        self._service = ReviewService(repository)
        self._queued: set[tuple[str, int]] = set()  # channels and events of the overlap that are in the outbox
        self._expiries_at = datetime.min.replace(tzinfo=UTC)  # when they were looked for
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def __enter__(self) -> Notifier:
        # With no channel it runs once, for what an earlier configuration has left.
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread. A delivery under way is left to its end or to the next process."""
        self._stop.set()
        self._thread.join(timeout=1)

    def begin(self) -> dict[str, OutboxCursor]:
        """Begin for the configured channels, and forget those of an earlier configuration."""
        self._repository.prune_outbox(OUTBOX_KEPT)
        return self._repository.open_channels(self._channels.names)

    def _run(self) -> None:
        cursors, told = None, ""
        while not self._stop.is_set():
            try:
                if cursors is None:
                    cursors = self.begin()
                self.queue()
                while not self._stop.is_set() and self.send_one():
                    pass
                if not self._channels.names:
                    return
                told = ""
            except FsdError as error:  # such as a database that does not answer; told once
                if str(error) != told:
                    told = str(error)
                    logger.warning("Messages wait: %s", error)
            except Exception:  # no message may end the thread
                logger.exception("Messages wait: an unexpected error.")
            self._stop.wait(NOTICE_TICK)

    def queue(self, at: datetime | None = None) -> None:
        """Put what has happened since the channels were configured into the outbox, as of a moment, now by default."""
        moment = at or datetime.now(UTC)
        cursors = self._repository.outbox_cursors(self._channels.names)
        for channel, cursor in cursors.items():
            self._queue_events(channel, cursor, moment)
        if not cursors or moment - self._expiries_at < EXPIRIES_EVERY:
            return
        self._expiries_at = moment
        expired = [found for use in self._expiring() if (found := of_expiry(use, self._service.labels([use]), moment))]
        for channel, cursor in cursors.items():
            tellings = [told for told, when in expired if when > max(cursor.since, moment - OUTBOX_KEPT / 2)]
            if tellings:
                self._repository.queue_messages(self._messages(channel, tellings))

    def _queue_events(self, channel: str, cursor: OutboxCursor, moment: datetime) -> None:
        after, first = cursor.last_event, max(cursor.since, moment - TOLD_WITHIN)
        while events := self._repository.review_events(after, _BATCH):
            after = events[-1].id
            new = [logged for logged in events if (channel, logged.id) not in self._queued]
            recent = [logged for logged in new if logged.at >= first]
            old = [logged.id for logged in events if logged.at < moment - LOG_OVERLAP]
            if new or old:
                read = {channel: max(old)} if old else {}
                self._repository.queue_messages(self._messages(channel, self._of_events(recent)), read)
            self._queued |= {(channel, logged.id) for logged in new}
            self._queued -= {(channel, id) for id in old}

    def send_one(self) -> bool:
        """Send one message that is due. Returns whether there was one."""
        message = self._repository.claim_message(self._channels.names, _LEASE)
        if message is None:
            return False
        try:
            self._channels.named(message.channel).send(message)
        except NotDelivered as error:
            attempts = message.attempts + 1
            again = None if attempts >= MOST_ATTEMPTS else min(_FIRST_WAIT * 3 ** (attempts - 1), _LONGEST_WAIT)
            self._repository.message_failed(message, str(error), again)
            if again is None or attempts == 1:
                what = "is given up" if again is None else f"is tried again in {again.total_seconds():.0f} s"
                logger.warning("The message %s %s: %s", message.id, what, error)
        else:
            self._repository.message_sent(message)
        return True

    def _of_events(self, events: list[LoggedEvent]) -> list[Telling]:
        uses = {id: self._service.use(id) for id in {logged.use_id for logged in events}}
        labels = self._service.labels([*uses.values()])
        told = (of_event(uses[logged.use_id], logged, labels) for logged in events)
        return [telling for telling in told if telling is not None]

    def _expiring(self) -> list[Use]:
        return [use for use in history.uses(self._repository.review_log()) if use.days and use.named("approved")]

    def _messages(self, channel: str, tellings: Iterable[Telling]) -> Iterator[OutboxMessage]:
        """Return a message for each recipient, with an id that follows from what happened."""
        for telling in tellings:
            content = telling.content
            if self._base:
                content = content.model_copy(update={"page": f"{self._base}/{content.page}"})
            mail = self._channels.mail
            recipients = mail.recipients(telling.people) if channel == "mail" and mail else [""]
            for recipient in recipients:
                id = message_id(telling.source, channel, recipient)
                yield OutboxMessage(id, channel, recipient, content, datetime.now(UTC))
