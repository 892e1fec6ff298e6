"""Further figures of a comparison, with the divergences of one chosen run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from dashboard.compare.chosen_run import chosen_run
from dashboard.compare.section import Comparing, Section
from dashboard.ui.figure_address import addressed
from dashboard.ui.question import Asked, Updates
from fsd_core.analysis.series import run_names
from fsd_core.plots import divergence
from fsd_core.plots.gallery import COMPARISON_FIGURES, DIVERGENCE_FIGURE, FIRST_FIGURE

FURTHER = {name: draw for name, draw in COMPARISON_FIGURES.items() if name != FIRST_FIGURE}


class FurtherFigures(Section):
    """Acceptance, answers and speed of all runs, in two columns."""

    name = "further"
    title = "Further figures"
    parts = ("figures", "divergences")

    def build(self) -> None:
        """Make the figures, first down one column, then down the next."""
        with gr.Row(equal_height=False) as self.row:
            with gr.Column(min_width=340):
                self.plots = [gr.Plot(show_label=False) for _ in range(3)]
                self.run = gr.Dropdown([], label="Run of the divergences", allow_custom_value=True)
                self.histogram = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.plots += [gr.Plot(show_label=False) for _ in range(3)]

    @property
    def fields(self) -> Sequence[Any]:
        return [self.run]

    @property
    def drawn(self) -> Sequence[Any]:
        return [*self.plots, self.histogram]

    @property
    def outputs(self) -> Sequence[Any]:
        return [self.row, *self.drawn, self.run]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the figures that differ. Before a run has done a prompt there are none.

        The divergences are those of the chosen run, if it has any.
        """
        updates: Updates = {}
        if asked.differs("figures", now.pinned, now.begun, slow=True):
            result = now.comparison()
            figures = [draw(result.runs, result.baseline, result.prompts) for draw in FURTHER.values()]
            for name, figure in zip(FURTHER, figures, strict=True):
                addressed(figure, name, now.query)
            updates |= {self.row: gr.Row(visible=bool(now.begun)), **dict(zip(self.plots, figures, strict=True))}
        judged, names = divergence.judged(now.runs), run_names(now.runs)
        choices = [(names[run.id], run.id) for run in judged]
        if asked.differs("runs of divergences", choices):
            updates[self.run] = gr.Dropdown(choices, visible=bool(choices))
        id = chosen_run(asked, self.run, "run of divergences", judged, divergence.telling(judged), now.pinned)
        if asked.differs("divergences", id, now.stages[id] if id else None, slow=True):
            figure = divergence.draw(divergence.info(next(run for run in judged if run.id == id))) if id else None
            if figure is not None:
                addressed(figure, DIVERGENCE_FIGURE, f"runs={id}")
            updates[self.histogram] = gr.Plot(figure, visible=id is not None)
        return updates
