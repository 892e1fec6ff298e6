"""Two runs read prompt by prompt: filters, pages, keys, and marks on outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.tables.hidden_html import hidden_html
from dashboard.tables.pairs_html import pairs_html
from dashboard.tables.prompt_pairs import SHOWS, Ids, Pair, Pairing, Show, pair_up
from dashboard.ui.components import notice, show
from dashboard.ui.pager import turned
from dashboard.ui.question import Act, Asked, Updates, digest
from dashboard.ui.templates import joined, render, script
from dashboard.ui.view import View
from fsd_core.errors import Stale
from fsd_core.formatting import count
from fsd_core.review.blinding import HiddenAnswers, hidden_answers
from fsd_core.roles import same_name
from fsd_core.storage.review_events import LONGEST_QUOTE, LONGEST_TEXT

if TYPE_CHECKING:
    from fsd_core.review.passages import Quoted
    from fsd_core.storage.database.repository import Repository

PAGE_SIZES = (5, 20, 50)
"""prompts per page"""
PAGER = "prompts"
SCRIPT = script("tables/pair_reader.js", LONGEST=LONGEST_TEXT, QUOTE=LONGEST_QUOTE, PAGER=PAGER)

Order = Callable[[Sequence[Pair]], Sequence[Pair]]


class RunPair(NamedTuple):
    """Two runs and their names."""

    a: Ids
    b: Ids
    name_a: str
    name_b: str

    @property
    def ids(self) -> list[str]:
        return [id for ids in (self.a, self.b) for id in ((ids,) if isinstance(ids, str) else ids)]


class PairReader:
    """The reader's components as attributes. ``order`` sorts the prompts of a filter, ``which`` is the first filter.

    With ``links``, each prompt has a button that copies its address, which the page must then understand. With
    ``comments``, each output has a button that sends the act ``comment on``, which the page must then answer.
    """

    def __init__(
        self, repository: Repository, which: Show = "outcome", order: Order = list, *, links: bool = False,
        comments: bool = False,
    ) -> None:  # fmt: skip
        self.repository, self.order, self.links, self.comments = repository, order, links, comments
        with gr.Row(elem_classes=["pair-filter"]):
            self.filter = gr.Radio(list(SHOWS), value=which, label="Prompts", min_width=320, scale=3)
            self.size = gr.Dropdown(list(PAGE_SIZES), value=PAGE_SIZES[0], label="Prompts a page", min_width=120)
        self.summary = show()
        self.answer = show()
        self.pairs = show(js_on_load=SCRIPT)
        with gr.Row():
            self.back = gr.Button("Previous prompts", interactive=False, size="sm")
            self.forward = gr.Button("Next prompts", interactive=False, size="sm")
        show(render("tables/pairs.html", "keys", comments))

    @property
    def fields(self) -> list[Any]:
        """Components that :meth:`redraw` reads."""
        return [self.filter, self.size]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` and marks may change."""
        return [self.summary, self.answer, self.pairs, self.back, self.forward]

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.turns(PAGER, ((self.back, -1), (self.forward, 1)))
        view.on(self.pairs.click)
        view.act("mark", self.mark, self.answer)

    def redraw(
        self, asked: Asked, runs: RunPair | None, state: object = (), *, which: Show | None = None,
        linked: int | None = None, quoted: Quoted | None = None, read: Callable[[RunPair], Pairing] | None = None,
        about: Callable[[Pairing], Updates] = lambda pairing: {}, slow: bool = False,
    ) -> Updates:  # fmt: skip
        """Return a page of prompts as the person sees them, if it differs. Raises ``FsdError``.

        Args:
            state: what else the prompts depend on, such as how far the runs have come
            which: filter in place of the field's
            linked: position of a prompt; its page is the first that is shown
            quoted: a passage that stands out
            read: returns the prompts of two runs, by default those of the database
            about: returns what else to redraw with the prompts
            slow: whether this may wait for another answer
        """
        kind: Show = which or asked[self.filter]
        size = asked[self.size]
        size = size if size in PAGE_SIZES else PAGE_SIZES[0]
        of = digest(runs, kind, size)
        page = asked.page(PAGER, of, -1)
        marks = self.repository.marks(runs.ids) if runs else ()
        hidden = hidden_answers(self.repository, asked.person, runs.ids) if runs else HiddenAnswers()
        blind = sorted((run, sorted(at)) for run, at in hidden.by_run.items())
        if not asked.differs("prompts", of, page, linked, state, marks, asked.person.name, blind, quoted, slow=slow):
            return {}
        if runs is None:
            return {self.summary: "", self.pairs: ""} | self._turnable(0, 1, 0)
        pairing = read(runs) if read else pair_up(self.repository, runs.a, runs.b)
        readable = [pair for pair in pairing.pairs if not any(g.position in hidden.of(g.run_id) for g in pair)]
        pairs = self.order(Pairing(readable, pairing.marks).filtered(kind))
        kept_back = hidden_html(len(pairing.pairs) - len(readable), hidden.proposals, asked.address.get("proposal", ""))
        if page < 0:
            page = next((i // size for i, pair in enumerate(pairs) if pair.a.position == linked), 0)
        page = max(0, min(page, (len(pairs) - 1) // size))
        page_pairs = pairs[page * size : (page + 1) * size]
        summary = f"{count(len(pairs), 'prompt')} of {len(readable):,}"
        if len(pairs) > size:
            summary += f", {page * size + 1:,} to {page * size + len(page_pairs):,} shown"
        place = turned(PAGER, of, page) | {"data-pages": -(-len(pairs) // size)}
        no_match = notice("No prompt of this kind: choose another filter, or other runs.") if not kept_back else ""
        return {
            **about(pairing),
            self.summary: joined(
                [render("tables/pairs.html", "shown", summary, place) if pairs else no_match, kept_back]
            ),
            self.pairs: pairs_html(
                page_pairs,
                runs.name_a,
                runs.name_b,
                pairing.marks,
                asked.person.name,
                linked,
                links=self.links,
                quoted=quoted,
                comments=self.comments,
            ),
        } | self._turnable(page, size, len(pairs))

    def mark(self, act: Act, asked: Asked) -> Updates:
        """Store a verdict (``none`` removes it) or a note on an output, and keep the other one."""
        run, position = act["run"], act["position"]
        if not re.fullmatch("[0-9]{1,9}", position):
            raise Stale("There is no such output: reload the page.")
        marks = self.repository.marks([run])
        who = asked.person.name
        previous = next((one for one in marks if one.position == int(position) and same_name(one.who, who)), None)
        verdict, note = (previous.verdict, previous.note) if previous else (None, "")
        if act["verdict"]:
            verdict = None if act["verdict"] == "none" else act["verdict"]
        else:
            note = act["note"].strip()
        self.repository.mark(run, int(position), who, verdict, note)
        return {self.answer: ""}

    def _turnable(self, page: int, size: int, prompts: int) -> Updates:
        return {
            self.back: gr.Button(interactive=page > 0),
            self.forward: gr.Button(interactive=(page + 1) * size < prompts),
        }
