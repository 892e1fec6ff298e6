"""HTML components that all pages share. A text is escaped unless it is ``templates.Html`` already."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gradio as gr
from gradio.context import Context

from dashboard.ui.templates import Html, joined, render, script
from dashboard.ui.terms import explained
from fsd_core.conditions import MIXED_MARK, mixed_sentence
from fsd_core.formatting import NO_INTERVAL, ROUGH_MARK
from fsd_core.storage.playground_chunks import EmittedToken

KINDS = {
    "strict": "accepted by the strict test",
    "lenient": "accepted only because the rule is lenient",
    "correction": "recovered token in place of a rejected one",
    "bonus": "bonus token after a fully accepted draft",
    "plain": "written by one model alone",
}

PRIVATE_EVENT: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
"""Options of every event: no flickering overlay, no entry in the public API, and no use of Gradio's queue, whose stream
loses an answer if a message is late. No handler computes for long, because the worker does that."""

KEEP_PLACE = script("ui/keep_place.js")
"""for HTML that is redrawn during use: tables keep their scroll position, and the focus stays"""

_PIECES = "ui/components.html"


def show(value: str = "", **options: Any) -> gr.HTML:
    """Return a component for HTML made by this module, without Gradio's frame and styles."""
    options = {"js_on_load": None, **options, "elem_classes": ["fsd-html", *options.get("elem_classes", [])]}
    return gr.HTML(value, apply_default_css=False, **options)


def term(word: str, about: str = "") -> Html:
    """Return a word with its meaning as a hint (``terms.js``), or the word alone if it has no explanation."""
    return render(_PIECES, "term", word, about or explained(word))


def link(address: str, text: str) -> Html:
    """Return a link to another part of the application."""
    return render(_PIECES, "link", address, text)


def heading(title: str, lead: str = "") -> Html:
    """Return the title of a page, and a sentence on its purpose."""
    return render(_PIECES, "heading", title, lead)


def section(title: str) -> Html:
    """Return the title of a part of a page."""
    return render(_PIECES, "section", title)


def notice(text: str, tone: str = "") -> Html:
    """Return one sentence in a box. ``tone`` is empty, ``warn`` or ``bad``."""
    return render(_PIECES, "notice", text, tone)


def page_note(text: str) -> Html:
    """Return a quiet sentence that stays on the page."""
    return render(_PIECES, "page_note", text)


def dead_end(sentence: str, address: str, text: str) -> Html:
    """Return the answer to an address that leads nowhere: one sentence, and a link."""
    return render(_PIECES, "dead_end", sentence, address, text)


def empty_state(title: str, text: str, next_step: tuple[str, str] | None = None) -> Html:
    """Return a placeholder: what is missing, and a next step. ``next_step`` is (address, text) of a link."""
    return render(_PIECES, "empty_state", title, text, next_step)


def mixed_mark(names: Sequence[str]) -> Html:
    """Return the mark of a speed or a time under mixed conditions, with those that differ, or nothing without any."""
    return render(_PIECES, "mixed_mark", MIXED_MARK, mixed_sentence(names)) if names else Html()


def rough(text: str, is_rough: bool) -> Html:
    """Return a figure with the mark of one without its interval, if it ``is_rough``."""
    return joined([render(_PIECES, "rough_mark", ROUGH_MARK.strip(), NO_INTERVAL) if is_rough else "", text])


def with_interval(value: str, ends: str, mark: str = "") -> Html:
    """Return a value with the ends of its interval, if any, and a mark behind them."""
    return render(_PIECES, "with_interval", value, ends, mark)


class Tile(NamedTuple):
    """A named number with a note below it."""

    name: str
    value: str
    note: str = ""
    mixed: Sequence[str] = ()
    """for a speed or a time: the conditions that differ within it"""

    @property
    def term(self) -> Html:
        return term(self.name)

    @property
    def mark(self) -> Html:
        return mixed_mark(self.mixed)


def tiles(values: Iterable[Tile]) -> Html:
    """Return named numbers side by side."""
    return render(_PIECES, "tiles", values)


def pill(status: str) -> Html:
    """Return a status or an outcome as a word and a mark."""
    return render(_PIECES, "pill", status)


def facts(values: Mapping[str, object]) -> Html:
    """Return names and values, one pair per line."""
    return render(_PIECES, "facts", [(term(name), value) for name, value in values.items()])


class Column(NamedTuple):
    """A table's column. ``style`` is empty, ``num`` (right-aligned) or ``wide`` (may wrap)."""

    title: str
    style: str = ""
    button: Html = Html()  # immutable
    """that sorts by it"""
    sorted: str = ""
    """``ascending`` or ``descending`` if the table is sorted by it"""


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], label: str) -> Html:
    """Return a table of cells that are texts or HTML. ``label`` names it to a screen reader."""
    titles = [(term(c.title), c.style, c.button, {"aria-sort": c.sorted or None}) for c in columns]
    styles = [c.style for c in columns]
    return render(_PIECES, "table", titles, [zip(styles, row, strict=True) for row in rows], label)


def tokens_html(
    tokens: Sequence[EmittedToken],
    label: str = "Generated text",
    *,
    rule: str = "",
    greedy: bool = False,
    pieces: Sequence[tuple[str, bool]] = (),
) -> Html:
    """Return tokens as spans, coloured by what happened to each. ``tokens.js`` displays the numbers of a selected one.

    Tab reaches the first token, and the arrow keys the others. ``rule`` is what a lenient rule forgives, such as
    ``js ≤ 0.1``. ``pieces`` are parts of the text, each with whether it is marked as a difference.
    """
    about = {"data-rule": rule or None, "data-greedy": "" if greedy else None}
    return render(_PIECES, "tokens", label, about, map(_token, tokens, _pieces_of(tokens, pieces)))


def _pieces_of(tokens: Sequence[EmittedToken], pieces: Sequence[tuple[str, bool]]) -> Iterable[list[tuple[str, bool]]]:
    """Yield the parts of each token's text. Both sequences concatenate to the same text, or ``pieces`` is empty."""
    waiting = iter(pieces or [("".join(token.text for token in tokens), False)])
    text, marked = "", False
    for token in tokens:
        parts, missing = [], token.text
        while missing:
            if not text:
                text, marked = next(waiting)
            part = text[: len(missing)]
            parts.append((part, marked))
            text, missing = text[len(part) :], missing[len(part) :]
        yield parts


def _token(
    token: EmittedToken, parts: Sequence[tuple[str, bool]]
) -> tuple[str, Mapping[str, object], Sequence[tuple[str, bool]]]:
    """Return the kind, the numbers as attributes, and the text in its parts."""
    kind = token.kind if token.kind in KINDS else "plain"
    data = {"kind": kind, "p": token.p, "q": token.q, "d": token.divergence}
    if data["p"] is None or kind == "correction":
        data["pr"] = token.probability
    if data["p"] is not None and data["d"] is None:
        data["d"] = math.inf  # every judged token has a divergence, and JSON has no infinity
    data |= {"rejected": token.rejected, "likeliest": token.likeliest}
    return kind, {f"data-{key}": f"{v:.5g}" if isinstance(v, float) else v for key, v in data.items()}, parts


def legend() -> Html:
    """Return the meanings of the colours and lines of tokens, and how a token tells why it was written."""
    return render(_PIECES, "legend", KINDS)


def page_load() -> Any:
    """Return the event that happens when the page that is being built is opened."""
    page = Context.root_block
    assert page is not None, "events belong inside a page"
    return page.load
