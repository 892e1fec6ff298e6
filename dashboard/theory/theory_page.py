"""Theory page: the most that several drafts per position can gain, for two distributions that are typed in."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import gradio as gr
from plotly.graph_objects import Figure

from dashboard.theory import coupling_figure, widths_figure
from dashboard.theory.theory_runs import RunTheory
from dashboard.theory.typed_distributions import coupling, curves, read_pair, token_names
from dashboard.ui.components import Tile, heading, notice, show, tiles
from dashboard.ui.question import Asked, Updates
from dashboard.ui.templates import Html
from dashboard.ui.view import View
from fsd_core.errors import FsdError
from fsd_core.formatting import count, percent
from fsd_core.plots import acceptance_by_drafts
from fsd_core.theory.samplings import DRAFT_SAMPLINGS, SAMPLING_TITLES

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.database.repository import Repository

_LEAD = (
    "How often can one of several drafted tokens be kept without changing the target's distribution? Type in two "
    "distributions to see the bound and what each verifier reaches."
)
COUPLING = (
    "Each column is one outcome of the drafts. A stronger cell is a more frequent token: teal if it is one of the "
    "drafts, grey if it is not."
)
NO_COUPLING = "The coupling has too many cells for a picture: choose fewer drafts, or fewer tokens."
WIDTHS = (
    "For beams, p and q are the joint laws over all pairs of a beam and a token. The bars are those of drafts drawn "
    "with replacement, in turn. DSBD's layer is as wide as the coloured bars reach, before it looks at the drafts."
)
_EXAMPLE = ("0.45, 0.30, 0.15, 0.10", "0.20, 0.40, 0.10, 0.30")


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    TheoryPage(repository, settings.executor)


class TheoryPage:
    """Bounds of two distributions that are typed in, and below them those of runs."""

    def __init__(self, repository: Repository, executor: Executor) -> None:
        show(heading("Theory", _LEAD))
        self.typed = TypedBounds()
        self.runs = RunTheory(repository, executor)
        self.view = View(self.runs.answer, self.fail)
        self.runs.listen(self.view)
        fields, outputs = [*self.typed.fields, *self.runs.fields], [*self.typed.outputs, *self.runs.outputs]
        self.view.listen(self.redraw, fields, outputs, kept=fields)

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the page."""
        return self.typed.redraw(asked) | self.runs.redraw(asked)

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error in place of the runs' bounds. It cannot come from the distributions that were typed in."""
        return self.typed.redraw(asked) | self.runs.fail(error)


class TypedBounds:
    """Two distributions, the number of drafts and how they are drawn, with the bounds below."""

    def __init__(self) -> None:
        with gr.Row(equal_height=False):
            self.target = gr.Textbox(
                _EXAMPLE[0], label="Target p", info="A number for each token, in any scale", max_length=4000,
                min_width=260,
            )  # fmt: skip
            self.draft = gr.Textbox(
                _EXAMPLE[1], label="Draft q", info="The same tokens in the same order", max_length=4000, min_width=260
            )
            numbers = [str(n) for n in range(1, acceptance_by_drafts.MOST_DRAFTS + 1)]
            self.drafts = gr.Radio(numbers, value="2", label="Drafts", min_width=200)
            titles = [(title, name) for name, title in SAMPLING_TITLES.items()]
            self.sampling = gr.Radio(titles, value=DRAFT_SAMPLINGS[0], label="Drawn", min_width=340)
        self.tiles = show()
        with gr.Row(equal_height=False):
            with gr.Column(min_width=340):
                self.rates = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.coupling = gr.Plot(show_label=False)
                self.note = show()
        self.widths = gr.Plot(show_label=False)
        self.widths_note = show()

    @property
    def fields(self) -> list[Any]:
        """Components that :meth:`redraw` reads."""
        return [self.target, self.draft, self.drafts, self.sampling]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` may change."""
        return [self.tiles, self.rates, self.coupling, self.note, self.widths, self.widths_note]

    def redraw(self, asked: Asked) -> Updates:
        """Return the bounds of the two distributions, or what is wrong with these, if they differ."""
        target, draft = asked[self.target] or "", asked[self.draft] or ""
        drafts, sampling = int(asked[self.drafts] or 1), asked[self.sampling] or DRAFT_SAMPLINGS[0]
        if not asked.differs("typed", target, draft, drafts, sampling):
            return {}
        try:
            html, rates, pairs, note, widths = _results(target, draft, drafts, sampling)
        except FsdError as error:
            hidden = gr.Plot(visible=False)
            plots = dict.fromkeys([self.rates, self.coupling, self.widths], hidden)
            return {self.tiles: notice(str(error), "bad"), self.note: "", self.widths_note: "", **plots}
        return {
            self.tiles: html,
            self.rates: gr.Plot(rates, visible=True),
            self.coupling: gr.Plot(pairs, visible=pairs is not None),
            self.note: note,
            self.widths: gr.Plot(widths, visible=True),
            self.widths_note: notice(WIDTHS),
        }


@lru_cache(maxsize=64)  # the same for everyone who opens the page
def _results(target: str, draft: str, drafts: int, sampling: str) -> tuple[Html, Figure, Figure | None, Html, Figure]:
    """Return tiles, curves, the coupling if it can be drawn, a note on it, and the beams that drafts fill. Raises
    ``InvalidSetting``."""
    p, q = read_pair(target, draft)
    rates, pairs = curves(p, q), coupling(p, q, drafts, sampling)
    return (
        _tiles(rates.optima, drafts),
        acceptance_by_drafts.draw(rates.optima, rates.verifiers),
        coupling_figure.draw(token_names(len(p)), pairs) if pairs else None,
        notice(COUPLING if pairs else NO_COUPLING),
        widths_figure.draw(p, q, drafts),
    )


def _tiles(optima: dict[str, list[float]], drafts: int) -> Html:
    single = next(iter(optima.values()))[0]
    entries = [Tile("One draft", percent(single, digits=2), "speculative decoding, Σ min(p, q)")]
    for sampling, title in SAMPLING_TITLES.items():
        rate = optima[sampling][drafts - 1]
        entries.append(Tile(title.capitalize(), percent(rate, digits=2), f"at best, with {count(drafts, 'draft')}"))
    return tiles(entries)
