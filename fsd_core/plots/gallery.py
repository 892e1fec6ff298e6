"""Figures of a comparison by name, in the order of the pages: down one column, then down the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from fsd_core.analysis import matching
from fsd_core.plots import (
    answers,
    draft_lengths,
    matched_curves,
    positions,
    predicted,
    requests,
    threshold,
    throughput,
    tradeoff,
)

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView

Draw = Callable[[Sequence["RunView"], "RunView | None", "Prompts"], go.Figure]
"""called with the runs, the baseline, and the counts of their prompts"""

COMPARISON_FIGURES: Mapping[str, Draw] = {
    "tradeoff": lambda runs, *_: tradeoff.draw(tradeoff.info(runs)),
    "acceptance_rate": lambda runs, *_: threshold.draw(threshold.info(runs, threshold.ACCEPTANCE_RATE)),
    "acceptance_length": lambda runs, *_: threshold.draw(threshold.info(runs, threshold.ACCEPTANCE_LENGTH)),
    "answers": lambda runs, baseline, prompts: answers.draw(answers.info(runs, baseline, prompts)),
    "throughput": lambda runs, baseline, prompts: throughput.draw(throughput.info(runs, baseline, prompts)),
    "positions": lambda runs, *_: positions.draw(positions.info(runs)),
    "requests": lambda runs, *_: requests.draw(requests.info(runs)),
}
"""figures of all runs together"""

_MARGIN = 2.0
"""default points for the figure at equal accuracy"""
MATCHED: Mapping[str, Draw] = {
    "matched": lambda *compared: matched_curves.draw(matching.match(*compared)),
    "equal_accuracy": lambda *compared: matched_curves.draw_within(matching.match(*compared), _MARGIN),
    "draft_lengths": lambda *compared: draft_lengths.draw(draft_lengths.info(*compared)),
    "predicted": lambda runs, *_: predicted.draw(predicted.info(runs)),
}
"""figures of rules at matched points, speed over the draft length, and predictions by replay"""


def comparison_figures(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> list[go.Figure]:
    """Return the figures of all runs together: accuracy against throughput, acceptance rate and length against
    threshold, answers, throughput, acceptance by position and over requests."""
    return [draw(runs, baseline, prompts) for draw in COMPARISON_FIGURES.values()]
