"""Which servers people who sign in may have asked, and a transport that connects to no other.

Whoever names an address that a server asks makes it look behind its own firewall. So where access is on, an address is
public and asked over TLS, or the operator names its host. Names are resolved again for each request, and the connection
goes to the address that was checked.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import httpx

from fsd_core.addresses import is_public
from fsd_core.errors import EngineUnavailable, Refused

if TYPE_CHECKING:
    from fsd_core.rules import Served
    from fsd_core.settings import Settings

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class EngineHosts:
    """Hosts that the operator allows beside public ones."""

    named: frozenset[str]
    """``host``, for any port, or ``host:port``; in small letters"""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the hosts of FSD_ENDPOINT_HOSTS."""
        names = settings.endpoint_hosts.split(",")
        return cls(frozenset(name.strip().lower() for name in names if name.strip()))

    def names(self, url: str) -> bool:
        """Whether the operator has named the host of an address."""
        parts = urlsplit(url)
        host = _bracketed(parts.hostname or "")
        return not self.named.isdisjoint((host, f"{host}:{parts.port or _PORTS[parts.scheme]}"))

    def check(self, served: Served) -> None:
        """Raise ``Refused`` for an address that is neither named nor asked over TLS, before anything is asked."""
        if not self.names(served.url) and urlsplit(served.url).scheme != "https":
            raise Refused(
                f"{served.url} is not asked over https, and others reach this installation: give an address with "
                "https://, or have the operator name the host in FSD_ENDPOINT_HOSTS."
            )


class CheckedTransport(httpx.AsyncBaseTransport):
    """Sends requests to one server, unless its name leads to an address that may not be asked. It uses no proxy of the
    environment, which would resolve the name itself."""

    def __init__(self, hosts: EngineHosts, limits: httpx.Limits) -> None:
        self._hosts, self._sending = hosts, httpx.AsyncHTTPTransport(limits=limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raise ``EngineUnavailable`` for an address that may not be asked, ``httpx.ConnectError`` for a name without
        one."""
        url = request.url
        if self._hosts.names(str(url)):
            return await self._sending.handle_async_request(request)
        host = url.raw_host.decode("ascii")
        address = await self._address(host, url.port or _PORTS[url.scheme])
        checked = httpx.Request(
            request.method, url.copy_with(host=address), headers=request.headers, stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )  # fmt: skip
        return await self._sending.handle_async_request(checked)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._sending.aclose()

    async def _address(self, host: str, port: int) -> str:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(f"{host} has no address") from error
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not all(map(is_public, addresses)):
            raise EngineUnavailable(
                f"{host} is at a private or loopback address, which is not asked for people who sign in: have the "
                "operator name the host in FSD_ENDPOINT_HOSTS."
            )
        return addresses[0]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
