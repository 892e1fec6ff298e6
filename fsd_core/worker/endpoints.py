"""Running engines by name: checked, kept, and offered as settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsd_core.config import DecodingConfig
from fsd_core.config.options import METHOD_OPTIONS, SHARED_OPTIONS, Named
from fsd_core.engines.client import check_engine, check_sampling, check_told
from fsd_core.engines.connection import EngineHosts
from fsd_core.errors import Malformed, NotApplicable
from fsd_core.roles import Person, require
from fsd_core.rules import Served
from fsd_core.settings import Settings

if TYPE_CHECKING:
    from fsd_core.storage.records import ServedEngine
    from fsd_core.storage.repository import Repository


KEY_PREFIX = "ENGINE_KEY"
"""beginning of the names of variables that pages and programs may name, so that nobody sends another secret away"""
ADD_ROLE = "admin"
"""of people who name endpoints: prompts and keys go where they say"""
MOST_HARDWARE = 100
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def checked_variable(name: str) -> str:
    """Return the name of a variable with a key. Raises ``InvalidSetting``."""
    if name and not _VARIABLE.fullmatch(name):
        raise Malformed(
            "The name of the key's variable cannot be used: expected one such as ENGINE_KEY. Give the name, never the "
            "key."
        )
    return name


def checked_hardware(text: str) -> str:
    """Return the hardware of an engine, as a person described it. Raises ``InvalidSetting``."""
    text = text.strip()
    if len(text) > MOST_HARDWARE or not text.isprintable():
        raise Malformed(f"The hardware cannot be used: expected one line of at most {MOST_HARDWARE} characters.")
    return text


def add_endpoint(
    repository: Repository, settings: Settings, person: Person, values: Mapping[str, str], *, check: bool = True
) -> str:
    """Keep an endpoint that somebody gives on a page or by a call. Return what is known of it, as a sentence.

    ``values``: ``endpoint``, ``url``, ``model``, ``engine``, ``key_variable`` and ``hardware``. Raises ``Refused``
    without the role and for an address that may not be asked, ``InvalidSetting``, and with ``check``
    ``EngineUnavailable``.
    """
    require(person, ADD_ROLE, "Adding an endpoint")
    variable, hardware = checked_variable(values["key_variable"].strip()), checked_hardware(values["hardware"])
    if variable and not variable.startswith(KEY_PREFIX):
        raise Malformed(
            f"The key's variable {variable} cannot be named here: expected one that begins with {KEY_PREFIX}, so that "
            "no other secret is sent to an engine. The command line takes any."
        )
    given = {name: values[name].strip() for name in ("endpoint", "url", "model", "engine")}
    served, guarded = Served.checked(**given), settings.access_is_on
    hosts = EngineHosts.of(settings) if guarded else None
    if hosts is not None:
        hosts.check(served)
    found = described(served, check_engine(served, variable, hosts=hosts, quickly=True)) if check else "kept, unchecked"
    repository.add_engine(served, variable, person.name, hardware=hardware, guarded=guarded)
    return f"{served.endpoint} is {found}."


def check_endpoint(repository: Repository, settings: Settings, name: str, *, quickly: bool = True) -> str:
    """Ask an engine whether it is there and has the model. Return what it says, as a sentence.

    Raises ``UnknownName``, ``EngineUnavailable`` and ``Refused``.
    """
    engine = repository.engine(name)
    hosts = EngineHosts.of(settings) if engine.guarded else None
    facts = check_engine(engine.served, engine.key_variable, hosts=hosts, quickly=quickly)
    return f"{name} is {described(engine.served, facts)}."


def engine_to_calibrate(repository: Repository, name: str, *, restarted: bool = False) -> Served | None:
    """Return the engine whose setting is to be found; ``None`` for no name: our own loop's. No engine is asked.

    ``restarted``: whether a command starts it for each value. Raises ``UnknownName``, and ``EngineUnavailable`` for one
    that is told no rule while it runs, unless it is restarted.
    """
    if not name:
        return None
    served = repository.engine(name).served
    if not restarted:
        check_told(served)
    return served


def described(served: Served, facts: Mapping[str, Any]) -> str:
    """Return an engine's own facts, in a few words."""
    context = f", context {facts['max_model_len']} tokens" if "max_model_len" in facts else ""
    return f"{facts['engine']} with {served.model}{context}"


def check_shared(options: Iterable[str], named: Named) -> None:
    """Raise ``InvalidSetting`` if one of these options is of our own loop, and not of prompts and sampling. ``named``
    gives the name of an option in sentences."""
    if ours := [name for name in options if name in METHOD_OPTIONS and name not in SHARED_OPTIONS]:
        option = METHOD_OPTIONS[ours[0]]
        raise NotApplicable(
            f"{named(option, None)} does not apply to an endpoint, which drafts and judges in its own way: leave it "
            "out."
        )


def endpoint_decodings(engines: Sequence[ServedEngine], shared: Mapping[str, Any]) -> list[DecodingConfig]:
    """Return the decoding of endpoints, which has what a method and its baseline share. No engine is asked.

    ``shared``: see ``DecodingConfig.shared``. Raises ``InvalidSetting`` for sampling that an engine does not take.
    """
    decodings = [DecodingConfig(acceptance=engine.served, **shared) for engine in engines]
    for engine, decoding in zip(engines, decodings, strict=True):
        check_sampling(engine.served, decoding.sampling)
    return decodings
