"""Users, their sign-ins, and tokens of programs. Secrets are stored as hashes only."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select

from fsd_core.errors import InvalidSetting
from fsd_core.roles import Person
from fsd_core.storage.database.store import Store, changed, unknown
from fsd_core.storage.database.tables import ApiTokenRow, SignInRow, UserRow, now
from fsd_core.storage.records import AccountView

FAILURES_ALLOWED = 5
LOCKED = timedelta(minutes=15)
NO_PASSWORD = ""
"""in place of a hash: no password matches"""


class AccountStore(Store):
    def add_user(self, name: str, role: str, password: str) -> None:
        """Add a user; ``password`` is its hash. Raises ``InvalidSetting`` for a name that is taken."""
        with self._database.session() as session:
            if session.get(UserRow, name) is not None:
                raise InvalidSetting(f"There is a user {name!r} already: choose another name.")
            session.add(UserRow(name=name, role=role, password=password))

    def users(self) -> list[AccountView]:
        """Return all users, by name."""
        with self._database.session(readonly=True) as session:
            rows = session.scalars(select(UserRow).order_by(UserRow.name))
            return [AccountView(row.name, row.role, row.created_at, row.locked_until) for row in rows]

    def change_user(self, name: str, *, role: str | None = None, password: str | None = None) -> None:
        """Change a user's role, or the password (its hash), which ends all sign-ins and unlocks the account."""
        with self._database.session() as session:
            if (row := session.get(UserRow, name)) is None:
                raise unknown("user", name)
            row.role = role or row.role
            if password is not None:
                row.password, row.failures, row.locked_until = password, 0, None
                session.execute(delete(SignInRow).where(SignInRow.user_name == name))

    def remove_user(self, name: str) -> None:
        """Remove a user. Their entries in the review log stay."""
        with self._database.session() as session:
            if not changed(session, delete(UserRow).where(UserRow.name == name)):
                raise unknown("user", name)

    def password_of(self, name: str) -> tuple[str, datetime | None] | None:
        """Return the hash of a user's password and the end of the account's lock; ``None`` for an unknown name."""
        with self._database.session(readonly=True) as session:
            row = session.get(UserRow, name)
            return None if row is None else (row.password, row.locked_until)

    def sign_in_failed(self, name: str) -> None:
        """Count a wrong password. Too many in a row lock the account for a while."""
        with self._database.session() as session:
            if (row := session.get(UserRow, name, with_for_update=True)) is not None:
                row.failures += 1
                if row.failures >= FAILURES_ALLOWED:
                    row.failures, row.locked_until = 0, now() + LOCKED

    def signed_in(self, name: str, digest: str, expires_at: datetime) -> None:
        """Record a browser in which a user is signed in, and delete expired sign-ins."""
        with self._database.session() as session:
            session.execute(delete(SignInRow).where(SignInRow.expires_at < now()))
            if (row := session.get(UserRow, name)) is None:
                raise unknown("user", name)
            row.failures, row.locked_until = 0, None
            session.add(SignInRow(digest=digest, user_name=name, expires_at=expires_at))

    def signed_in_elsewhere(self, name: str, role: str, digest: str, expires_at: datetime) -> None:
        """Record a browser of somebody authenticated by another site, with their current role.

        They are listed among the users, without a password. Raises ``InvalidSetting`` if a user of this name has a
        password, because the two need not be the same person.
        """
        with self._database.session() as session:
            session.execute(delete(SignInRow).where(SignInRow.expires_at < now()))
            if (row := session.get(UserRow, name, with_for_update=True)) is None:
                row = UserRow(name=name, password=NO_PASSWORD)
                session.add(row)
            elif row.password != NO_PASSWORD:
                raise InvalidSetting(
                    f"There is a user {name!r} with a password here already: remove that account first "
                    "(python -m fsd_core users remove), or sign in as somebody else."
                )
            row.role = role
            session.add(SignInRow(digest=digest, user_name=name, expires_at=expires_at))

    def sign_out(self, digest: str) -> None:
        with self._database.session() as session:
            session.execute(delete(SignInRow).where(SignInRow.digest == digest))

    def whose_sign_in(self, digest: str) -> Person | None:
        """Return who is signed in with this cookie."""
        with self._database.session(readonly=True) as session:
            row = session.get(SignInRow, digest)
            return None if row is None or row.expires_at < now() else Person(row.user.name, row.user.role)

    def add_token(self, name: str, role: str, digest: str) -> None:
        """Add a token. Raises ``InvalidSetting`` for a name that is taken."""
        with self._database.session() as session:
            if session.scalar(select(ApiTokenRow.name).where(ApiTokenRow.name == name)) is not None:
                raise InvalidSetting(f"There is a token {name!r} already: revoke it, or choose another name.")
            session.add(ApiTokenRow(digest=digest, name=name, role=role))

    def tokens(self) -> list[AccountView]:
        """Return all tokens, by name."""
        with self._database.session(readonly=True) as session:
            rows = session.scalars(select(ApiTokenRow).order_by(ApiTokenRow.name))
            return [AccountView(row.name, row.role, row.created_at, None) for row in rows]

    def revoke_token(self, name: str) -> None:
        with self._database.session() as session:
            if not changed(session, delete(ApiTokenRow).where(ApiTokenRow.name == name)):
                raise unknown("token", name)

    def whose_token(self, digest: str) -> Person | None:
        """Return the program that presents this token."""
        with self._database.session(readonly=True) as session:
            row = session.get(ApiTokenRow, digest)
            return None if row is None else Person(row.name, row.role)
