"""Types of settings: texts and paths that are checked one by one, each with its sentence for a value that cannot be
used."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from fsd_core.errors import Misconfigured
from fsd_core.roles import check_organisations, read_roles

_OF_EVERYBODY = frozenset(
    ("accept", "accept-encoding", "accept-language", "authorization", "connection", "content-length", "content-type",
     "cookie", "forwarded", "host", "origin", "referer", "user-agent", "x-forwarded-for", "x-forwarded-host",
     "x-forwarded-proto")
)  # fmt: skip
"""headers that say nothing of who is signed in at a proxy"""


def _checked_addresses(value: str) -> str:
    for address in filter(None, map(str.strip, value.split(","))):
        try:
            ip_address(address)
        except ValueError:
            raise Misconfigured(
                f"The proxy's address {address[:60]!r} is none: expected addresses such as 10.0.0.7, with commas "
                "between them."
            ) from None
    return value


def _checked_header(value: str) -> str:
    if value.lower() in _OF_EVERYBODY:
        raise Misconfigured(
            f"The header {value} is of every request, so it names nobody: expected one that the proxy sets, such "
            "as X-Forwarded-User."
        )
    return value


def _checked_roles(value: str) -> str:
    read_roles(value)
    return value


def _checked_hub_roles(value: str) -> str:
    check_organisations(read_roles(value))
    return value


def _absolute(value: Path) -> Path:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise Misconfigured("The path is not valid UTF-8: expected one that is.") from None
    return value.expanduser().absolute()


def _without_last_slash(value: str) -> str:
    path = value.rstrip("/")
    if re.fullmatch(r"(/[\w~-][\w.~-]*)*", path, re.ASCII):
        return path
    raise Misconfigured(f"The path {value!r} cannot be used: expected one such as /lab, or /tools/fsd-lab.")


def _checked_host_names(value: str) -> str:
    if all(re.fullmatch(r"\*|(\*\.)?[\w.:\[\]-]*", name.strip()) for name in value.split(",")):
        return value
    raise Misconfigured(
        f"The host names {value!r} cannot be read: expected names such as lab.example.org, or *.example.org, "
        "with commas between them."
    )


def _checked_endpoint_hosts(value: str) -> str:
    names = filter(None, map(str.strip, value.split(",")))
    if all(re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?", name, re.ASCII) for name in names):
        return value
    raise Misconfigured(
        f"FSD_ENDPOINT_HOSTS is {value[:60]!r}: expected hosts such as engine.internal or 10.0.0.7:8000, with "
        "commas between them."
    )


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
"""a path of the machine; ``~`` and what is relative are resolved"""
BasePath = Annotated[str, AfterValidator(_without_last_slash)]
"""a path of URLs, below which a proxy serves the app"""
HostNames = Annotated[str, AfterValidator(_checked_host_names)]
"""names, such as ``*.example.org``, with commas between them"""
EndpointHosts = Annotated[str, AfterValidator(_checked_endpoint_hosts)]
"""hosts of engines, such as ``10.0.0.7:8000``, with commas between them"""
ProxyHeader = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$"), AfterValidator(_checked_header)]
"""name of a header that only a proxy sets"""
ProxyAddresses = Annotated[str, AfterValidator(_checked_addresses)]
"""addresses with commas between them"""
ProxyRoles = Annotated[str, AfterValidator(_checked_roles)]
"""roles by name, such as ``ann=admin,*=viewer``"""
HubRoles = Annotated[str, AfterValidator(_checked_hub_roles)]
"""the same, where a name may also be an organisation of Hugging Face"""
