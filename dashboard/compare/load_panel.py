"""Speed over the load: two figures of a comparison, and where speculation stops paying. Folded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.compare.export_links import query_of
from dashboard.ui.components import show
from dashboard.ui.figure_address import addressed
from dashboard.ui.templates import render
from dashboard.ui.view import Asked, Updates
from fsd_core.analysis.loads import load_lines, load_sentences
from fsd_core.plots.load_curves import SPEEDS_BY_LOAD, draw

if TYPE_CHECKING:
    from dashboard.compare.compared_runs import ComparedRuns, RunProgress


class LoadPanel:
    """The panel's components as attributes. It is there where a setting was measured under two loads or more."""

    def __init__(self) -> None:
        with gr.Accordion("Over load", open=False, visible=False, elem_id="over-load") as self.part:
            self.told = show()
            with gr.Row(equal_height=False):
                self.plots = {name: gr.Plot(show_label=False, min_width=340) for name in SPEEDS_BY_LOAD}

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` changes."""
        return [self.part, self.told, *self.plots.values()]

    def redraw(
        self, asked: Asked, compared: object, stages: Mapping[str, RunProgress], comparison: Callable[[], ComparedRuns]
    ) -> Updates:
        """Return the figures and sentences, if they differ."""
        measured = {id: stage for id, stage in stages.items() if stage.measured}
        if not asked.differs("over load", compared, measured, slow=True):
            return {}
        result = comparison()
        lines = load_lines(result.runs, result.baseline, result.prompts)
        if not lines:
            return {self.part: gr.Accordion(visible=False)}
        query = query_of(result.runs, result.baseline, result.margin)
        return {
            self.part: gr.Accordion(visible=True),
            self.told: render("compare/load.html", "sentences", load_sentences(lines)),
            **{plot: addressed(draw(lines, SPEEDS_BY_LOAD[name]), name, query) for name, plot in self.plots.items()},
        }
