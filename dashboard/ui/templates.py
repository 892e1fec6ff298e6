"""HTML from templates, and scripts from files. Every value that a template gets is escaped."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from dashboard.ui.quantities import ago, duration
from fsd_core.formatting import DASH, count

_DASHBOARD = Path(__file__).parent.parent
# Besides HTML's own special characters, those that begin an expression in a browser-side template.
_TEMPLATE_CHARACTERS = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;"})


_COMMAND = re.compile("&#96;((?:fsd-lab|python|mlflow) .+?)&#96;")
"""an escaped command between backticks, as sentences name them; other text is data and stays as it is"""


class Html(str):
    """HTML in which every text from data has been escaped.

    Joined to other text it becomes a plain ``str`` again, which a template escapes.
    """

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def escape(text: object) -> Html:
    """Return ``text`` escaped for an element or a quoted attribute. What is HTML already stays."""
    if isinstance(text, Html):
        return text
    if isinstance(text, Markup):  # the output of a macro
        return Html(text)
    return Html(html.escape(str(text), quote=True).translate(_TEMPLATE_CHARACTERS))


def joined(parts: Iterable[object]) -> Html:
    """Join parts, and escape each unless it is HTML already."""
    return Html("".join(map(escape, parts)))


def render(file: str, macro: str, *values: object, **named: object) -> Html:
    """Return the output of a file's macro. ``file`` is ``room/name.html``, in ``dashboard/room/templates``."""
    output = str(getattr(_PAGES.get_template(file).module, macro)(*values, **named))
    # Seldom needed, because values are escaped already, and translating a long text takes milliseconds.
    return Html(
        output.translate(_TEMPLATE_CHARACTERS) if any(chr(c) in output for c in _TEMPLATE_CHARACTERS) else output
    )


def frozen_html(body: str) -> Html:
    """Return the body of a report, in which :mod:`fsd_core.reports` has escaped every text, for a page."""
    return Html(body.translate(_TEMPLATE_CHARACTERS))


def document(file: str, macro: str, styles: str, **named: object) -> str:
    """Return a page of its own, with style sheets in its head."""
    return render(file, macro, **named).replace("</head>", f"<style>{styles}</style></head>", 1)


def script(file: str, **values: object) -> str:
    """Return the script ``room/name.js``, with each ``$NAME$`` of ``values`` replaced by its value as JSON."""
    text = (_DASHBOARD / file).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"${name}$", json.dumps(value))
    return text


class _Lines(Extension):
    """Joins lines without their indentation: with a space between words, without one beside a tag."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        lines = [line.strip() for line in source.splitlines()]
        return re.sub(r"(?<=[>}])\n|\n(?=[<{]|$)", "", "\n".join(lines)).replace("\n", " ")


def _source(name: str) -> tuple[str, str, Callable[[], bool]]:
    room, _, file = name.partition("/")
    path = _DASHBOARD / room / "templates" / file
    return path.read_text(encoding="utf-8"), str(path), lambda: True


def _attributes(values: Mapping[str, object]) -> Html:
    """Return the attributes of an element, each after a space, without those whose value is ``None``."""
    return Html("".join(f' {name}="{escape(value)}"' for name, value in values.items() if value is not None))


def _commands(text: object) -> Html:
    """Return a sentence in which commands between backticks are code. What is HTML already stays."""
    escaped = escape(text)
    return escaped if isinstance(text, Html | Markup) else Html(_COMMAND.sub(r"<code>\1</code>", escaped))


def _environment() -> Environment:
    pages = Environment(
        loader=FunctionLoader(_source),
        undefined=StrictUndefined,
        extensions=[_Lines],
        finalize=escape,
        autoescape=True,
        auto_reload=False,
    )
    own: dict[str, Any] = {"ago": ago, "duration": duration, "count": count, "DASH": DASH, "attributes": _attributes}
    pages.globals |= own
    pages.filters["commands"] = _commands
    return pages


_PAGES = _environment()
