"""A message on a review as it is queued for one recipient, and how it stands."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fsd_core.frozen import Frozen

NoticeKind = Literal[
    "review-requested", "commented", "approved", "changes-requested", "declined", "evidence-chosen", "waived",
    "withdrawn", "approval-expired", "rolled-back", "test",
]  # fmt: skip


class NoticeContent(Frozen):
    """The content of a message. Its JSON keys never change; newer fields have defaults."""

    kind: NoticeKind
    at: str
    """when it happened, in UTC, as ISO 8601"""
    use: str
    """id of the use"""
    use_name: str
    who: str
    """who did it; empty for what nobody did"""
    text: str
    """one sentence"""
    proposal: str | None = None
    setting: str | None = None
    words: str = ""
    """that somebody wrote with it"""
    reviewers: tuple[str, ...] = ()
    """who is asked for a verdict"""
    waits_for: tuple[str, ...] = ()
    """whose verdict or changes the proposal waits for"""
    page: str = ""
    """address or path of the page to look at"""


@dataclass(frozen=True)
class OutboxMessage:
    """One message to one recipient."""

    id: str
    channel: str
    """webhook or mail"""
    recipient: str
    """a mail address; empty for the webhook"""
    content: NoticeContent
    created_at: datetime
    attempts: int = 0
    claim: str = ""
    """of whoever tries to send it"""
    error: str = ""
    """of the last attempt"""
    given_up: bool = False


def message_id(*told: object) -> str:
    """Return the id of a message, 32 hexadecimal digits, from what it tells, its channel and its recipient."""
    return hashlib.sha256(repr(told).encode()).hexdigest()[:32]
