"""Users, their sign-ins, tokens of programs, and the log of both."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from fsd_core.errors import Refused, Taken
from fsd_core.roles import LOCAL, ROLES, Person, same_name
from fsd_core.storage.opening import Store, changed, dialect_insert, unknown
from fsd_core.storage.tables import AccountEventRow, ApiTokenRow, SignInAttemptRow, SignInRow, UserRow, now

FREE_ATTEMPTS = 5
"""wrong passwords in a row before somebody must wait"""
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=1), timedelta(hours=1)
"""doubled with every further wrong password"""
FAILURES_KEPT = 1_000
"""failed sign-ins in the log"""
NO_PASSWORD = ""
"""in place of a hash: no password matches"""
USE_NOTED = timedelta(minutes=1)
"""how precisely the last use of a token is kept"""


class AccountStore(Store):
    """All that changes an account takes ``by``, the name of who does it, and logs it."""

    def add_user(self, name: str, role: str, password: str, by: str, one_time_until: datetime | None = None) -> None:
        """Add a user; ``password`` is its hash. Raises ``InvalidSetting`` for a name that is taken.

        With ``one_time_until`` the password is good for one sign-in until then.
        """
        with self._database.session() as session:
            _check_free(session, UserRow, name)
            session.add(UserRow(name=name, role=role, password=password, one_time_until=one_time_until))
            _log(session, by, "person added", name, role)

    def users(self) -> list[UserRow]:
        """Return all users, by name."""
        with self._database.session(readonly=True) as session:
            return list(session.scalars(select(UserRow).order_by(UserRow.name)))

    def change_user(
        self,
        name: str,
        *,
        by: str,
        role: str | None = None,
        password: str | None = None,
        one_time_until: datetime | None = None,
        kept: str = "",
    ) -> None:
        """Change a user's role, or the password (its hash), which ends all sign-ins but the one with the hash ``kept``.

        With ``one_time_until`` the password is good for one sign-in until then.
        """
        with self._database.session() as session:
            if (row := session.get(UserRow, name)) is None:
                raise unknown("user", name)
            if role is not None and role != row.role:
                _log(session, by, "role changed", name, f"{row.role} → {role}")
                row.role = role
            if password is not None:
                _log(session, by, "one-time password" if one_time_until else "password changed", name)
                row.password, row.one_time_until = password, one_time_until
                session.execute(delete(SignInRow).where(SignInRow.user_name == name, SignInRow.digest != kept))

    def set_disabled(self, name: str, disabled: bool, by: str) -> None:
        """Disable a user, which ends all sign-ins and makes their tokens worth nothing, or enable one again."""
        with self._database.session() as session:
            if (row := session.get(UserRow, name)) is None:
                raise unknown("user", name)
            if disabled != (row.disabled_at is not None):
                _log(session, by, "person disabled" if disabled else "person enabled", name)
            row.disabled_at = now() if disabled else None
            if disabled:
                session.execute(delete(SignInRow).where(SignInRow.user_name == name))

    def remove_user(self, name: str, by: str) -> None:
        """Remove a user, and revoke their tokens. Their entries in the logs stay."""
        with self._database.session() as session:
            if not changed(session, delete(UserRow).where(UserRow.name == name)):
                raise unknown("user", name)
            _log(session, by, "person removed", name)
            for token in session.scalars(select(ApiTokenRow).where(ApiTokenRow.owner == name)):
                _log(session, by, "token revoked", token.name, f"of {name}")
                session.delete(token)

    def password_of(self, name: str) -> str | None:
        """Return the hash of a user's password; ``None`` for an unknown name."""
        with self._database.session(readonly=True) as session:
            row = session.get(UserRow, name)
            return None if row is None else row.password

    def forget_attempts(self, key: str) -> None:
        """Forget wrong passwords after a right one."""
        with self._database.session() as session:
            session.execute(delete(SignInAttemptRow).where(SignInAttemptRow.key == key))

    def attempt_sign_in(self, key: str) -> timedelta | None:
        """Count an attempt as a wrong password, before it is judged, so that parallel ones count as well.

        ``key`` stands for a name at an address. Returns for how long nothing more is judged, and ``None`` if this
        attempt is. Attempts are forgotten an hour after they began, or after their wait.
        """
        with self._database.session() as session:
            session.execute(delete(SignInAttemptRow).where(SignInAttemptRow.wait_until < now() - LONGEST_WAIT))
            first = dialect_insert(session, SignInAttemptRow).values(key=key, failures=0, wait_until=now())
            session.execute(first.on_conflict_do_nothing())
            row = session.scalars(select(SignInAttemptRow).filter_by(key=key).with_for_update()).one()
            if row.wait_until > now():
                return row.wait_until - now()
            row.failures += 1
            if (further := row.failures - FREE_ATTEMPTS) >= 0:
                row.wait_until = now() + min(FIRST_WAIT * 2 ** min(further, 10), LONGEST_WAIT)
            return None

    def signed_in(self, name: str, digest: str, expires_at: datetime, key: str) -> None:
        """Record a browser in which a user is signed in, forget its attempts, and delete expired sign-ins.

        Uses up a one-time password. Raises ``Refused`` for one that was used or has expired, and for somebody disabled.
        """
        with self._database.session() as session:
            session.execute(delete(SignInRow).where(SignInRow.expires_at < now()))
            if (row := session.get(UserRow, name, with_for_update=True)) is None:
                raise unknown("user", name)
            _check_enabled(row)
            if row.one_time_until is not None and row.one_time_until <= now():
                raise Refused("This one-time password was used or has expired: ask an admin for another.")
            row.one_time_until = row.one_time_until and now()
            row.signed_in_at = now()
            session.execute(delete(SignInAttemptRow).where(SignInAttemptRow.key == key))
            session.add(SignInRow(digest=digest, user_name=name, expires_at=expires_at))
            _log(session, name, "signed in", name)

    def signed_in_elsewhere(self, name: str, role: str, digest: str, expires_at: datetime) -> None:
        """Record a browser of somebody authenticated by another site, with their current role.

        They are listed among the users, without a password. Raises ``InvalidSetting`` if a user of this name has a
        password, because the two need not be the same person.
        """
        with self._database.session() as session:
            session.execute(delete(SignInRow).where(SignInRow.expires_at < now()))
            if (row := session.get(UserRow, name, with_for_update=True)) is None:
                _check_free(session, UserRow, name)
                row = UserRow(name=name, role=role, password=NO_PASSWORD)
                session.add(row)
                _log(session, name, "person added", name, role)
            elif row.password != NO_PASSWORD:
                raise Taken(
                    f"There is a user {name!r} with a password here already: remove that account first "
                    "(python -m fsd_core users remove), or sign in as somebody else."
                )
            elif row.role != role:
                _log(session, name, "role changed", name, f"{row.role} → {role}")
                row.role = role
            _check_enabled(row)
            row.signed_in_at = now()
            session.add(SignInRow(digest=digest, user_name=name, expires_at=expires_at))
            _log(session, name, "signed in", name)

    def sign_out(self, digest: str) -> None:
        """End the sign-in with this cookie."""
        with self._database.session() as session:
            if (row := session.get(SignInRow, digest)) is not None:
                _log(session, row.user_name, "signed out", row.user_name)
                session.delete(row)

    def sign_in_failed(self, name: str, address: str) -> None:
        """Log a wrong name or password. Of these entries, which strangers make, the latest are kept."""
        act = "sign-in failed"
        with self._database.session() as session:
            _log(session, name, act, name, f"at {address}")
            kept = select(AccountEventRow.id).where(AccountEventRow.act == act).order_by(AccountEventRow.id.desc())
            last = kept.offset(FAILURES_KEPT).limit(1).scalar_subquery()
            session.execute(delete(AccountEventRow).where(AccountEventRow.act == act, AccountEventRow.id <= last))

    def sign_out_everywhere(self, digest: str) -> None:
        """End all sign-ins of whoever is signed in with this cookie."""
        with self._database.session() as session:
            if (row := session.get(SignInRow, digest)) is not None:
                name = row.user_name
                session.execute(delete(SignInRow).where(SignInRow.user_name == name))
                _log(session, name, "signed out everywhere", name)

    def whose_sign_in(self, digest: str) -> Person | None:
        """Return who is signed in with this cookie."""
        with self._database.session(readonly=True) as session:
            row = session.get(SignInRow, digest)
            if row is None or row.expires_at < now() or row.user.disabled_at is not None:
                return None
            one_time = row.user.one_time_until is not None
            return Person(row.user.name, row.user.role, must_choose_password=one_time)

    def add_token(
        self, name: str, role: str, digest: str, owner: str, by: str, expires_at: datetime | None = None
    ) -> None:
        """Add a token of ``owner``. Raises ``InvalidSetting`` for a name that is taken."""
        with self._database.session() as session:
            _check_free(session, ApiTokenRow, name)
            session.add(ApiTokenRow(digest=digest, name=name, role=role, owner=owner, expires_at=expires_at))
            _log(session, by, "token added", name, f"{role}, of {owner}")

    def tokens(self) -> list[ApiTokenRow]:
        """Return all tokens, by name."""
        with self._database.session(readonly=True) as session:
            return list(session.scalars(select(ApiTokenRow).order_by(ApiTokenRow.name)))

    def revoke_token(self, name: str, by: str) -> None:
        with self._database.session() as session:
            owner = session.scalar(select(ApiTokenRow.owner).where(ApiTokenRow.name == name))
            if not changed(session, delete(ApiTokenRow).where(ApiTokenRow.name == name)):
                raise unknown("token", name)
            _log(session, by, "token revoked", name, f"of {owner}" if owner else "")

    def whose_token(self, digest: str) -> Person | None:
        """Return the program that presents this token, with the lesser of its role and its owner's."""
        with self._database.session(readonly=True) as session:
            row = session.get(ApiTokenRow, digest)
            if row is None or (row.expires_at is not None and row.expires_at < now()):
                return None
            owner = session.get(UserRow, row.owner)
            if owner is not None and owner.disabled_at is not None:
                return None
            roles = [row.role, *([owner.role] if owner else [])]
            name = f"{row.owner or LOCAL.name}/{row.name}"  # in no person's name space
            program, used_at = Person(name, min(roles, key=ROLES.index), owner=row.owner), row.used_at
        if used_at is None or used_at < now() - USE_NOTED:
            with self._database.session() as session:
                if (row := session.get(ApiTokenRow, digest)) is not None:
                    row.used_at = now()
        return program

    def shared_names(self) -> list[str]:
        """Return a sentence for each name that earlier versions let two have, with what becomes of them."""
        with self._database.session(readonly=True) as session:
            people = list(session.scalars(select(UserRow.name).order_by(UserRow.name)))
            tokens = [(row.owner, row.name) for row in session.scalars(select(ApiTokenRow).order_by(ApiTokenRow.name))]
        told = [
            f"'{name}' and '{other}' count as one person: their verdicts and votes count once. Remove one of the two."
            for i, name in enumerate(people)
            for other in people[i + 1 :]
            if same_name(name, other)
        ]
        return told + [
            f"The token '{token}' is called like the person '{name}', and is '{owner}/{token}' from now on. What it "
            "did before stands under the person's name: look through its saved views and proposals."
            for owner, token in tokens
            for name in people
            if same_name(name, token)
        ]

    def account_log(self, limit: int, name: str | None = None) -> list[AccountEventRow]:
        """Return the log of all accounts, or the events by and about one person, the latest first."""
        statement = select(AccountEventRow).order_by(AccountEventRow.id.desc()).limit(limit)
        if name is not None:
            names = func.lower(AccountEventRow.who), func.lower(AccountEventRow.subject)
            statement = statement.where(or_(*(one == func.lower(name) for one in names)))
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement))


def _check_free(session: Session, model: type[UserRow | ApiTokenRow], name: str) -> None:
    """Raise ``Taken`` if another of its kind has the name, in whatever case or form of its characters."""
    if taken := next((other for other in session.scalars(select(model.name)) if same_name(name, other)), None):
        what, revoke = ("token", "revoke it, or choose") if model is ApiTokenRow else ("user", "choose")
        raise Taken(f"There is a {what} {taken!r} already: {revoke} another name.")


def _check_enabled(row: UserRow) -> None:
    if row.disabled_at is not None:
        raise Refused("This account is disabled: ask an admin to enable it.")


def _log(session: Session, by: str, act: str, subject: str, detail: str = "") -> None:
    session.add(AccountEventRow(who=by, act=act, subject=subject, detail=detail))
