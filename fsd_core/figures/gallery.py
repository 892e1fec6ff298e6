"""The figures of a comparison by name, in the order in which pages show them: down one column, then down the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from fsd_core.figures import positions, threshold, throughput, tradeoff

if TYPE_CHECKING:
    from fsd_core.tracking.records import RunView

Draw = Callable[[Sequence["RunView"], "RunView | None"], go.Figure]
"""of the runs and the baseline"""

COMPARED: Mapping[str, Draw] = {
    "tradeoff": lambda runs, baseline: tradeoff.draw(tradeoff.info(runs)),
    "acceptance_rate": lambda runs, baseline: threshold.draw(threshold.info(runs, threshold.ACCEPTANCE_RATE)),
    "acceptance_length": lambda runs, baseline: threshold.draw(threshold.info(runs, threshold.ACCEPTANCE_LENGTH)),
    "throughput": lambda runs, baseline: throughput.draw(throughput.info(runs, baseline)),
    "positions": lambda runs, baseline: positions.draw(positions.info(runs)),
}
"""figures of all runs together"""


def comparison_figures(runs: Sequence[RunView], baseline: RunView | None) -> list[go.Figure]:
    """Accuracy against throughput, acceptance rate and length against threshold; throughput, acceptance by position."""
    return [draw(runs, baseline) for draw in COMPARED.values()]
