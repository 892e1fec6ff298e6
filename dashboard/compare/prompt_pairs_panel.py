"""Two of the compared runs, prompt by prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.compare.comparison_html import pairing_summary
from dashboard.tables.pair_reader import PairReader, RunPair
from dashboard.tables.prompt_pairs import Show, pair_up
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import notice, section, show
from dashboard.ui.signed_in import person_of
from fsd_core.analysis.series import run_names
from fsd_core.errors import FsdError

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

Updates = dict[Any, Any]


class PromptPairsPanel:
    """The panel's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(section("Prompt by prompt"))
        with gr.Row():
            self.run_a = gr.Dropdown([], label="Run A", min_width=240)
            self.run_b = gr.Dropdown([], label="Run B", min_width=240)
        self.summary = show()
        self.reader = PairReader(repository, links=True)
        self.linked = gr.State(None)  # the number of the prompt that the address names
        on_choice(self.run_a, self.run_b)(self.show, self.chosen, self.outputs, **FOLLOWS)

    @property
    def chosen(self) -> list[Any]:
        """Fields whose values are the arguments of :meth:`show`, except the page."""
        return [self.run_a, self.run_b, self.reader.filter, self.reader.size]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`show` changes."""
        return [self.summary, *self.reader.outputs]

    def first(
        self, run_a: str | None, run_b: str | None, which: Show, size: int, linked: int | None, request: gr.Request
    ) -> Updates:
        """Return the page with prompt number ``linked`` of an address, or the first page."""
        return self.show(run_a, run_b, which, size, request, linked=linked)

    def show(
        self, run_a: str | None, run_b: str | None, which: Show, size: int, request: gr.Request, page: int = 0,
        linked: int | None = None,
    ) -> Updates:  # fmt: skip
        """Return one page of two runs' prompts: ``page``, or the page with prompt number ``linked``."""
        person = person_of(request)
        if not run_a or not run_b:
            hint = notice("Choose two runs to see where they disagree.")
            return {self.summary: hint} | self.reader.read(None, which, size, 0, person)
        try:
            names = run_names(self.repository.runs(ids=[run_a, run_b]))
            pairing = pair_up(self.repository, run_a, run_b)
            runs = RunPair(run_a, run_b, names[run_a], names[run_b])
            prompts = self.reader.read(runs, which, size, page, person, pairing, None if linked is None else linked - 1)
        except FsdError as error:
            return {self.summary: notice(str(error), "bad")}
        return {self.summary: pairing_summary(pairing, names[run_a], names[run_b])} | prompts
