"""Figures of a comparison, with the divergences of one chosen run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import show, tells_errors
from fsd_core.plots import divergence
from fsd_core.plots.gallery import comparison_figures

if TYPE_CHECKING:
    from dashboard.compare.compared_runs import ComparedRuns
    from fsd_core.storage.database.repository import Repository

Updates = dict[Any, Any]


class FiguresPanel:
    """The panel's components as attributes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        with gr.Row(equal_height=False) as self.row:
            with gr.Column(min_width=340):
                self.plots = [gr.Plot(show_label=False) for _ in range(4)]
            with gr.Column(min_width=340):
                self.plots += [gr.Plot(show_label=False) for _ in range(3)]
                self.histogram = gr.Plot(show_label=False)
                self.run = gr.Dropdown([], label="Run of the divergences")
                self.answer = show()
        on_choice(self.run)(self.show_histogram, self.run, [self.histogram, self.answer], **FOLLOWS)

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`draw` changes."""
        return [self.row, *self.plots, self.histogram, self.run]

    def draw(self, comparison: ComparedRuns, run_id: str | None) -> Updates:
        """Return all figures, or none before a run has metrics.

        The divergences are those of the run ``run_id`` if it has any.
        """
        compared = comparison.runs, comparison.baseline, comparison.prompts
        figures = comparison_figures(*compared) if comparison.rows else [None] * len(self.plots)
        judged = divergence.judged(comparison.runs)
        selected = next((run for run in judged if run.id == run_id), divergence.telling(judged))
        names = [(row.name, row.run.id) for row in comparison.rows if row.run in judged]
        return {
            self.row: gr.Row(visible=any(run.metrics for run in comparison.runs)),
            **dict(zip(self.plots, figures, strict=True)),
            self.histogram: gr.Plot(
                divergence.draw(divergence.info(selected)) if selected else None, visible=selected is not None
            ),
            self.run: gr.Dropdown(names, value=selected.id if selected else None, visible=selected is not None),
        }

    @tells_errors("answer")
    def show_histogram(self, run_id: str | None) -> Updates:
        """Return the divergences of another run."""
        histogram = divergence.draw(divergence.info(self.repository.run(run_id))) if run_id else None
        return {self.histogram: histogram, self.answer: ""}
