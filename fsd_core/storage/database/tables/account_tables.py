"""Tables of people and programs that sign in."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    ForeignKey,
    String,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from fsd_core.storage.database.tables.table_base import Base, now


class UserRow(Base):
    """A user who may sign in."""

    __tablename__ = "users"
    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    password: Mapped[str]  # argon2's hash
    created_at: Mapped[datetime] = mapped_column(default=now)
    signed_in_at: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    one_time_until: Mapped[datetime | None]  # of a password that is good for one sign-in; then the time of that one


class SignInAttemptRow(Base):
    """How often somebody at one address has tried one name with wrong passwords, and until when they must wait."""

    __tablename__ = "sign_in_attempts"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)  # the hash of both
    failures: Mapped[int]  # attempts under way included
    wait_until: Mapped[datetime]


class SignInRow(Base):
    """A browser in which somebody is signed in. Only the hash of its cookie is stored."""

    __tablename__ = "sign_ins"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_name: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), index=True)
    expires_at: Mapped[datetime]
    user: Mapped[UserRow] = relationship(lazy="joined")


class ApiTokenRow(Base):
    """A token that a program presents instead of a password. Only its hash is stored."""

    __tablename__ = "api_tokens"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str] = mapped_column(String(16))
    owner: Mapped[str] = mapped_column(default="", server_default="")  # who made it; empty: before there were owners
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]  # to the minute


class AccountEventRow(Base):
    """Log of accounts: sign-ins, and changes of people, roles and tokens. Rows never change."""

    __tablename__ = "account_log"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now)
    who: Mapped[str]  # who did it
    act: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str]  # whose account, or which token
    detail: Mapped[str]  # such as the new role
