"""Figures of a comparison by name, in the order of the pages: down one column, then down the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from fsd_core.analysis import matching
from fsd_core.analysis.loads import load_lines
from fsd_core.errors import NotGiven, UnknownChoice
from fsd_core.plots import (
    answers,
    divergence,
    draft_lengths,
    load_curves,
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
FIRST_FIGURE = "tradeoff"
"""the one that a comparison answers with"""

_MARGIN = 2.0
"""default points for the figure at equal accuracy"""
MATCHED: Mapping[str, Draw] = {
    "matched": lambda runs, baseline, prompts: matched_curves.draw(matching.match(runs, baseline, prompts)),
    "equal_accuracy": lambda runs, baseline, prompts: matched_curves.draw_within(
        matching.match(runs, baseline, prompts), _MARGIN
    ),
    "draft_lengths": lambda runs, baseline, prompts: draft_lengths.draw(draft_lengths.info(runs, baseline, prompts)),
    "predicted": lambda runs, *_: predicted.draw(predicted.info(runs)),
}
"""figures of rules at matched points, speed over the draft length, and predictions by replay"""

OVER_LOAD: Mapping[str, Draw] = {
    name: lambda runs, baseline, prompts, what=what: load_curves.draw(load_lines(runs, baseline, prompts), what)
    for name, what in load_curves.SPEEDS_BY_LOAD.items()
}
"""figures of speed over the load"""

DIVERGENCE_FIGURE = "divergences"
"""the histogram of one run: the loosest of those that are given"""
FIGURE_NAMES = (*COMPARISON_FIGURES, *MATCHED, *OVER_LOAD, DIVERGENCE_FIGURE)


def named_figure(
    name: str, runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts, *,
    cost: str = "target_passes", margin: float = _MARGIN, marked: str | None = None,
) -> go.Figure:  # fmt: skip
    """Return the figure of this name, one of ``FIGURE_NAMES``.

    ``cost`` (a key of ``matching.COSTS``) and ``margin`` (points) are those of the figures at matched points, and
    ``marked`` is the id of the run that the first figure marks. Raises ``InvalidSetting`` for an unknown name,
    ``UnknownName`` for an unknown cost.
    """
    if name == FIRST_FIGURE:
        return tradeoff.draw(tradeoff.info(runs), marked)
    if name == DIVERGENCE_FIGURE:
        run = divergence.telling(divergence.judged(runs)) or next(iter(runs), None)
        if run is None:
            raise NotGiven("The divergences of no run were asked for: name a run.")
        return divergence.draw(divergence.info(run))
    if name == "matched":
        return matched_curves.draw(matching.match(runs, baseline, prompts, cost))
    if name == "equal_accuracy":
        return matched_curves.draw_within(matching.match(runs, baseline, prompts, cost), margin)
    if (draw := {**COMPARISON_FIGURES, **MATCHED, **OVER_LOAD}.get(name)) is None:
        raise UnknownChoice(f"There is no figure {name[:40]!r}: expected one of {', '.join(FIGURE_NAMES)}.")
    return draw(runs, baseline, prompts)


def comparison_figures(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> list[go.Figure]:
    """Return the figures of all runs together: accuracy against throughput, acceptance rate and length against
    threshold, answers, throughput, acceptance by position and over requests."""
    return [draw(runs, baseline, prompts) for draw in COMPARISON_FIGURES.values()]
