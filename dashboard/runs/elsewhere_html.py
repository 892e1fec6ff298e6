"""The parts of a run's page for figures that were measured elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboard.ui.components import Tile, notice, tiles
from dashboard.ui.metric_text import estimate, figure
from dashboard.ui.quantities import interval, quantity
from dashboard.ui.templates import Html
from fsd_core.formatting import count
from fsd_core.metrics import METRICS, Metric
from fsd_core.storage.elsewhere import origin_text, other_figures

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


def origin_html(run: RunView) -> Html:
    """Return where the figures come from; nothing for a run that was measured here."""
    if not run.measured_elsewhere:
        return Html()
    title = run.decoding.acceptance.title
    return notice(
        f"{title}: {origin_text(run)}. Nothing here has verified these figures, so they get no verdict.", "warn"
    )


def known_tiles(metrics: dict[str, Any]) -> Html:
    """Return the figures that are known, each with its interval."""
    known = [metric for metric in METRICS.values() if metrics.get(metric.key) is not None]
    own = [
        Tile(name, quantity(*found), f"95 %: {ends}" if (ends := interval(found.low, found.high)) else "")
        for name, found in other_figures(metrics).items()
    ]
    return tiles(
        [Tile("Prompts", f"{metrics['n']:,}", _failed(metrics)), *(_tile(metrics, one) for one in known), *own]
    )


def _tile(metrics: dict[str, Any], metric: Metric) -> Tile:
    _, low, high = estimate(metrics, metric.key)
    ends = interval(low, high, metric.scale)
    return Tile(metric.title, figure(metrics, metric.key, metric.unit), f"95 %: {ends}" if ends else "")


def _failed(metrics: dict[str, Any]) -> str:
    return f"{count(metrics['failed'], 'prompt')} failed" if metrics.get("failed") else ""
