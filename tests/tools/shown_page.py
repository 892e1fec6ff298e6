"""A page as a browser shows it, without a browser or a server: it asks, takes over what is answered, and asks again.

What only a browser does is not here: layout, focus, scripts, and what is typed while an answer is under way.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import gradio as gr
import pytest
from gradio.blocks import Block
from gradio.context import Context
from sqlalchemy import event
from starlette.requests import Request

from dashboard.ui.view import Polled, Updates, View
from dashboard.web import build_pages
from fsd_core.accounts import KEY
from fsd_core.review.history import WaitingCount
from fsd_core.roles import LOCAL, Person
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from tests.tools.built import built
from tests.tools.plausible import new_repository

MOST_ANSWERS = 20
"""to one event: a page that asks for more never rests"""


@dataclass
class BuiltPage:
    """A page as it is built, with what its event and its buttons do."""

    path: str
    view: View
    redraw: Callable[..., Updates] = lambda asked: {}
    asking: Collection[Any] = ()
    buttons: dict[Any, tuple[str, Sequence[Any]]] = field(default_factory=dict)
    """by the component: the act, and the fields whose values it sends"""
    scripts: list[tuple[str, Sequence[Any]]] = field(default_factory=list)
    """scripts that act, and the fields whose values each gets"""
    turns: dict[Any, tuple[str, int]] = field(default_factory=dict)
    parts: list[Any] = field(default_factory=list)
    """its components, in their order"""

    @property
    def acts(self) -> list[str]:
        """The names of all that can be done on the page."""
        return list(self.view._acts)


class Application:
    """All pages, built once over the database in ``home``. They show the content of one file after the other."""

    def __init__(self, home: Path, access: str = "password") -> None:
        self.repository = new_repository(home)
        self.settings = Settings(home=home, access=access, mlflow_uri="http://127.0.0.1:5999")  # type: ignore[arg-type]
        self.pages: dict[str, BuiltPage] = {}
        self._remembering: list[Polled[Any] | WaitingCount] = []
        self._is_changed = False
        event.listen(self.repository._database.engine, "before_cursor_execute", self._note)
        self.blocks = built(self._build)
        for page in self.pages.values():
            page.parts = [part for part in self.blocks.blocks.values() if part.page == page.path]

    def show(self, file: Path) -> Repository:
        """Show a copy of another database from now on, which nobody has open. The engine knows its statements."""
        self.repository._database.close()
        shutil.copyfile(file, self.settings.home / "fsd.db")
        self._is_changed = True
        return self.repository

    def forget(self) -> None:
        """What is remembered for a moment is read anew after a change, as if the moment had passed."""
        if not self._is_changed:
            return
        self._is_changed = False
        for one in self._remembering:
            if isinstance(one, Polled):
                one.forget()
            else:
                one._read = -1, []

    def _note(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        self._is_changed |= not statement.startswith(("SELECT", "PRAGMA", "BEGIN"))

    def open(
        self, address: str, person: Person = LOCAL, wanted: Mapping[str, Any] = {}, *, look: bool = True
    ) -> ShownPage:
        """A page, by its path and query, as it is shown to a person at first. ``wanted`` is what the browser kept.
        Without a ``look`` it asks with what is done first, as one that is loaded again meanwhile."""
        path, _, query = address.removeprefix("/").partition("?")
        page = ShownPage(self, self.pages[path], query, person, wanted)
        if look:
            page.look_at_header()
            page.look()
        return page

    def _build(self) -> gr.Blocks:
        listen, button, by_script, turns = View.listen, View.button, View.by_script, View.turns
        by_view: dict[int, BuiltPage] = {}

        def page_of(view: View) -> BuiltPage:
            path = Context.root_block.current_page  # type: ignore[union-attr]
            return by_view.setdefault(id(view), BuiltPage(path, view))

        def listening(view: View, redraw: Any, fields: Any, outputs: Any, *more: Any, **named: Any) -> None:
            page = page_of(view)
            page.redraw, page.asking = redraw, {*fields}
            assert self.pages.setdefault(page.path, page) is page, "one event per page"
            listen(view, redraw, fields, outputs, *more, **named)

        def pressing(view: View, component: Any, name: str, fields: Any, *rest: Any, **named: Any) -> None:
            page_of(view).buttons[component] = name, list(fields)
            button(view, component, name, fields, *rest, **named)

        def scripting(view: View, trigger: Any, fields: Any, js: str) -> None:
            page_of(view).scripts.append((js, list(fields)))
            by_script(view, trigger, fields, js)

        def turning(view: View, pager: str, steps: Any) -> None:
            steps = [*steps]
            page_of(view).turns |= {component: (pager, step) for component, step in steps}
            turns(view, pager, steps)

        def remembering(kind: Any) -> Callable[..., None]:
            begin = kind.__init__

            def noted(one: Any, *arguments: Any, **named: Any) -> None:
                self._remembering.append(one)
                begin(one, *arguments, **named)

            return noted

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(View, "listen", listening)
            patch.setattr(View, "button", pressing)
            patch.setattr(View, "by_script", scripting)
            patch.setattr(View, "turns", turning)
            for kind in (Polled, WaitingCount):
                patch.setattr(kind, "__init__", remembering(kind))
            return build_pages(self.repository, self.settings)


class ShownPage:
    """A page in a window: what its components hold, and what the browser knows of what it shows."""

    def __init__(
        self, application: Application, page: BuiltPage, query: str, person: Person, wanted: Mapping[str, Any]
    ) -> None:
        self.application, self.built, self.person, self.wanted = application, page, person, dict(wanted)
        self.address = dict(parse_qsl(query))
        self.values = {part: getattr(part, "value", None) for part in page.parts}
        self.drawn: set[Any] = set()
        """the components that the last event changed"""
        self._properties: dict[Any, dict[str, Any]] = {}
        self._shown: dict[str, str] = {}
        self._number = 0
        self._last: dict[str, Any] = {}
        self.barred: dict[str, str] = {}
        """why this person may not do some acts, by their names"""

    # --- what a person does ------------------------------------------------------------------------------------------

    def look(self) -> set[Any]:
        """Ask with nothing done, as a clock does. Returns what was redrawn."""
        return self._ask()

    def look_at_header(self) -> None:
        """Ask for what the head of the page says of the worker and of who looks."""
        functions = self.application.blocks.fns.values()
        (header,) = (one for one in functions if one.page == self.built.path and one.name == "refresh")
        answers = header.fn("", self._request())  # type: ignore[misc]
        self.values |= dict(zip(header.outputs, answers, strict=True))

    def type(self, label: str, value: Any) -> None:
        """Fill in a field. The page asks where it reads the field."""
        part = self._field(label)
        self.values[part] = value
        if part in self.built.asking:
            self._ask()

    def choose(self, label: str, choice: str) -> None:
        """Choose what a field offers, by its title."""
        self.type(label, dict(self._choices(self._field(label)))[choice])

    def press(self, label: str, *, lost: bool = False, **clicked: Any) -> None:
        """Press a button that can be pressed. ``lost`` is the first answer: the page asks again. ``clicked`` is what
        fields held at the click, by their labels with ``_`` for spaces, where something else was typed since."""
        button = self.button(label)
        assert self._prop(button, "interactive") is not False, f"{label} cannot be pressed"
        if button in self.built.turns:
            self._turn(*self.built.turns[button])
            return
        name, fields = self.built.buttons[button]
        then = {self._field(name.replace("_", " ")): value for name, value in clicked.items()}
        self.do(name, [then.get(part, self.values[part]) for part in fields], lost=lost)

    def click(self, text: str, id: str = "") -> None:
        """Click a button among the HTML, by its text, and the id of what it is about."""
        found = [
            one for one in self.elements("button")
            if one.text == text and "data-act" in one.attributes and id in ("", one.attributes["data-id"])
        ]  # fmt: skip
        assert len(found) == 1, f"{len(found)} buttons {text!r}"
        told = found[0].attributes
        assert "disabled" not in told
        self.do(str(told["data-act"]), {"kind": told["data-kind"], "id": told["data-id"]})

    def do(self, name: str, data: Any = None, *, lost: bool = False) -> None:
        """Send an act, whether or not the page shows a button for it."""
        self._last = an_act(name, data)
        if lost:
            self._answer([self._last])
        self._ask(self._last)

    def do_all(self, acts: Iterable[tuple[str, Any]]) -> None:
        """Send many acts in one question."""
        self._ask(*(an_act(name, data) for name, data in acts))

    def sent(self, name: str, filled: Mapping[str, Any] = {}) -> Any:
        """What an act sends: of a button, the values of its fields, of which some are ``filled``; or just this."""
        if name not in {act for act, _ in self.built.buttons.values()}:
            return filled
        fields = next(fields for act, fields in self.built.buttons.values() if act == name)
        labels = [self._prop(part, "label") for part in fields]
        assert filled.keys() <= {*labels}, labels
        return [filled.get(label, self.values[part]) for label, part in zip(labels, fields, strict=True)]

    def beside(self, name: str) -> list[Any]:
        """The values of the fields that a script sends with an act, beside the act's own."""
        (fields,) = (fields for js, fields in self.built.scripts if f'"{name}"' in js)
        return [self.values[part] for part in fields]

    def again(self) -> None:
        """Send the last act once more, under its key."""
        self._ask(self._last)

    def unfold(self, title: str) -> None:
        """Open a folded part."""
        (part,) = (one for one in self.built.parts if isinstance(one, gr.Accordion) and one.label == title)
        self.want(**{f"fold {str(part.elem_id).removeprefix('fold-')}": True})

    def want(self, **wanted: Any) -> None:
        """Ask for what a script of the page wants."""
        self.wanted |= wanted
        self._ask()

    # --- what is shown -----------------------------------------------------------------------------------------------

    @property
    def html(self) -> str:
        """All HTML that is visible."""
        return "\n".join(str(self.values[part] or "") for part in self._html_parts())

    @property
    def text(self) -> str:
        """All words of it, with single spaces."""
        return Read(self.html).text

    @property
    def answered(self) -> str:
        """The words that the last event has changed."""
        return Read("\n".join(str(self.values[part] or "") for part in self._html_parts() if part in self.drawn)).text

    @property
    def told(self) -> str:
        """The words that the last event has changed anywhere, also where this person sees nothing."""
        return Read("\n".join(str(self.values[one] or "") for one in self.drawn if isinstance(one, gr.HTML))).text

    def part(self, elem_id: str) -> str:
        """The words of a named part."""
        return Read("\n".join(str(self.values[one] or "") for one in self._html_parts() if one.elem_id == elem_id)).text

    def elements(self, *tags: str) -> list[Element]:
        """The elements of the HTML."""
        return [one for one in Read(self.html).elements if one.tag in tags]

    def links(self) -> list[str]:
        """Where its links lead."""
        return [str(one.attributes.get("href")) for one in self.elements("a")]

    def rows(self, label: str) -> list[str]:
        """The words of the lines of a table's body."""
        return Read(self.html).rows(label)

    def field(self, label: str) -> Any:
        """What a field holds."""
        return self.values[self._field(label)]

    def offers(self, label: str) -> list[str]:
        """The titles of what a field offers."""
        return [title for title, _ in self._choices(self._field(label))]

    def button(self, label: str) -> Any:
        """The visible button of this label."""
        found = [
            one for one in self.built.parts
            if isinstance(one, gr.Button) and (self.values[one] or one.value) == label and self._is_visible(one)
        ]  # fmt: skip
        assert len(found) == 1, f"{len(found)} buttons {label!r}"
        return found[0]

    def can_press(self, label: str) -> bool:
        """Whether a button is not disabled."""
        return self._prop(self.button(label), "interactive") is not False

    # --- how a browser asks ------------------------------------------------------------------------------------------

    def _ask(self, *acts: Mapping[str, Any]) -> set[Any]:
        self.drawn = set()
        for _ in range(MOST_ANSWERS):
            updates = self._answer(acts)
            heard = json.loads(updates.pop(self.built.view._answer))
            rest = updates.pop(self.built.view._rest, None)
            self._take(updates, heard)
            acts = ()
            if rest is None:
                return self.drawn
        raise AssertionError("the page asks again and again")

    def _answer(self, acts: Sequence[Mapping[str, Any]]) -> Updates:
        self.application.forget()
        self._number += 1
        view = self.built.view
        question = json.dumps(
            {"number": self._number, "shown": self._shown, "address": self.address, "wanted": self.wanted,
             "changes": len(self.wanted), "acts": [*acts]}
        )  # fmt: skip
        sent = {part: json.loads(json.dumps(self.values[part])) for part in view._fields} | {view._answer: question}
        return view.answer(self.built.redraw, sent, self._request())

    def _request(self) -> gr.Request:
        scope = {"type": "http", "state": {}, "headers": [], KEY: self.person}
        return gr.Request(Request(scope), session_hash="window")

    def _take(self, updates: Updates, heard: Mapping[str, Any]) -> None:
        self._shown, self.barred = heard["shown"], heard["barred"]
        if heard["address"] is not None:
            self.address = dict(parse_qsl(heard["address"].removeprefix("?")))
        for part, update in updates.items():
            told = _told(update)
            if "value" in told:
                self.values[part] = told["value"]
            self._properties.setdefault(part, {}).update(told)
        for place, value in heard["fill"].items():
            self.values[self.built.view._fields[int(place)]] = value
        self.drawn |= updates.keys()

    def _turn(self, pager: str, step: int) -> None:
        (place,) = (one.attributes for one in Read(self.html).elements if one.attributes.get("data-pager") == pager)
        page = max(0, int(place["data-page"]) + step)  # type: ignore[arg-type]
        self.want(**{pager: {"of": place["data-of"], "page": page}})

    def _html_parts(self) -> Iterator[Any]:
        return (one for one in self.built.parts if isinstance(one, gr.HTML) and self._is_visible(one))

    def _is_visible(self, part: Any) -> bool:
        while part is not None and not isinstance(part, gr.Blocks):
            if self._prop(part, "visible") in (False, "hidden"):
                return False
            part = part.parent
        return True

    def _prop(self, part: Any, name: str) -> Any:
        return self._properties.get(part, {}).get(name, getattr(part, name, None))

    def _field(self, label: str) -> Any:
        found = [
            one for one in self.built.parts
            if isinstance(one, (gr.Textbox, gr.Dropdown, gr.Number, gr.Checkbox, gr.CheckboxGroup, gr.Radio, gr.Slider))
            and self._prop(one, "label") == label and self._is_visible(one)
        ]  # fmt: skip
        assert len(found) == 1, f"{len(found)} fields {label!r}"
        return found[0]

    def _choices(self, part: Any) -> list[tuple[str, Any]]:
        return [one if isinstance(one, tuple) else (str(one), one) for one in self._prop(part, "choices")]


def an_act(name: str, data: Any = None) -> dict[str, Any]:
    """An act under a key of its own."""
    return {"key": uuid4().hex, "name": name, "data": data}


def _told(update: Any) -> Mapping[str, Any]:
    """What an update says of a component."""
    if isinstance(update, Block):
        return update.constructor_args
    if isinstance(update, dict):
        return {name: value for name, value in update.items() if name != "__type__"}
    return {"value": update}


@dataclass
class Element:
    """An element of HTML, with the words in it."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""


class Read(HTMLParser):
    """HTML as a browser reads it: its elements, and its words."""

    VOID = frozenset({"img", "input", "br", "hr", "meta", "link", "col", "source", "area", "wbr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.words: list[str] = []
        self._open: list[Element] = []
        self._inside: dict[int, list[Element]] = {}
        self.feed(html)
        self.close()
        for one in self.elements:
            one.text = _spaced(one.text)

    @property
    def text(self) -> str:
        return _spaced("".join(self.words))

    def rows(self, label: str) -> list[str]:
        """The words of the lines in the body of a table that is called this."""
        tables = [one for one in self.elements if label in (one.attributes.get("aria-label") or "")]
        return [
            row.text for row in self.elements
            if row.tag == "tr" and any(table in self._inside[id(row)] for table in tables)
            and any(one.tag == "tbody" for one in self._inside[id(row)])
        ]  # fmt: skip

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.elements.append(element)
        self._inside[id(element)] = [*self._open]
        self._say(" ")
        if tag not in self.VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        self._say(" ")
        while any(one.tag == tag for one in self._open):
            if self._open.pop().tag == tag:
                return

    def handle_data(self, data: str) -> None:
        self._say(data)

    def _say(self, words: str) -> None:
        self.words.append(words)
        for one in self._open:
            one.text += words


def _spaced(text: str) -> str:
    return " ".join(text.split())
