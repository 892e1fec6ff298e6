"""Speed over the load: figures of a comparison, and where speculation stops paying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from dashboard.compare.section import Comparing, Section
from dashboard.ui.components import empty_state, show
from dashboard.ui.figure_address import addressed
from dashboard.ui.question import Asked, Updates
from dashboard.ui.templates import render
from fsd_core.analysis.loads import load_lines, load_sentences
from fsd_core.plots.load_curves import SPEEDS_BY_LOAD, draw


class LoadSection(Section):
    """Throughput and times, over how many prompts are decoded at once and over how many arrive in a second."""

    name = "load"
    title = "Over load"
    parts = ("over load",)

    def build(self) -> None:
        """Make the sentences and the figures."""
        self.told = show()
        self.rows, self.plots = {}, {}
        for by_rate in (False, True):
            with gr.Row(equal_height=False) as self.rows[by_rate]:
                for name, what in SPEEDS_BY_LOAD.items():
                    if what.by_rate == by_rate:
                        self.plots[name] = gr.Plot(show_label=False, min_width=340)

    @property
    def drawn(self) -> Sequence[Any]:
        return [self.told, *self.plots.values()]

    @property
    def outputs(self) -> Sequence[Any]:
        return [*self.rows.values(), *self.drawn]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the figures and sentences, if they differ."""
        measured = {id: stage for id, stage in now.stages.items() if stage.measured}
        if not asked.differs("over load", now.pinned, measured, slow=True):
            return {}
        result = now.comparison()
        lines = load_lines(result.runs, result.baseline, result.prompts)
        kinds = {line.by_rate for line in lines}
        rows = {row: gr.Row(visible=by_rate in kinds) for by_rate, row in self.rows.items()}
        if not lines:
            told = empty_state(
                "No setting was measured under two loads", "Give an experiment several batch sizes, such as 1, 2, 4."
            )
            return {self.told: told, **rows}
        return {
            self.told: render("compare/load.html", "sentences", load_sentences(lines)),
            **rows,
            **{
                plot: addressed(draw(lines, what), name, now.query)
                for name, plot in self.plots.items()
                if (what := SPEEDS_BY_LOAD[name]).by_rate in kinds
            },
        }
