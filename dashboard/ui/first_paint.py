"""What a page shows before Gradio's scripts have run: its own texts as they are then, and grey shapes in place
of fields and pictures.

It is in the HTML that is served, in a shadow root that no script of the page looks into, and goes with the first answer
(``view.js``). Its links lead on; its buttons wait.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import gradio as gr
from fastapi import Request, Response
from fastapi.routing import APIRouter
from gradio.blocks import Block, BlockContext
from gradio.layouts import Accordion, Form, Row

from dashboard.ui.page import STYLE_SHEETS
from dashboard.ui.templates import Html, render
from fsd_core.frozen import text_hash

logger = logging.getLogger(__name__)
_COLOURS = re.compile(r"(?:^|\n)(?::root|\.dark, html:has\(> \.dark\)) \{(.*?)\}", re.DOTALL)
_LIGHT, _DARK = _COLOURS.findall(STYLE_SHEETS)[:2]
_FONTS = "".join(
    f"@font-face {{ font-family: 'IBM Plex Sans'; font-weight: {weight}; font-display: swap; "
    f"src: url(static/fonts/IBMPlexSans/IBMPlexSans-{name}.woff2); }} "
    for name, weight in (("Regular", "400"), ("Bold", "600 700"))
)
HEAD_STYLE = f"""
:root {{{_LIGHT}}} @media (prefers-color-scheme: dark) {{ :root {{{_DARK}}} }} {_FONTS}
body {{ background: var(--fsd-paper) !important; }}
#fsd-first {{ animation: fsd-late 0s 20s forwards; }}
#fsd-first ~ gradio-app {{ position: absolute; width: 100%; visibility: hidden; animation: fsd-shown 0s 20s forwards; }}
@keyframes fsd-late {{ to {{ height: 0; overflow: hidden; visibility: hidden; }} }}
@keyframes fsd-shown {{ to {{ visibility: visible; }} }}
"""
"""for the head of a document that Gradio has not given its theme yet. After a while without an answer, what Gradio has
drawn is shown."""
SHEET_PATH = "/first.css"
SHEET = f"{SHEET_PATH.removeprefix('/')}?v={text_hash(STYLE_SHEETS)}"
_SHAPES: Mapping[type[Block], str] = {
    gr.Button: "button", gr.Plot: "picture", gr.Textbox: "field", gr.Number: "field", gr.Dropdown: "field",
    gr.Radio: "field", gr.Slider: "field", gr.CheckboxGroup: "field", gr.Checkbox: "choice",
}  # fmt: skip


class Shape(NamedTuple):
    """A part of a page as it stands: a kind, its CSS classes, its text or HTML, and the parts in it."""

    kind: str
    classes: str = ""
    text: Html | str = ""
    parts: tuple[Shape, ...] = ()


def sheet_routes() -> APIRouter:
    """Return the route of the style sheet."""
    router = APIRouter(include_in_schema=False)

    @router.get(SHEET_PATH)
    def sheet() -> Response:
        return Response(STYLE_SHEETS, media_type="text/css", headers={"Cache-Control": "public, max-age=31536000"})

    return router


def first_paint(
    blocks: gr.Blocks, openings: Mapping[str, Callable[[Request], Mapping[Any, Any]]], page: str, request: Request
) -> Html:
    """Return what stands in a page's HTML. ``openings`` return what each page answers when it is opened."""
    try:
        drawn = openings[page](request) if page in openings else {}
    except Exception:  # the page's own event says what is wrong
        logger.exception("The page %r was not drawn beforehand", page)
        drawn = {}
    return render("ui/first_paint.html", "page", SHEET, [*_shapes(_on(page, blocks.children), drawn)])


def _on(page: str, children: Iterable[Block]) -> Iterator[Block]:
    return (child for child in children if child.page == page)


def _shapes(children: Iterable[Block], drawn: Mapping[Any, Any]) -> Iterator[Shape]:
    for child in children:
        update = drawn.get(child)
        told = update.constructor_args if isinstance(update, Block) else {} if update is None else {"value": update}
        if told.get("visible", getattr(child, "visible", True)) is not True:
            continue
        classes = " ".join(getattr(child, "elem_classes", None) or ())
        if isinstance(child, Accordion):
            yield Shape("fold", classes, str(child.label or ""))
        elif isinstance(child, gr.HTML):  # a context as well
            if value := told.get("value", child.value):
                yield Shape("text", classes, Html(value))
        elif isinstance(child, BlockContext):
            kind = "row" if isinstance(child, Row) else "form" if isinstance(child, Form) else "column"
            yield Shape(kind, classes, "", (*_shapes(child.children, drawn),))
        elif kind := _SHAPES.get(type(child)):
            name = "value" if kind == "button" else "label"
            yield Shape(kind, classes, str(told.get(name, getattr(child, name, "")) or ""))
