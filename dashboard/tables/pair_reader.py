"""Two runs read prompt by prompt: filters, pages, keys, and marks on outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.tables.pairs_html import pairs_html
from dashboard.tables.prompt_pairs import SHOWS, Ids, Pair, Pairing, Show, pair_up
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import PRIVATE_EVENT, notice, show
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import render, script
from fsd_core.errors import FsdError
from fsd_core.formatting import count
from fsd_core.roles import Person, require
from fsd_core.storage.review_events import LONGEST_WORDS

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

PAGE_SIZES = (5, 20, 50)
"""prompts per page"""
SCRIPT = script("tables/pair_reader.js", LONGEST=LONGEST_WORDS)

Updates = dict[Any, Any]
Order = Callable[[Sequence[Pair]], Sequence[Pair]]


class RunPair(NamedTuple):
    """Two runs and their names."""

    a: Ids
    b: Ids
    name_a: str
    name_b: str


class PairReader:
    """The reader's components as attributes. ``order`` sorts the prompts of a filter, ``which`` is the first filter.

    With ``links``, each prompt has a button that copies its address, which the page must then understand.
    """

    def __init__(
        self, repository: Repository, which: Show = "outcome", order: Order = list, *, links: bool = False
    ) -> None:
        self.repository, self.order, self.links = repository, order, links
        with gr.Row(elem_classes=["pair-filter"]):
            self.filter = gr.Radio(list(SHOWS), value=which, label="Prompts", min_width=320, scale=3)
            self.size = gr.Dropdown(list(PAGE_SIZES), value=PAGE_SIZES[0], label="Prompts a page", min_width=120)
        self.told = show()
        self.pairs = show(js_on_load=SCRIPT)
        self.runs = gr.State(None)
        self.page = gr.State(0)
        with gr.Row():
            self.back = gr.Button("Previous prompts", interactive=False, size="sm")
            self.forward = gr.Button("Next prompts", interactive=False, size="sm")
        show(render("tables/pairs.html", "keys"))
        on_choice(self.filter, self.size)(self.begin, self.chosen, self.outputs, **FOLLOWS)
        for button, step in ((self.back, -1), (self.forward, 1)):
            button.click(self._turn(step), [*self.chosen, self.page], self.outputs, **PRIVATE_EVENT)
        self.pairs.click(self.act, [*self.chosen, self.page], self.outputs, **PRIVATE_EVENT)

    @property
    def chosen(self) -> list[Any]:
        """Fields whose values are the first arguments of :meth:`read`."""
        return [self.runs, self.filter, self.size]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`read` may change."""
        return [self.runs, self.told, self.pairs, self.page, self.back, self.forward]

    def read(
        self, runs: RunPair | None, which: Show, size: int, page: int, person: Person, pairing: Pairing | None = None,
        linked: int | None = None,
    ) -> Updates:  # fmt: skip
        """Return one page of prompts as ``person`` sees them: ``page``, or that of the position ``linked`` if it is
        given.

        A given ``pairing`` is not read again. Raises ``FsdError``.
        """
        if runs is None:
            return {self.runs: None, self.told: "", self.pairs: "", self.page: 0} | self._turnable(0, 1, 0)
        size = size if size in PAGE_SIZES else PAGE_SIZES[0]
        pairing = pairing or pair_up(self.repository, runs.a, runs.b)
        pairs = self.order(pairing.filtered(which))
        page = next((i // size for i, pair in enumerate(pairs) if pair.a.position == linked), page)
        page = max(0, min(page, (len(pairs) - 1) // size))
        page_pairs = pairs[page * size : (page + 1) * size]
        summary = f"{count(len(pairs), 'prompt')} of {len(pairing.pairs):,}"
        if len(pairs) > size:
            summary += f", {page * size + 1:,} to {page * size + len(page_pairs):,} shown"
        no_match = notice("No prompt of this kind: choose another filter, or other runs.")
        return {
            self.runs: runs,
            self.told: render("tables/pairs.html", "shown", summary) if pairs else no_match,
            self.pairs: pairs_html(
                page_pairs, runs.name_a, runs.name_b, pairing.marks, person.name, linked, links=self.links
            ),
            self.page: page,
        } | self._turnable(page, size, len(pairs))

    def begin(self, runs: RunPair | None, which: Show, size: int, request: gr.Request) -> Updates:
        """Return the first page of another filter."""
        return self._guarded(runs, which, size, 0, person_of(request))

    def act(
        self, runs: RunPair | None, which: Show, size: int, page: int, event: gr.EventData, request: gr.Request
    ) -> Updates:
        """Run the action of a key or a button of an output."""
        person, kind = person_of(request), str(event.act)
        if kind in ("next", "back"):
            return self._guarded(runs, which, size, page + (1 if kind == "next" else -1), person)
        try:
            require(person, "author", "Marking an output")
            self._mark(person, kind, str(event.run), int(event.position), str(event.words))
        except (FsdError, ValueError) as error:
            return {self.told: notice(str(error), "bad")}
        return self._guarded(runs, which, size, page, person)

    def _mark(self, person: Person, kind: str, run: str, position: int, text: str) -> None:
        """Store a verdict or a note and keep the other one. A repeated verdict is removed."""
        marks = self.repository.marks([run])
        previous = next((mark for mark in marks if (mark.position, mark.who) == (position, person.name)), None)
        verdict, note = (previous.verdict, previous.note) if previous else (None, "")
        if kind == "note":
            note = text.strip()
        else:
            verdict = None if verdict == kind else kind
        self.repository.mark(run, position, person.name, verdict, note)

    def _turn(self, step: int) -> Any:
        def turn(runs: RunPair | None, which: Show, size: int, page: int, request: gr.Request) -> Updates:
            return self._guarded(runs, which, size, page + step, person_of(request))

        return turn

    def _guarded(self, runs: RunPair | None, which: Show, size: int, page: int, person: Person) -> Updates:
        try:
            return self.read(runs, which, size, page, person)
        except FsdError as error:
            return {self.told: notice(str(error), "bad")}

    def _turnable(self, page: int, size: int, prompts: int) -> Updates:
        return {
            self.back: gr.Button(interactive=page > 0),
            self.forward: gr.Button(interactive=(page + 1) * size < prompts),
        }
