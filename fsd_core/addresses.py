"""Addresses as they may be shown, redirected to or logged: without who signs in there, and without secrets. Also which
of them the whole internet reaches."""

from __future__ import annotations

import ipaddress
import re

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""hosts that nobody else reaches"""
_UNICAST = ipaddress.ip_network("2000::/3")
_SPECIAL = [ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "2002::/16", "3fff::/20")]
"""for protocols, relays, 6to4 and documents, which Python's versions tell differently"""
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.IGNORECASE | re.ASCII)
_NUMBER_LAST = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)\.?", re.IGNORECASE)
_LONGEST_HOST = 253
_USER = re.compile(r"(?<=://)(?:[^/?#\s]*@|[^/?#\s@\[]*:(?!\d*(?:[/?#]|$))\S*@)")
"""the second form: an unquoted ``/``, ``?`` or ``#`` in a password, which makes a port that is no number"""
_SECRET = re.compile(r"(?<=[?&;])([^=&;#]*(?:passw|secret|token|key|credential)[^=&;#]*=)[^&;#]*", re.IGNORECASE)


def without_secrets(address: str) -> str:
    """Return an address without its user information, and with ``***`` as the values of secret parameters."""
    return _SECRET.sub(r"\1***", _USER.sub("", address))


def is_public(address: str) -> bool:
    """Whether an IP address is one that the whole internet reaches: not private, loopback, link-local or multicast, and
    none that stands for an IPv4 address, which may be any of these."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    is_special = any(ip in network for network in _SPECIAL) or (ip.version == 6 and ip not in _UNICAST)
    return ip.is_global and not ip.is_multicast and not is_special


def is_plain_host(host: str) -> bool:
    """Whether a host is spelled in the one way that all programs read alike: a name in ASCII, an IPv4 address as four
    decimal numbers, or an IPv6 address."""
    if ":" not in host and not _NUMBER_LAST.fullmatch(host):
        return len(host) <= _LONGEST_HOST and _HOST.fullmatch(host) is not None
    try:
        return "%" not in host and bool(ipaddress.ip_address(host))
    except ValueError:
        return False
