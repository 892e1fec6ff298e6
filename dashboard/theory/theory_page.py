"""Theory page: the most that several drafts per position can gain, for two distributions that are typed in."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import gradio as gr
from plotly.graph_objects import Figure

from dashboard.theory import coupling_figure
from dashboard.theory.theory_runs import RunTheory
from dashboard.theory.typed_distributions import coupling, curves, read_pair, token_names
from dashboard.ui.choosing import FOLLOWS
from dashboard.ui.components import Tile, heading, notice, on_load, show, tiles
from dashboard.ui.templates import Html
from fsd_core.errors import FsdError
from fsd_core.formatting import count, percent
from fsd_core.plots import acceptance_by_drafts
from fsd_core.theory.samplings import DRAFT_SAMPLINGS, SAMPLING_TITLES

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

_LEAD = (
    "A verifier may get several drafted tokens per position. Optimal transport bounds how often it can keep one and "
    "still write from the target's distribution. Type in two distributions to see the bound and what each verifier "
    "reaches."
)
COUPLING = (
    "A coupling is a joint distribution of the drafts and the token that is written. Each column is one outcome of the "
    "drafts. A stronger cell is a more frequent token: teal if it is one of the drafts, grey if it is not."
)
NO_COUPLING = "The coupling has too many cells for a picture: choose fewer drafts, or fewer tokens."
_EXAMPLE = ("0.45, 0.30, 0.15, 0.10", "0.20, 0.40, 0.10, 0.30")

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    show(heading("Theory", _LEAD))
    with gr.Row(equal_height=False):
        target = gr.Textbox(
            _EXAMPLE[0], label="Target p", info="A number for each token, in any scale", max_length=4000, min_width=260
        )
        draft = gr.Textbox(_EXAMPLE[1], label="Draft q", info="The same tokens in the same order", max_length=4000,
                           min_width=260)  # fmt: skip
        drafts = gr.Radio(
            [str(n) for n in range(1, acceptance_by_drafts.MOST_DRAFTS + 1)], value="2", label="Drafts", min_width=200
        )
        sampling = gr.Radio(
            [(title, name) for name, title in SAMPLING_TITLES.items()],
            value=DRAFT_SAMPLINGS[0],
            label="Drawn",
            min_width=340,
        )
    numbers = show()
    with gr.Row(equal_height=False):
        with gr.Column(min_width=340):
            by_number = gr.Plot(show_label=False)
        with gr.Column(min_width=340):
            joint = gr.Plot(show_label=False)
            note_on_coupling = show()

    def draw(target_text: str, draft_text: str, number: str, sampling_name: str) -> Updates:
        try:
            html, rates, pairs, note = _results(target_text or "", draft_text or "", int(number), sampling_name)
        except FsdError as error:
            return {
                numbers: notice(str(error), "bad"),
                by_number: gr.Plot(visible=False),
                joint: gr.Plot(visible=False),
                note_on_coupling: "",
            }
        return {
            numbers: html,
            by_number: gr.Plot(rates, visible=True),
            joint: gr.Plot(pairs, visible=pairs is not None),
            note_on_coupling: note,
        }

    fields, outputs = [target, draft, drafts, sampling], [numbers, by_number, joint, note_on_coupling]
    for field in fields:
        field.change(draw, fields, outputs, **FOLLOWS)
    on_load(draw, fields, outputs)
    RunTheory(repository, settings.executor)


@lru_cache(maxsize=64)  # the same for everyone who opens the page
def _results(target: str, draft: str, drafts: int, sampling: str) -> tuple[Html, Figure, Figure | None, Html]:
    """Return tiles, curves, the coupling if it can be drawn, and a note on it. Raises ``InvalidSetting``."""
    p, q = read_pair(target, draft)
    rates, pairs = curves(p, q), coupling(p, q, drafts, sampling)
    return (
        _tiles(rates.optima, drafts),
        acceptance_by_drafts.draw(rates.optima, rates.verifiers),
        coupling_figure.draw(token_names(len(p)), pairs) if pairs else None,
        notice(COUPLING if pairs else NO_COUPLING),
    )


def _tiles(optima: dict[str, list[float]], drafts: int) -> Html:
    single = next(iter(optima.values()))[0]
    entries = [Tile("One draft", percent(single, digits=2), "speculative decoding, Σ min(p, q)")]
    for sampling, title in SAMPLING_TITLES.items():
        rate = optima[sampling][drafts - 1]
        entries.append(Tile(title.capitalize(), percent(rate, digits=2), f"at best, with {count(drafts, 'draft')}"))
    return tiles(entries)
