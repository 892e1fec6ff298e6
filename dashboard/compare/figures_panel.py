"""Figures of a comparison, with the divergences of one chosen run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.compare.chosen_run import chosen_run
from dashboard.compare.export_links import query_of
from dashboard.ui.figure_address import addressed
from dashboard.ui.view import Asked, Updates
from fsd_core.analysis.series import run_names
from fsd_core.plots import divergence
from fsd_core.plots.gallery import COMPARISON_FIGURES, DIVERGENCE_FIGURE, comparison_figures

if TYPE_CHECKING:
    from dashboard.compare.compared_runs import ComparedRuns, RunProgress
    from fsd_core.storage.records import RunView


class FiguresPanel:
    """The panel's components as attributes."""

    def __init__(self) -> None:
        with gr.Row(equal_height=False) as self.row:
            with gr.Column(min_width=340):
                self.plots = [gr.Plot(show_label=False) for _ in range(4)]
            with gr.Column(min_width=340):
                self.plots += [gr.Plot(show_label=False) for _ in range(3)]
                self.histogram = gr.Plot(show_label=False)
                self.run = gr.Dropdown([], label="Run of the divergences", allow_custom_value=True)

    @property
    def fields(self) -> list[Any]:
        """Components that :meth:`redraw` reads."""
        return [self.run]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` changes."""
        return [self.row, *self.plots, self.histogram, self.run]

    def redraw(
        self, asked: Asked, runs: Sequence[RunView], compared: object, stages: Mapping[str, RunProgress],
        comparison: Callable[[], ComparedRuns],
    ) -> Updates:  # fmt: skip
        """Return the figures that differ. Before a run has metrics there are none.

        The divergences are those of the chosen run, if it has any.
        """
        updates: Updates = {}
        measured = {id: stage for id, stage in stages.items() if stage.measured}
        if asked.differs("figures", compared, measured, slow=True):
            result = comparison()
            figures = comparison_figures(result.runs, result.baseline, result.prompts)
            query = query_of(result.runs, result.baseline, result.margin)
            for name, figure in zip(COMPARISON_FIGURES, figures, strict=True):
                addressed(figure, name, query)
            updates |= {self.row: gr.Row(visible=bool(measured)), **dict(zip(self.plots, figures, strict=True))}
        judged, names = divergence.judged(runs), run_names(runs)
        choices = [(names[run.id], run.id) for run in judged]
        if asked.differs("runs of divergences", choices):
            updates[self.run] = gr.Dropdown(choices, visible=bool(choices))
        id = chosen_run(asked, self.run, "run of divergences", judged, divergence.telling(judged), compared)
        if asked.differs("divergences", id, stages[id] if id else None, slow=True):
            figure = divergence.draw(divergence.info(next(run for run in judged if run.id == id))) if id else None
            if figure is not None:
                addressed(figure, DIVERGENCE_FIGURE, f"runs={id}")
            updates[self.histogram] = gr.Plot(figure, visible=id is not None)
        return updates
