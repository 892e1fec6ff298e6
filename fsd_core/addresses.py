"""Addresses as they may be shown, redirected to or logged: without who signs in there, and without secrets."""

from __future__ import annotations

import re

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""hosts that nobody else reaches"""
_USER = re.compile(r"(?<=://)(?:[^/?#\s]*@|[^/?#\s@\[]*:(?!\d*(?:[/?#]|$))\S*@)")
"""the second form: an unquoted ``/``, ``?`` or ``#`` in a password, which makes a port that is no number"""
_SECRET = re.compile(r"(?<=[?&;])([^=&;#]*(?:passw|secret|token|key|credential)[^=&;#]*=)[^&;#]*", re.IGNORECASE)


def without_secrets(address: str) -> str:
    """Return an address without its user information, and with ``***`` as the values of secret parameters."""
    return _SECRET.sub(r"\1***", _USER.sub("", address))
