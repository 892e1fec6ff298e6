"""Running engines by name: checked, kept, and offered as settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsd_core.config import DecodingConfig
from fsd_core.config.options import METHOD_OPTIONS, SHARED_OPTIONS, Named
from fsd_core.engines.client import check_sampling, check_told
from fsd_core.errors import NotApplicable
from fsd_core.rules import Served

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import ServedEngineRow


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


def check_shared(options: Iterable[str], named: Named) -> None:
    """Raise ``InvalidSetting`` if one of these options is of our own loop, and not of prompts and sampling. ``named``
    gives the name of an option in sentences."""
    if ours := [name for name in options if name in METHOD_OPTIONS and name not in SHARED_OPTIONS]:
        option = METHOD_OPTIONS[ours[0]]
        raise NotApplicable(
            f"{named(option, None)} does not apply to an endpoint, which drafts and judges in its own way: leave it "
            "out."
        )


def endpoint_decodings(engines: Sequence[ServedEngineRow], shared: Mapping[str, Any]) -> list[DecodingConfig]:
    """Return the decoding of endpoints, which has what a method and its baseline share. No engine is asked.

    ``shared``: see ``DecodingConfig.shared``. Raises ``InvalidSetting`` for sampling that an engine does not take.
    """
    decodings = [DecodingConfig(acceptance=engine.served, **shared) for engine in engines]
    for engine, decoding in zip(engines, decodings, strict=True):
        check_sampling(engine.served, decoding.sampling)
    return decodings
