"""People and programs with their accounts, their marks and comments, and the logs of their actions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fsd_core.storage.review_events import ReviewEvent


@dataclass(frozen=True)
class MarkView:
    """One person's opinion of a run's output for one prompt."""

    run_id: str
    position: int
    who: str
    verdict: str | None
    """good, bad, or neither"""
    note: str
    at: datetime


@dataclass(frozen=True)
class AccountView:
    """A user, without secrets."""

    name: str
    role: str
    created_at: datetime
    signed_in_at: datetime | None
    """last; ``None``: never, or before this was recorded"""
    disabled: bool
    one_time: bool
    """whether the password is one for a single sign-in, used or not"""


@dataclass(frozen=True)
class TokenView:
    """A token of a program, without its secret."""

    name: str
    role: str
    owner: str
    """who made it; empty: unknown"""
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    """to the minute"""


@dataclass(frozen=True)
class AccountEvent:
    """One row of the log of accounts."""

    at: datetime
    who: str
    act: str
    subject: str
    """whose account, or which token"""
    detail: str


@dataclass(frozen=True)
class LoggedEvent:
    """One row of the review log."""

    id: int
    use_id: str
    sequence: int
    """1, 2, … within its use"""
    at: datetime
    who: str
    role: str
    """of that person, at that time"""
    event: ReviewEvent
    owner: str | None = None
    """of the program that acted; ``None``: a person did"""


@dataclass(frozen=True)
class LoggedChange:
    """One row of the log of changes and deletions."""

    kind: str
    """run or experiment"""
    subject: str
    """id of the run or experiment, which may be gone"""
    experiment_id: str | None
    """the experiment itself, or the run's"""
    at: datetime
    who: str
    role: str
    """of that person, at that time"""
    action: str
    """changed or deleted"""
    change: dict[str, Any]
    """old and new value by name, or what was deleted"""
    owner: str | None = None
    """of the program that acted; ``None``: a person did"""
