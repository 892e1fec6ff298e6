"""Addresses as they may be shown, redirected to or logged: without who signs in there, and without secrets. Also which
of them the whole internet reaches."""

from __future__ import annotations

import ipaddress
import re

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""hosts that nobody else reaches"""
_USER = re.compile(r"(?<=://)(?:[^/?#\s]*@|[^/?#\s@\[]*:(?!\d*(?:[/?#]|$))\S*@)")
"""the second form: an unquoted ``/``, ``?`` or ``#`` in a password, which makes a port that is no number"""
_SECRET = re.compile(r"(?<=[?&;])([^=&;#]*(?:passw|secret|token|key|credential)[^=&;#]*=)[^&;#]*", re.IGNORECASE)


def without_secrets(address: str) -> str:
    """Return an address without its user information, and with ``***`` as the values of secret parameters."""
    return _SECRET.sub(r"\1***", _USER.sub("", address))


def is_public(address: str) -> bool:
    """Whether an IP address is one that the whole internet reaches: not private, loopback, link-local or multicast."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_global and not (mapped or ip).is_multicast
