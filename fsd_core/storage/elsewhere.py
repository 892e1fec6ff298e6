"""Stored facts on figures that were measured elsewhere: their origin, and figures with names of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsd_core.statistics.intervals import Estimate

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

OTHER_FIGURES = "other_figures"
"""key of a run's metrics that holds figures by names of their own, each with the ends of its interval"""


def other_figures(metrics: Mapping[str, Any] | None) -> dict[str, Estimate]:
    """Return figures by names of their own, of a run's metrics."""
    stored = (metrics or {}).get(OTHER_FIGURES)
    figures = stored.items() if isinstance(stored, dict) else ()
    return {name: Estimate(*ends) for name, ends in figures if len(ends) == 3 and ends[0] is not None}


def origin_text(run: RunView) -> str:
    """Return where figures that were measured elsewhere come from, such as ``tool vllm, version 0.32``."""
    facts = [f"{name} {value}" for name, value in run.origin.items() if value is not None]
    return ", ".join(facts) or "origin not recorded"
