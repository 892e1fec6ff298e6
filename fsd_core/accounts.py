"""Accounts: who makes a request, and the passwords, the sign-ins and the tokens that say so."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from cachetools import TTLCache
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from fsd_core.errors import (
    FsdError,
    InvalidSetting,
    Malformed,
    Misconfigured,
    OutOfRange,
    Refused,
)
from fsd_core.roles import (
    GUEST,
    LOCAL,
    LONGEST_PERSON_NAME,
    ROLES,
    VISITOR,
    Person,
    checked_name,
    checked_role,
    folded,
    read_roles,
)
from fsd_core.settings import Space
from fsd_core.texts import whole

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


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


def add_user(
    repository: Repository, name: str, role: str, password: str, by: str = LOCAL.name, until: datetime | None = None
) -> None:
    """Add a user. With ``until`` the password is good for one sign-in until then. Raises ``InvalidSetting`` for a bad
    or taken name, an unknown role, or a password of a wrong length."""
    repository.add_user(_own_name(name), checked_role(role), _hashed(password), by, until)


def change_password(
    repository: Repository, name: str, password: str, by: str = LOCAL.name, until: datetime | None = None
) -> None:
    """Change a password, as ``add_user`` takes it, and end the user's sessions. Raises ``InvalidSetting`` and
    ``UnknownName``."""
    repository.change_user(name, by=by, password=_hashed(password), one_time_until=until)


def one_time_password() -> tuple[str, datetime]:
    """Return a new password for one sign-in within :data:`ONE_TIME`, and until when that is."""
    return secrets.token_urlsafe(12), datetime.now(UTC) + ONE_TIME


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
    if whole(password) != password:
        raise Malformed("The password holds NUL, or bytes that are not UTF-8, which no form sends: choose another.")
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise OutOfRange(
            f"The password has {len(password)} characters: expected {SHORTEST_PASSWORD} to {LONGEST_PASSWORD}."
        )
    return HASHER.hash(password)


FIRST_ADMIN = "admin"


def ensure_admin(repository: Repository, password_file: Path | None) -> str | None:
    """Add the user ``admin`` if there is no user yet. Return the password if it was made here, or else ``None``.

    The password is the first line of ``password_file``. Without a file it is random. Raises ``InvalidSetting`` for a
    file that cannot be used.
    """
    if repository.users():
        return None
    password = secrets.token_urlsafe(16) if password_file is None else _first_line(password_file)
    try:
        add_user(repository, FIRST_ADMIN, "admin", password)
    except InvalidSetting as error:
        if repository.users():  # another process of the installation was first
            return None
        raise Misconfigured(f"{error} Change the first line of {password_file}.") from None
    return password if password_file is None else None


def _first_line(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as lines:
            return lines.readline(LONGEST_PASSWORD + 2).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Misconfigured(
            f"The file {file} cannot be read ({reason}): FSD_ADMIN_PASSWORD_FILE names a file whose first line is the "
            "first admin's password."
        ) from None


class Profile(NamedTuple):
    """A user's name and organisations at Hugging Face."""

    name: str
    organisations: Mapping[str, str]
    """the user's role in each, by name: one of ``roles.ORG_ROLES``, or empty if unknown"""

    @classmethod
    def read(cls, userinfo: Mapping[str, Any]) -> Profile:
        """Return the profile in an answer of the userinfo endpoint.

        Organisations whose own checks (single sign-on, second factor) are still pending do not count. Raises
        ``ValueError`` without a valid name.
        """
        name = userinfo.get("preferred_username")
        if not _is_name(name):
            raise ValueError("no preferred_username")
        orgs = userinfo.get("orgs")
        entries = [org for org in orgs if isinstance(org, Mapping)] if isinstance(orgs, list) else []
        admitted = (org for org in entries if not any(org.get(check) for check in _PENDING_CHECKS))
        named = (org for org in admitted if _is_name(org.get("preferred_username")))
        return cls(str(name), {str(org["preferred_username"]): str(org.get("roleInOrg") or "") for org in named})


def _is_name(value: object) -> bool:
    """Whether it can be a name there. One with ``:``, ``/`` or ``*`` would mean something else among the roles."""
    return isinstance(value, str) and re.fullmatch(r"[\w.-]{1,96}", value) is not None


_PENDING_CHECKS = ("securityRestrictions", "pendingSSO", "missingMFA")


def role_of(profile: Profile, roles: str, space: Space | None) -> str:
    """Return a user's role. ``roles`` is FSD_HF_ROLES, such as ``ann=admin,org:team/admin=admin,*=viewer``.

    A name takes precedence over organisations, among which the highest role counts. ``*`` is everybody else. The owner
    of the Space is admin: a person, or the admins of an organisation. Names are compared without case, as Hugging Face
    does.
    """
    role_by_name = {folded(who): role for who, role in read_roles(roles).items()}
    owner = folded(space.owner) if space else ""
    name = folded(profile.name)
    if (personal_role := role_by_name.get(name)) is not None:
        return personal_role
    if name == owner:
        return "admin"
    keys = set(_keys(profile.organisations))
    matches = [role for who, role in role_by_name.items() if who in keys]
    if owner and f"org:{owner}/admin" in keys:
        matches.append("admin")
    return max(matches, key=ROLES.index) if matches else role_by_name.get("*", ROLES[0])


def _keys(organisations: Mapping[str, str]) -> Iterable[str]:
    for name, role in organisations.items():
        yield folded(f"org:{name}")
        yield folded(f"org:{name}/{role}")


KEY = "fsd.person"
"""in a request's scope"""
KEPT_SECONDS = 2.0
"""for which an identified person is cached, so that a page's polls do not query the database each time"""

Identify = Callable[[Scope], Person | None]


def identifier(settings: Settings, repository: Repository) -> Identify:
    """Return the function that identifies who makes a request; ``None`` for somebody who must sign in first.

    The function raises ``DatabaseUnavailable``.
    """
    if settings.access == "none":
        everyone = GUEST if settings.demo else LOCAL
        return lambda scope: everyone
    cache: TTLCache[str, Person] = TTLCache(1000, KEPT_SECONDS, time.monotonic)
    lock = threading.Lock()  # several threads handle requests, and the cache is not thread-safe

    def remembered(kind: str, secret: str, lookup: Callable[[Repository, str], Person | None]) -> Person | None:
        key = f"{kind} {secret}"
        with lock:
            person = cache.get(key)
        if person is None and (person := lookup(repository, secret)) is not None and not person.must_choose_password:
            with lock:
                cache[key] = person
        return person

    def by_token(scope: Scope) -> Person | None:
        secret = _bearer(scope)
        program = remembered("token", secret, whose_token) if secret else None
        if program is None or settings.access != "proxy" or program.owner in (None, "", LOCAL.name):
            return program
        roles = program.role, settings.role_behind_proxy(str(program.owner))  # the proxy's people are not stored
        return program._replace(role=min(roles, key=ROLES.index))

    def by_cookie(scope: Scope) -> Person | None:
        secret = HTTPConnection(scope).cookies.get(settings.session_cookie)
        return remembered("cookie", secret, whose_cookie) if secret else None

    def by_proxy(scope: Scope) -> Person | None:
        headers = Headers(scope=scope).getlist(settings.proxy_header)
        client = (scope.get("client") or ("", 0))[0]
        if client not in settings.proxies or len(headers) != 1 or not headers[0].strip():
            return None
        name = headers[0].strip()[:LONGEST_PERSON_NAME].replace("/", "\\")  # a slash is for names of programs
        return Person(name, settings.role_behind_proxy(name))

    second = by_proxy if settings.access == "proxy" else by_cookie
    fallback = VISITOR if settings.demo else None
    # Whoever presents a token of ours that is void acts as nobody else instead.
    return lambda scope: by_token(scope) or (None if presents_token(scope) else second(scope) or fallback)


def presents_token(scope: Scope) -> bool:
    """Whether a request has a token of ours, valid or not."""
    return _bearer(scope).startswith(TOKEN_PREFIX)


def _bearer(scope: Scope) -> str:
    kind, _, secret = Headers(scope=scope).get("authorization", "").partition(" ")
    return secret if kind.lower() == "bearer" else ""


def person_in(scope: Scope) -> Person | None:
    """Return who makes the request, as :class:`fsd_core.middleware.RequireSignIn` identified them."""
    person = scope.get(KEY)
    return person if isinstance(person, Person) and person.role in ROLES else None


logger = logging.getLogger(__name__)


def told_to_strangers(error: FsdError) -> str:
    """Return the sentence of an error that is theirs; of others, such as a database's with its host, that there is one.

    The log has the whole sentence.
    """
    if isinstance(error, Refused | InvalidSetting):
        return str(error)
    logger.error("%s", error)
    return "Nobody can sign in now: whoever runs this application finds the reason in its log. Try again in a moment."
