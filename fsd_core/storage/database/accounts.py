"""People, who of them is signed in, and tokens of programs. Secrets are kept as hashes alone."""

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
"""in place of a hash: no password fits"""


class AccountStore(Store):
    def add_user(self, name: str, role: str, password: str) -> None:
        """``password`` is its hash. Raises ``InvalidSetting`` for a name that is taken."""
        with self._database.session() as session:
            if session.get(UserRow, name) is not None:
                raise InvalidSetting(f"There is a user {name!r} already: choose another name.")
            session.add(UserRow(name=name, role=role, password=password))

    def users(self) -> list[AccountView]:
        """Everybody, by name."""
        with self._database.session(readonly=True) as session:
            rows = session.scalars(select(UserRow).order_by(UserRow.name))
            return [AccountView(row.name, row.role, row.created_at, row.locked_until) for row in rows]

    def change_user(self, name: str, *, role: str | None = None, password: str | None = None) -> None:
        """Gives another role, or another password (its hash), which ends what is signed in and unlocks the account."""
        with self._database.session() as session:
            if (row := session.get(UserRow, name)) is None:
                raise unknown("user", name)
            row.role = role or row.role
            if password is not None:
                row.password, row.failures, row.locked_until = password, 0, None
                session.execute(delete(SignInRow).where(SignInRow.user_name == name))

    def remove_user(self, name: str) -> None:
        """What they said stays in the review log."""
        with self._database.session() as session:
            if not changed(session, delete(UserRow).where(UserRow.name == name)):
                raise unknown("user", name)

    def password_of(self, name: str) -> tuple[str, datetime | None] | None:
        """The hash of a user's password, and until when the account is locked; ``None`` for nobody."""
        with self._database.session(readonly=True) as session:
            row = session.get(UserRow, name)
            return None if row is None else (row.password, row.locked_until)

    def sign_in_failed(self, name: str) -> None:
        """Counts a wrong password; too many in a row lock the account for a while."""
        with self._database.session() as session:
            if (row := session.get(UserRow, name, with_for_update=True)) is not None:
                row.failures += 1
                if row.failures >= FAILURES_ALLOWED:
                    row.failures, row.locked_until = 0, now() + LOCKED

    def signed_in(self, name: str, digest: str, expires_at: datetime) -> None:
        """Notes a browser in which somebody is signed in, and forgets those whose time is over."""
        with self._database.session() as session:
            session.execute(delete(SignInRow).where(SignInRow.expires_at < now()))
            if (row := session.get(UserRow, name)) is None:
                raise unknown("user", name)
            row.failures, row.locked_until = 0, None
            session.add(SignInRow(digest=digest, user_name=name, expires_at=expires_at))

    def signed_in_elsewhere(self, name: str, role: str, digest: str, expires_at: datetime) -> None:
        """Notes a browser of somebody whom another site knows, with the role that they have as of now.

        They stand among the users without a password. Raises ``InvalidSetting`` where a user of this name has one: the
        two need not be the same person.
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
        """Who is signed in with this cookie."""
        with self._database.session(readonly=True) as session:
            row = session.get(SignInRow, digest)
            return None if row is None or row.expires_at < now() else Person(row.user.name, row.user.role)

    def add_token(self, name: str, role: str, digest: str) -> None:
        """Raises ``InvalidSetting`` for a name that is taken."""
        with self._database.session() as session:
            if session.scalar(select(ApiTokenRow.name).where(ApiTokenRow.name == name)) is not None:
                raise InvalidSetting(f"There is a token {name!r} already: revoke it, or choose another name.")
            session.add(ApiTokenRow(digest=digest, name=name, role=role))

    def tokens(self) -> list[AccountView]:
        """All tokens, by name."""
        with self._database.session(readonly=True) as session:
            rows = session.scalars(select(ApiTokenRow).order_by(ApiTokenRow.name))
            return [AccountView(row.name, row.role, row.created_at, None) for row in rows]

    def revoke_token(self, name: str) -> None:
        with self._database.session() as session:
            if not changed(session, delete(ApiTokenRow).where(ApiTokenRow.name == name)):
                raise unknown("token", name)

    def whose_token(self, digest: str) -> Person | None:
        """The program that shows this token."""
        with self._database.session(readonly=True) as session:
            row = session.get(ApiTokenRow, digest)
            return None if row is None else Person(row.name, row.role)
