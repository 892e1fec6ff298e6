"""Users, their sign-ins, and tokens of programs. Secrets are stored as hashes only."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select

from fsd_core.errors import InvalidSetting
from fsd_core.roles import Person
from fsd_core.storage.database.store import Store, changed, insert, unknown
from fsd_core.storage.database.tables import ApiTokenRow, SignInAttemptRow, SignInRow, UserRow, now
from fsd_core.storage.records import AccountView

FREE_ATTEMPTS = 5
"""wrong passwords in a row before somebody must wait"""
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=1), timedelta(hours=1)
"""doubled with every further wrong password"""
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
            return [AccountView(row.name, row.role, row.created_at) for row in rows]

    def change_user(self, name: str, *, role: str | None = None, password: str | None = None) -> None:
        """Change a user's role, or the password (its hash), which ends all sign-ins."""
        with self._database.session() as session:
            if (row := session.get(UserRow, name)) is None:
                raise unknown("user", name)
            row.role = role or row.role
            if password is not None:
                row.password = password
                session.execute(delete(SignInRow).where(SignInRow.user_name == name))

    def remove_user(self, name: str) -> None:
        """Remove a user. Their entries in the review log stay."""
        with self._database.session() as session:
            if not changed(session, delete(UserRow).where(UserRow.name == name)):
                raise unknown("user", name)

    def password_of(self, name: str) -> str | None:
        """Return the hash of a user's password; ``None`` for an unknown name."""
        with self._database.session(readonly=True) as session:
            row = session.get(UserRow, name)
            return None if row is None else row.password

    def attempt_sign_in(self, key: str) -> timedelta | None:
        """Count an attempt as a wrong password, before it is judged, so that parallel ones count as well.

        ``key`` stands for a name at an address. Returns for how long nothing more is judged, and ``None`` if
        this attempt is. Attempts are forgotten an hour after they began, or after their wait.
        """
        with self._database.session() as session:
            session.execute(delete(SignInAttemptRow).where(SignInAttemptRow.wait_until < now() - LONGEST_WAIT))
            first = insert(session, SignInAttemptRow).values(key=key, failures=0, wait_until=now())
            session.execute(first.on_conflict_do_nothing())
            row = session.scalars(select(SignInAttemptRow).filter_by(key=key).with_for_update()).one()
            if row.wait_until > now():
                return row.wait_until - now()
            row.failures += 1
            if (further := row.failures - FREE_ATTEMPTS) >= 0:
                row.wait_until = now() + min(FIRST_WAIT * 2 ** min(further, 10), LONGEST_WAIT)
            return None

    def signed_in(self, name: str, digest: str, expires_at: datetime, key: str) -> None:
        """Record a browser in which a user is signed in, forget its attempts, and delete expired sign-ins."""
        with self._database.session() as session:
            session.execute(delete(SignInRow).where(SignInRow.expires_at < now()))
            if session.get(UserRow, name) is None:
                raise unknown("user", name)
            session.execute(delete(SignInAttemptRow).where(SignInAttemptRow.key == key))
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
            return [AccountView(row.name, row.role, row.created_at) for row in rows]

    def revoke_token(self, name: str) -> None:
        with self._database.session() as session:
            if not changed(session, delete(ApiTokenRow).where(ApiTokenRow.name == name)):
                raise unknown("token", name)

    def whose_token(self, digest: str) -> Person | None:
        """Return the program that presents this token."""
        with self._database.session(readonly=True) as session:
            row = session.get(ApiTokenRow, digest)
            return None if row is None else Person(row.name, row.role)
