"""Pieces that every page is made of, as HTML. A text is escaped, what is HTML already (``templates.Html``) stays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import gradio as gr
from gradio.context import Context

from dashboard.ui.templates import Html, render, script
from dashboard.ui.terms import explained
from fsd_core.conditions import MIXED_MARK, mixed_sentence
from fsd_core.errors import FsdError
from fsd_core.storage.messages import EmittedToken

KINDS = {
    "strict": "accepted by the strict test",
    "lenient": "accepted only because the rule is lenient",
    "correction": "recovered token in place of a rejected one",
    "bonus": "bonus token after a fully accepted draft",
    "plain": "written by one model alone",
}

PRIVATE_EVENT: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
"""Options of every event: no overlay that flickers, no entry in the public interface, and past Gradio's queue, whose
answers come by a stream that loses one where a message is late. No handler computes for long: the worker does that."""

KEEP_PLACE = script("ui/keep_place.js")
"""HTML that is drawn anew, while somebody is in it: tables stay where they were scrolled to, and what has the focus
keeps it"""

_PIECES = "ui/components.html"


def show(value: str = "", **options: Any) -> gr.HTML:
    """A place for HTML made by this module, with neither frame nor styles of Gradio's own."""
    options = {"js_on_load": None, **options, "elem_classes": ["fsd-html", *options.get("elem_classes", [])]}
    return gr.HTML(value, apply_default_css=False, **options)


def term(word: str, about: str = "") -> Html:
    """A word with what it means as its hint (``terms.js``); the word alone where nothing is known of it."""
    return render(_PIECES, "term", word, about or explained(word))


def link(address: str, words: str) -> Html:
    """A link to another place of the application."""
    return render(_PIECES, "link", address, words)


def heading(title: str, lead: str = "") -> Html:
    """The title of a page, and a sentence on what it is for."""
    return render(_PIECES, "heading", title, lead)


def section(title: str) -> Html:
    """The title of a part of a page."""
    return render(_PIECES, "section", title)


def notice(text: str, tone: str = "") -> Html:
    """One sentence in a box; ``tone`` is empty, ``warn`` or ``bad``."""
    return render(_PIECES, "notice", text, tone)


def kept(note: str) -> Html:
    """A quiet sentence that stays on the page."""
    return render(_PIECES, "kept", note)


def dead_end(text: str, address: str, words: str) -> Html:
    """What an address that leads nowhere is answered with: one sentence, and the way on."""
    return render(_PIECES, "dead_end", text, address, words)


def empty_state(title: str, text: str, on: tuple[str, str] | None = None) -> Html:
    """What is not there yet, and what to do about it; ``on`` is (address, words) of a link."""
    return render(_PIECES, "empty_state", title, text, on)


def mixed_mark(names: Sequence[str]) -> Html:
    """The mark behind a speed or a time that is not one figure, with the conditions for which it is not; nothing for
    none."""
    return render(_PIECES, "mixed_mark", MIXED_MARK, mixed_sentence(names)) if names else Html()


class Tile(NamedTuple):
    """A named number, and below it what qualifies it."""

    name: str
    value: str
    note: str = ""
    mixed: Sequence[str] = ()
    """of a speed or a time: why it is not one figure"""

    @property
    def term(self) -> Html:
        return term(self.name)

    @property
    def mark(self) -> Html:
        return mixed_mark(self.mixed)


def tiles(values: Iterable[Tile]) -> Html:
    """Named numbers side by side."""
    return render(_PIECES, "tiles", values)


def pill(status: str) -> Html:
    """A status or an outcome, by word and by mark."""
    return render(_PIECES, "pill", status)


def facts(values: Mapping[str, object]) -> Html:
    """Names and values, one pair a line."""
    return render(_PIECES, "facts", [(term(name), value) for name, value in values.items()])


class Column(NamedTuple):
    """A table's column; ``style`` is empty, ``num`` (right-aligned) or ``wide`` (may wrap)."""

    title: str
    style: str = ""


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], label: str) -> Html:
    """A table of cells that are texts or HTML. ``label`` names it to a screen reader."""
    titles, styles = [(term(c.title), c.style) for c in columns], [c.style for c in columns]
    return render(_PIECES, "table", titles, [zip(styles, row, strict=True) for row in rows], label)


def tokens_html(tokens: Sequence[EmittedToken], label: str = "Generated text") -> Html:
    """Tokens as spans, coloured by what happened to each; ``tokens.js`` shows a chosen one's numbers.

    The first can be reached with Tab, the others from it with the arrow keys.
    """
    return render(_PIECES, "tokens", label, map(_token, tokens))


def _token(token: EmittedToken) -> tuple[str, Mapping[str, object], str]:
    """The kind, the numbers as attributes, and the text."""
    kind = token.kind if token.kind in KINDS else "plain"
    data = {"kind": kind, "p": token.p, "q": token.q, "d": token.divergence}
    if data["p"] is None or kind == "correction":
        data["pr"] = token.probability
    if data["p"] is not None and data["d"] is None:
        data["d"] = math.inf  # whatever was judged has a divergence, and JSON has no infinity
    data["rejected"] = token.rejected
    return kind, {f"data-{key}": f"{v:.5g}" if isinstance(v, float) else v for key, v in data.items()}, token.text


def legend() -> Html:
    """What the colours and lines of tokens mean."""
    return render(_PIECES, "legend", KINDS)


def on_load(handler: Callable[..., Any], inputs: Any = None, outputs: Any = None, js: str | None = None) -> Any:
    """Runs ``handler`` when the page that is being built is opened; silently, and callable by nobody else.

    ``js`` runs in the browser first, and its result takes the place of the inputs. Returns the event.
    """
    page = Context.root_block
    assert page is not None, "on_load belongs inside a page"
    return page.load(handler, inputs, outputs, js=js, **PRIVATE_EVENT)


def tells_errors(place: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Of a method that answers an event: an ``FsdError`` is shown as its sentence in the component that is the
    attribute ``place``, and changes nothing else. Where ``place`` is what the event shows, nothing of another choice
    is left there."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
            try:
                return method(self, *arguments, **named)
            except FsdError as error:
                return {getattr(self, place): notice(str(error), "bad")}

        return wrapped

    return decorate
