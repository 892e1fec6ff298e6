"""Logs of decisions and changes, and the messages about them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from fsd_core.storage.database.tables.table_base import Base, now


class ReviewEventRow(Base):
    """One event of a review. The database refuses to change or delete a row."""

    __tablename__ = "review_log"
    __table_args__ = (UniqueConstraint("use_id", "sequence"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    use_id: Mapped[str] = mapped_column(String(64))
    sequence: Mapped[int]  # 1, 2, … within its use, rejects the second of two simultaneous events
    at: Mapped[datetime] = mapped_column(default=now)
    who: Mapped[str]
    role: Mapped[str] = mapped_column(String(16))  # at that time
    owner: Mapped[str | None]  # of the program that acted
    kind: Mapped[str] = mapped_column(String(32))
    act: Mapped[dict[str, Any]]  # fsd_core.storage.review_events
    key: Mapped[str | None] = mapped_column(String(32), index=True, unique=True)  # an act sent again is stored once


class OutboxRow(Base):
    """A message to a webhook or by mail. Its id is the hash of its content and recipient, so it is stored once."""

    __tablename__ = "outbox"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    channel: Mapped[str] = mapped_column(String(16))  # webhook, mail
    recipient: Mapped[str]  # a mail address; empty for the webhook
    content: Mapped[dict[str, Any]]  # fsd_core.storage.outbox_message
    created_at: Mapped[datetime] = mapped_column(default=now)
    due_at: Mapped[datetime] = mapped_column(default=now, index=True)  # when it is tried next; claims move it as well
    claim: Mapped[str | None] = mapped_column(String(32))  # who tries it
    attempts: Mapped[int] = mapped_column(default=0)
    sent_at: Mapped[datetime | None]
    given_up_at: Mapped[datetime | None]
    error: Mapped[str | None] = mapped_column(Text)  # of the last attempt


class OutboxCursorRow(Base):
    """How far the review log has been put into the outbox for a channel, since it was configured."""

    __tablename__ = "outbox_cursors"
    channel: Mapped[str] = mapped_column(String(16), primary_key=True)
    since: Mapped[datetime] = mapped_column(default=now)
    last_event: Mapped[int]  # id of an event of the review log


class ChangeRow(Base):
    """Somebody's edit or deletion of a run or an experiment. Like the review log's, its rows never change."""

    __tablename__ = "change_log"
    __table_args__ = (UniqueConstraint("subject", "sequence"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))  # run, experiment
    subject: Mapped[str] = mapped_column(String(32))  # id of the run or experiment, which may be gone
    sequence: Mapped[int]  # 1, 2, … of its subject
    experiment_id: Mapped[str | None] = mapped_column(String(32), index=True)  # the experiment itself, or the run's
    at: Mapped[datetime] = mapped_column(default=now)
    who: Mapped[str]
    role: Mapped[str] = mapped_column(String(16))  # at that time
    owner: Mapped[str | None]  # of the program that acted
    act: Mapped[str] = mapped_column(String(16))  # changed, deleted
    change: Mapped[dict[str, Any]]  # old and new value by column, or what was deleted
