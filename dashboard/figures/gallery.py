"""The figures of a comparison, in the order in which they are shown: down one column, then down the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from dashboard.figures import positions, threshold, throughput, tradeoff

if TYPE_CHECKING:
    from fsd_core.tracking.records import RunView


def comparison_figures(runs: Sequence[RunView], baseline: RunView | None) -> list[go.Figure]:
    """Accuracy against throughput, acceptance rate and length against threshold; throughput, acceptance by position."""
    return [
        tradeoff.draw(tradeoff.info(runs)),
        threshold.draw(threshold.info(runs, threshold.ACCEPTANCE_RATE)),
        threshold.draw(threshold.info(runs, threshold.ACCEPTANCE_LENGTH)),
        throughput.draw(throughput.info(runs, baseline)),
        positions.draw(positions.info(runs)),
    ]
