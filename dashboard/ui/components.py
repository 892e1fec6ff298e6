"""Pieces that every page is made of, as HTML. Every text that comes from data goes through :func:`escape`."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import gradio as gr
from gradio.context import Context

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

# Beyond HTML's own characters, those that begin an expression in a template of the browser's side.
_TEMPLATE_CHARACTERS = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;"})


KEEP_PLACE = """let held = null, left = [];
const boxes = () => [...element.querySelectorAll('.fsd-scroll')];
const focusable = () => [...element.querySelectorAll('a, button')];
const named = (one) => [one.dataset.id, one.getAttribute('href'), one.textContent].join(' ');
element.addEventListener('scroll', () => { left = boxes().map((box) => box.scrollLeft); }, true);
document.addEventListener('pointerdown', () => { held = null; });
document.addEventListener('focusin', (event) => {
  const one = element.contains(event.target) ? event.target.closest('a, button') : null;
  held = one && {name: named(one), id: one.dataset.id};
});
watch('value', () => {
  boxes().forEach((box, i) => { box.scrollLeft = left[i] ?? 0; });
  if (!held || element.contains(document.activeElement)) return;
  const {name, id} = held, all = focusable();
  const again = all.find((one) => named(one) === name) || all.find((one) => id && one.dataset.id === id);
  again?.focus({preventScroll: true});
});"""
"""HTML that is drawn anew, while somebody is in it: tables stay where they were scrolled to, and what has the focus
keeps it"""


def escape(text: object) -> str:
    """``text`` as HTML that shows it literally, in an element or in a quoted attribute."""
    return html.escape(str(text), quote=True).translate(_TEMPLATE_CHARACTERS)


def show(value: str = "", **options: Any) -> gr.HTML:
    """A place for HTML made by this module, with neither frame nor styles of Gradio's own."""
    options = {"js_on_load": None, **options, "elem_classes": ["fsd-html", *options.get("elem_classes", [])]}
    return gr.HTML(value, apply_default_css=False, **options)


def term(word: str, about: str = "") -> str:
    """A word with what it means as its hint (``terms.js``); the word alone where nothing is known of it."""
    about = about or explained(word)
    if not about:
        return escape(word)
    return f'<button type="button" class="fsd-term" title="{escape(about)}">{escape(word)}</button>'


def heading(title: str, lead: str = "") -> str:
    """The title of a page, and a sentence on what it is for."""
    return f'<h1 class="fsd-h1">{escape(title)}</h1>' + (f'<p class="fsd-lead">{escape(lead)}</p>' if lead else "")


def section(title: str) -> str:
    """The title of a part of a page."""
    return f'<h2 class="fsd-h2">{escape(title)}</h2>'


def notice(text: str, tone: str = "") -> str:
    """One sentence in a box; ``tone`` is empty, ``warn`` or ``bad``."""
    return f'<p class="fsd-notice {escape(tone)}" role="{"alert" if tone == "bad" else "status"}">{escape(text)}</p>'


def dead_end(text: str, address: str, words: str) -> str:
    """What an address that leads nowhere is answered with: one sentence, and the way on."""
    return (
        f'<p class="fsd-notice bad" role="alert">{escape(text)}</p>'
        f'<p class="fsd-on"><a href="{escape(address)}">{escape(words)}</a></p>'
    )


def empty_state(title: str, text: str, link: tuple[str, str] | None = None) -> str:
    """What is not there yet, and what to do about it; ``link`` is (address, words)."""
    more = f' <a href="{escape(link[0])}">{escape(link[1])}</a>' if link else ""
    return f'<div class="fsd-empty"><b>{escape(title)}</b><p>{escape(text)}{more}</p></div>'


def mixed_mark(names: Sequence[str]) -> str:
    """The mark behind a speed or a time that is not one figure, with the conditions for which it is not; nothing for
    none."""
    if not names:
        return ""
    why = escape(mixed_sentence(names))
    return f'<sup class="fsd-mark" role="img" tabindex="0" title="{why}" aria-label="{why}">{MIXED_MARK}</sup>'


class Tile(NamedTuple):
    """A named number, and below it what qualifies it."""

    name: str
    value: str
    note: str = ""
    mixed: Sequence[str] = ()
    """of a speed or a time: why it is not one figure"""


def tiles(values: Iterable[Tile]) -> str:
    """Named numbers side by side."""
    inner = "".join(
        f'<div class="fsd-tile"><dt>{term(tile.name)}</dt><dd>{escape(tile.value)}{mixed_mark(tile.mixed)}'
        f"{f'<small>{escape(tile.note)}</small>' if tile.note else ''}</dd></div>"
        for tile in values
    )
    return f'<dl class="fsd-tiles">{inner}</dl>'


def pill(status: str) -> str:
    """A status or an outcome, by word and by mark."""
    return f'<span class="fsd-pill {escape(status.replace(" ", "-"))}">{escape(status)}</span>'


def facts(values: Mapping[str, object]) -> str:
    """Names and values, one pair a line."""
    inner = "".join(f"<dt>{term(name)}</dt><dd>{escape(value)}</dd>" for name, value in values.items())
    return f'<dl class="fsd-facts">{inner}</dl>'


class Column(NamedTuple):
    """A table's column; ``style`` is empty, ``num`` (right-aligned) or ``wide`` (may wrap)."""

    title: str
    style: str = ""


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], label: str) -> str:
    """A table whose cells are HTML already (use :func:`escape`). ``label`` names it to a screen reader."""
    head = "".join(f'<th scope="col" class="{c.style}">{term(c.title)}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(f'<td class="{c.style}">{cell}</td>' for c, cell in zip(columns, row, strict=True)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="fsd-scroll"><table class="fsd-table" aria-label="{escape(label)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def tokens_html(tokens: Sequence[EmittedToken], label: str = "Generated text") -> str:
    """Tokens as spans, coloured by what happened to each; ``tokens.js`` shows a chosen one's numbers.

    The first can be reached with Tab, the others from it with the arrow keys.
    """
    spans = "".join(_token(token, focus="0" if i == 0 else "-1") for i, token in enumerate(tokens))
    return f'<div class="toks" role="group" aria-label="{escape(label)}, choose a token for its numbers">{spans}</div>'


def _token(token: EmittedToken, focus: str) -> str:
    kind = token.kind if token.kind in KINDS else "plain"
    data = {"kind": kind, "p": token.p, "q": token.q, "d": token.divergence}
    if data["p"] is None or kind == "correction":
        data["pr"] = token.probability
    if data["p"] is not None and data["d"] is None:
        data["d"] = math.inf  # whatever was judged has a divergence, and JSON has no infinity
    data["rejected"] = token.rejected
    shown = (f' data-{key}="{_attribute(value)}"' for key, value in data.items() if value is not None)
    return f'<span class="tok {kind}" tabindex="{focus}"{"".join(shown)}>{escape(token.text)}</span>'


def _attribute(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else escape(value)


def legend() -> str:
    """What the colours and lines of tokens mean."""
    items = (f'<li><span class="tok {kind}">{kind}</span>{escape(words)}</li>' for kind, words in KINDS.items())
    return f'<ul class="fsd-legend" aria-label="What the colours mean">{"".join(items)}</ul>'


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
