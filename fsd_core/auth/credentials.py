"""Passwords, sessions and tokens: created here, stored as hashes, and checked in constant time."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from functools import cache
from math import ceil
from typing import TYPE_CHECKING

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from fsd_core.errors import Malformed, OutOfRange, Refused
from fsd_core.roles import LOCAL, LONGEST_PERSON_NAME, Person, checked_name, checked_role

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 256
SESSION = timedelta(hours=12)
TOKEN_PREFIX = "fsd_"
"""by which a token of ours is told from those of others, such as a hub's"""
ONE_TIME = timedelta(days=3)
"""for which a one-time password can be used"""
LONGEST_DAYS = 3_650
"""for which a token may last"""
HASHER = PasswordHasher()
"""hashes passwords as slowly as argon2's authors recommend"""


def add_user(repository: Repository, name: str, role: str, password: str, by: str = LOCAL.name) -> None:
    """Add a user. Raises ``InvalidSetting`` for a bad or taken name, an unknown role, or a password of a wrong
    length."""
    repository.add_user(_own_name(name), checked_role(role), _hashed(password), by)


def change_password(repository: Repository, name: str, password: str, by: str = LOCAL.name) -> None:
    """Change a password and end the user's sessions. Raises ``InvalidSetting`` and ``UnknownName``."""
    repository.change_user(name, by=by, password=_hashed(password))


def add_user_with_one_time_password(repository: Repository, name: str, role: str, by: str) -> str:
    """Add a user, and return a password for one sign-in within :data:`ONE_TIME`."""
    password = secrets.token_urlsafe(12)
    repository.add_user(_own_name(name), checked_role(role), HASHER.hash(password), by, datetime.now(UTC) + ONE_TIME)
    return password


def one_time_password(repository: Repository, name: str, by: str) -> str:
    """Take a user's password, end their sessions, and return one for one sign-in within :data:`ONE_TIME`."""
    password = secrets.token_urlsafe(12)
    until = datetime.now(UTC) + ONE_TIME
    repository.change_user(name, by=by, password=HASHER.hash(password), one_time_until=until)
    return password


def change_own_password(repository: Repository, name: str, current: str, new: str, address: str, cookie: str) -> None:
    """Change somebody's password for themselves, and end their sessions but the one of ``cookie``.

    Raises ``Refused`` for a wrong ``current`` one, counted as when signing in, and ``InvalidSetting`` for a new one
    that cannot be used.
    """
    hashed = _hashed(new)
    key = _judged(repository, name, current, address)
    repository.forget_attempts(key)
    repository.change_user(name, by=name, password=hashed, kept=digest(cookie))


def sign_in(repository: Repository, name: str, password: str, address: str) -> str:
    """Return the secret for a cookie of somebody at a network ``address``.

    Raises ``Refused``, with the same message, after the same work, for a wrong name and a wrong password. Wrong
    passwords are counted by name and address: nobody keeps others out by guessing. Also raises it for a used one-time
    password, and for somebody who is disabled, once the password was right.
    """
    key = _judged(repository, name, password, address)
    secret = secrets.token_urlsafe(32)
    repository.signed_in(name, digest(secret), datetime.now(UTC) + SESSION, key)
    return secret


def _judged(repository: Repository, name: str, password: str, address: str) -> str:
    """Return the key under which attempts are counted, for a right password. Raises ``Refused``."""
    key = digest(f"{name[:255]}\0{address}")
    if (wait := repository.attempt_sign_in(key)) is not None:
        raise Refused(f"Too many wrong passwords: try again in {ceil(wait / timedelta(minutes=1))} min.")
    hashed = repository.password_of(name[:255])
    try:
        HASHER.verify(hashed or _nobodys(), password[:LONGEST_PASSWORD])
    except (VerificationError, InvalidHashError):
        hashed = None
    if not hashed:
        repository.sign_in_failed(name[:LONGEST_PERSON_NAME], address)
        raise Refused("The name or the password is wrong.")
    return key


def sign_in_elsewhere(repository: Repository, name: str, role: str) -> str:
    """Return the secret for a cookie of somebody authenticated by another site. Raises ``InvalidSetting``."""
    secret = secrets.token_urlsafe(32)
    repository.signed_in_elsewhere(checked_name(name), checked_role(role), digest(secret), datetime.now(UTC) + SESSION)
    return secret


def add_token(
    repository: Repository,
    name: str,
    role: str,
    owner: str = LOCAL.name,
    days: float | None = None,
    by: str | None = None,
) -> str:
    """Return a new token of ``owner``, shown only once, which expires after ``days``.

    Its role is at most its owner's. Whatever its role, verdicts, votes, waivers, roll-backs, changes of a use and
    deletions are for people. Raises ``InvalidSetting`` for a bad or taken name, an unknown role, or no time.
    """
    if days is not None and not 0 < days <= LONGEST_DAYS:
        raise OutOfRange(f"A token cannot last {days:g} days: expected more than 0, up to {LONGEST_DAYS:,}.")
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    repository.add_token(_own_name(name), checked_role(role), digest(secret), owner, by or owner, expires_at)
    return secret


def whose_token(repository: Repository, secret: str) -> Person | None:
    return repository.whose_token(digest(secret))


def whose_cookie(repository: Repository, secret: str) -> Person | None:
    return repository.whose_sign_in(digest(secret))


def digest(secret: str) -> str:
    """Return the hash of a secret of 256 random bits, to which salt or slowness would add nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()


@cache
def _nobodys() -> str:
    """Return a hash to verify if there is no such user, so that an answer takes as long."""
    return HASHER.hash(secrets.token_urlsafe(16))


def _own_name(name: str) -> str:
    if "/" in name:
        raise Malformed(f"The name {name[:40]!r} cannot be used: a slash stands in the names of programs alone.")
    return checked_name(name)


def _hashed(password: str) -> str:
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise OutOfRange(
            f"The password has {len(password)} characters: expected {SHORTEST_PASSWORD} to {LONGEST_PASSWORD}."
        )
    return HASHER.hash(password)
