"""Whose request it is: by the mode of access that the installation has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cachetools import TTLCache
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from fsd_core.auth import credentials
from fsd_core.roles import GUEST, LOCAL, LONGEST_PERSON_NAME, ROLES, VISITOR, Person

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

COOKIE = "fsd_session"
KEY = "fsd.person"
"""of a request's scope"""
KEPT_SECONDS = 2.0
"""for which a found person is remembered, so that a page's polls do not ask the database each time"""

Identify = Callable[[Scope], Person | None]


def identifier(settings: Settings, repository: Repository) -> Identify:
    """Tells whose a request is; ``None`` for somebody who has to sign in first. Raises ``DatabaseUnavailable``."""
    if settings.access == "none":
        whoever = GUEST if settings.demo else LOCAL
        return lambda scope: whoever
    cache: TTLCache[str, Person] = TTLCache(1000, KEPT_SECONDS, time.monotonic)
    lock = threading.Lock()  # requests are looked at in several threads, and the cache is made for one

    def remembered(kind: str, secret: str, look: Callable[[Repository, str], Person | None]) -> Person | None:
        key = f"{kind} {secret}"
        with lock:
            found = cache.get(key)
        if found is None and (found := look(repository, secret)) is not None:
            with lock:
                cache[key] = found
        return found

    def by_token(scope: Scope) -> Person | None:
        kind, _, secret = Headers(scope=scope).get("authorization", "").partition(" ")
        return remembered("token", secret, credentials.whose_token) if kind.lower() == "bearer" and secret else None

    def by_cookie(scope: Scope) -> Person | None:
        secret = HTTPConnection(scope).cookies.get(COOKIE)
        return remembered("cookie", secret, credentials.whose_cookie) if secret else None

    def by_proxy(scope: Scope) -> Person | None:
        headers = Headers(scope=scope).getlist(settings.proxy_header)
        client = (scope.get("client") or ("", 0))[0]
        if client not in settings.proxies or len(headers) != 1 or not headers[0].strip():
            return None
        name = headers[0].strip()[:LONGEST_PERSON_NAME]
        return Person(name, settings.role_behind_proxy(name))

    second = by_proxy if settings.access == "proxy" else by_cookie
    others = VISITOR if settings.demo else None
    return lambda scope: by_token(scope) or second(scope) or others


def person_in(scope: Scope) -> Person | None:
    """Whose request it is, as :class:`fsd_core.auth.middleware.sign_in.RequireSignIn` has found."""
    found = scope.get(KEY)
    return found if isinstance(found, Person) and found.role in ROLES else None
