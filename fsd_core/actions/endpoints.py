"""What is done with running engines that people name: listed, asked, kept and forgotten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, get_args
from urllib.parse import urlsplit

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, Told, action
from fsd_core.errors import Malformed
from fsd_core.rules import ENGINE_TITLES, EngineName, Served
from fsd_core.texts import LOOPBACK

if TYPE_CHECKING:
    from fsd_core.engines.connection import EngineHosts
    from fsd_core.storage.tables import ServedEngineRow

KEY_PREFIX = "ENGINE_KEY"
"""beginning of the names of variables that pages and programs may name, so that nobody sends another secret away"""
MOST_HARDWARE = 100
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

Endpoint = Annotated[str, "its name, as in list_endpoints"]


class EndpointAnswer(TypedDict):
    """A running engine that somebody has named. Its key is in the environment alone."""

    endpoint: str
    kind: str
    url: str
    model: str
    key_variable: str
    hardware: str
    added_by: str


def _tell_listed(engines: list[EndpointAnswer]) -> Told:
    rows = [
        (it["endpoint"], ENGINE_TITLES[it["kind"]], it["model"], it["url"], it["key_variable"] or "none")
        for it in engines
    ]
    return Told(columns=("Name", "Kind", "Model", "Address", "Key"), rows=rows)


def _tell_added(told: str) -> Told:
    name, _, rest = told.partition(" ")
    return Told([f"{name} {rest} Measure with --endpoint {name}."])


def _tell_shown(it: EndpointAnswer) -> Told:
    on = f", on {it['hardware']}" if it["hardware"] else ""
    what = f"{ENGINE_TITLES[it['kind']]} at {it['url']}{on}, model {it['model']}, key {it['key_variable'] or 'none'}"
    return Told([f"{it['endpoint']}: {what}, by {it['added_by']}"])


def _described(engine: ServedEngineRow) -> EndpointAnswer:
    served = engine.served
    return {
        "endpoint": engine.name, "kind": served.engine, "url": served.url, "model": served.model,
        "key_variable": engine.key_variable, "hardware": engine.hardware, "added_by": engine.added_by,
    }  # fmt: skip


def _hosts(ask: Ask, guarded: bool) -> EngineHosts | None:
    """Return the hosts that may be asked beside public ones; ``None``: any may."""
    from fsd_core.engines.connection import EngineHosts

    return EngineHosts.of(ask.settings) if guarded else None


def _found(ask: Ask, served: Served, key_variable: str, hosts: EngineHosts | None) -> str:
    """Ask an engine what it is, in a few words. Raises ``EngineUnavailable`` and ``Refused``."""
    from fsd_core.engines.client import check_engine

    facts = check_engine(served, key_variable, hosts=hosts, quickly=not ask.operator)
    context = f", context {facts['max_model_len']} tokens" if "max_model_len" in facts else ""
    return f"{facts['engine']} with {served.model}{context}"


@action("endpoints", tells=_tell_listed)
def list_endpoints(ask: Ask) -> list[EndpointAnswer]:
    """Return the running engines that somebody has named, which start_experiment measures beside its settings."""
    return [_described(engine) for engine in (ask.existing.engines() if ask.existing else ())]


@action("endpoints show", tells=_tell_shown)
def read_endpoint(ask: Ask, endpoint: Endpoint) -> EndpointAnswer:
    """Return what is kept of a running engine."""
    return _described(ask.repository.engine(endpoint))


@action(
    "endpoints add",
    role="admin",
    doing="Adding an endpoint",
    writes=True,
    repeatable=True,
    elsewhere=True,
    tells=_tell_added,
)
def add_endpoint(
    ask: Ask,
    name: Annotated[str, "1 to 40 small letters, digits, dots and hyphens, such as vllm-draft5"],
    url: Annotated[str, "base address, such as https://engine.example.org/v1"],
    model: Annotated[str, "as the engine calls it"],
    kind: Annotated[str, f"{', '.join(get_args(EngineName)[:-1])} or {get_args(EngineName)[-1]}"],
    key_variable: Annotated[
        str, "environment variable that holds its key, which begins with ENGINE_KEY. Empty: none"
    ] = "",
    hardware: Annotated[str, "what it computes on, such as one H100, which runs show"] = "",
    check: Annotated[bool, "whether to ask the engine if it is there and has the model"] = True,
) -> str:
    """Name a running engine, which is asked first.

    A name that exists refers to the new engine, and what was measured with the earlier one stays. Where people sign in,
    the address is public and begins with https://, unless the operator names the host.
    """
    variable, hardware = key_variable.strip(), hardware.strip()
    if variable and not _VARIABLE.fullmatch(variable):
        raise Malformed(
            "The name of the key's variable cannot be used: expected one such as ENGINE_KEY. Give the name, never the "
            "key."
        )
    if len(hardware) > MOST_HARDWARE or not hardware.isprintable():
        raise Malformed(f"The hardware cannot be used: expected one line of at most {MOST_HARDWARE} characters.")
    if variable and not ask.operator and not variable.startswith(KEY_PREFIX):
        raise Malformed(
            f"The key's variable {variable} cannot be named here: expected one that begins with {KEY_PREFIX}, so that "
            "no other secret is sent to an engine. The command line takes any."
        )
    served = Served.checked(endpoint=name.strip(), url=url.strip(), model=model.strip(), engine=kind.strip())
    guarded = ask.settings.access_is_on and not ask.operator
    if hosts := _hosts(ask, guarded):
        hosts.check(served)
    found = _found(ask, served, variable, hosts) if check else "kept, unchecked"
    ask.repository.add_engine(served, variable, ask.person.name, hardware=hardware, guarded=guarded)
    is_open = variable and served.url.startswith("http:") and urlsplit(served.url).hostname not in LOOPBACK
    warning = " Its key travels unencrypted to this address: https hides it." if is_open else ""
    return f"{served.endpoint} is {found}.{warning}"


@action("endpoints check", role="author", doing="Checking an endpoint", elsewhere=True)
def check_endpoint(ask: Ask, endpoint: Endpoint) -> str:
    """Ask a running engine whether it is there and has the model."""
    engine = ask.repository.engine(endpoint)
    found = _found(ask, engine.served, engine.key_variable, _hosts(ask, engine.guarded))
    return f"{endpoint} is {found}."


@action("endpoints remove", role="admin", doing="Forgetting an endpoint", destroys=True)
def remove_endpoint(ask: Ask, endpoint: Endpoint) -> str:
    """Forget a running engine. What was measured stays."""
    ask.repository.remove_engine(endpoint)
    return f"{endpoint} is forgotten. Its runs stay."
