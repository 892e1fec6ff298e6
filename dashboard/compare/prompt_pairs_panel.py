"""Two of the compared runs prompt by prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.compare.comparison_html import pairing_summary
from dashboard.tables.pairs_html import pairs_html
from dashboard.tables.prompt_pairs import SHOWS, Show, pair_up
from dashboard.ui.components import QUIET, notice, section, show
from fsd_core.errors import FsdError
from fsd_core.figures.series import run_names

if TYPE_CHECKING:
    from fsd_core.tracking.database.repository import Repository

PAIRS_PER_PAGE = 5

Updates = dict[Any, Any]


class PromptPairsPanel:
    """The components as attributes; a method per event, which returns what it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(section("Prompt by prompt"))
        with gr.Row():
            self.run_a = gr.Dropdown([], label="Run A", min_width=240)
            self.run_b = gr.Dropdown([], label="Run B", min_width=240)
            self.filter = gr.Radio(list(SHOWS), value="outcome", label="Prompts with", min_width=320)
        self.summary = show()
        self.pairs = show()
        self.page = gr.State(0)
        with gr.Row():
            self.back = gr.Button("Previous prompts", interactive=False, size="sm")
            self.forward = gr.Button("Next prompts", interactive=False, size="sm")
        for field in self.chosen:
            field.input(self.show, self.chosen, self.outputs, **QUIET)
        for button, step in ((self.back, -1), (self.forward, 1)):
            button.click(self._turn(step), [*self.chosen, self.page], self.outputs, **QUIET)

    @property
    def chosen(self) -> list[Any]:
        """What is to be shown: the arguments of :meth:`show`, but for the page."""
        return [self.run_a, self.run_b, self.filter]

    @property
    def outputs(self) -> list[Any]:
        """What :meth:`show` changes."""
        return [self.summary, self.pairs, self.page, self.back, self.forward]

    def show(self, run_a: str | None, run_b: str | None, which: Show, page: int = 0) -> Updates:
        """One page of prompts of two runs."""
        if not run_a or not run_b:
            hint = notice("Choose two runs to see where they disagree.")
            return {self.summary: hint, self.pairs: "", self.page: 0} | self._turnable(0, 0)
        try:
            names = run_names(self.repository.runs(ids=[run_a, run_b]))
            pairing = pair_up(self.repository, run_a, run_b)
        except FsdError as error:
            return {self.summary: notice(str(error), "bad")}
        shown = pairing.filtered(which)
        begin = page * PAIRS_PER_PAGE
        return {
            self.summary: pairing_summary(pairing, names[run_a], names[run_b]),
            self.pairs: pairs_html(shown[begin : begin + PAIRS_PER_PAGE], names[run_a], names[run_b])
            or notice("No prompt of this kind: choose other runs, or show all prompts."),
            self.page: page,
        } | self._turnable(page, len(shown))

    def _turn(self, step: int) -> Any:
        def turn(run_a: str | None, run_b: str | None, which: Show, page: int) -> Updates:
            return self.show(run_a, run_b, which, max(0, page + step))

        return turn

    def _turnable(self, page: int, prompts: int) -> Updates:
        return {
            self.back: gr.Button(interactive=page > 0),
            self.forward: gr.Button(interactive=(page + 1) * PAIRS_PER_PAGE < prompts),
        }
