"""The event of a page: one for all that the page shows, so that it always shows one state.

A page is a function of a question (its address, its fields, the pages that its lists were turned to) and of stored
data. Every choice, click and tick asks the same question, and the answer redraws the parts that differ from the
browser's. As there is one event, no two answers are under way at once, and none overtakes another. A question that
comes meanwhile is asked afterwards, with the fields as they are then.

``view.js`` is the other half. It sends what a person has done until it is answered, and the server does it once.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

import gradio as gr
from gradio.blocks import Block
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from dashboard.ui.components import PRIVATE_EVENT, notice, page_load
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, script
from fsd_core.errors import FsdError, InvalidSetting

_QUESTION = "question"
"""the part of a page that stands for what was asked"""

_LOCKS = tuple(threading.Lock() for _ in range(64))
"""for acts, by their keys"""

CHOICE_EVENT: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "always_last"}
"""Options of an event that asks the server. What comes while an answer is under way is asked once more after it.
Gradio's default would drop it."""

Updates = dict[Any, Any]
_Short = Annotated[str, StringConstraints(max_length=200)]


class Values(dict[Any, Any]):
    """Values of fields at a click, by component. ``key`` is that of the act."""

    key: str


class Act(BaseModel):
    """Something that a person did once. The browser chooses ``key``, and sends the same again if no answer comes."""

    key: Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
    name: _Short
    data: Any = None

    def __getitem__(self, name: str) -> str:
        """Return a text of the data, or an empty one."""
        return str(self.data.get(name, "")) if isinstance(self.data, dict) else ""


class Question(BaseModel):
    """The request of a browser beside the fields. ``number`` counts its questions, ``changes`` its wishes so far.

    ``kept`` holds the values of a form before the page was loaded again, by the numbers of its fields.
    """

    number: int = 0
    shown: dict[_Short, _Short] = {}
    changes: int = 0
    address: dict[str, str] = {}
    wanted: dict[_Short, Any] = {}
    kept: dict[_Short, Any] = {}
    acts: Annotated[list[Act], Field(max_length=100)] = []


class Asked:
    """The question of one browser. Indexed by a component, it returns the value of a field."""

    def __init__(self, question: Question, values: Mapping[Any, Any], request: gr.Request) -> None:
        self._question, self._values = question, values
        self.request, self.person = request, person_of(request)
        self.shown = dict(question.shown)
        """digest of the content of each part of the page, once the browser has the answer"""
        self.postponed = False
        """whether a slow part is left for another answer"""
        self.new_address: str | None = None
        """the query that the page's address gets"""
        self.filled: Updates = {}
        self._drawn = False

    def __getitem__(self, field: Any) -> Any:
        return self._values[field]

    @property
    def address(self) -> Mapping[str, str]:
        """The query of the page's address."""
        return self._question.address

    @property
    def opening(self) -> bool:
        """Whether the browser shows nothing yet, or only an error."""
        return self._question.shown.keys() <= {_QUESTION}

    @property
    def reloaded(self) -> bool:
        """Whether the page opens with what its form held before it was loaded again."""
        return bool(self._question.kept)

    def fill(self, field: Any, value: Any) -> None:
        """Fill in a field, unless it holds something else by then than what was sent."""
        if value != self._values[field]:
            self.filled[field] = value

    def current(self, field: Any) -> Any:
        """Return the value of a field with this answer: the one that was filled in, or else its own."""
        return self.filled.get(field, self[field])

    def used(self, values: Values, *fields: Any) -> None:
        """Empty fields whose values an act has used, unless something else was typed since."""
        for field in fields:
            if self._values[field] == values[field]:
                self.fill(field, "")

    def wanted(self, name: str) -> Any:
        """Return the wish of a page's script under this name, or ``None``. It is not validated."""
        return self._question.wanted.get(name)

    def page(self, pager: str, of: str, first: int = 0) -> int:
        """Return the page, from 0, that a list was turned to. A list of something else (``of``) begins at ``first``."""
        turned = self.wanted(pager)
        page = turned.get("page") if isinstance(turned, dict) and turned.get("of") == of else None
        return min(max(0, page), 10**9) if isinstance(page, int) else first

    def differs(self, part: str, *content: object, slow: bool = False) -> bool:
        """Return whether this part of the page has to be redrawn, for the browser shows other content.

        A ``slow`` part waits for another answer if this one has something to show already.
        """
        key = digest(*content)
        if self.shown.get(part) == key:
            return False
        if slow and self._drawn:
            self.postponed = True
            return False
        self._drawn = True
        self.shown[part] = key
        return True


def digest(*content: object) -> str:
    """Return a short digest of texts, numbers and collections of them."""
    return hashlib.blake2b(repr(content).encode(), digest_size=8).hexdigest()


def count_in(text: str) -> int:
    """Return a count that a page carries as a text, or 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


class View:
    """The event of a page, with the answers to what a person does on it.

    ``place`` displays the answers of acts. ``fails`` returns the page for an error.
    """

    def __init__(self, place: gr.HTML, fails: Callable[[Asked, FsdError], Updates]) -> None:
        self._place, self._fails = place, fails
        self._answer = gr.Textbox(visible="hidden")
        self._rest = gr.Textbox(visible="hidden")
        self._choices = gr.Textbox("0", visible="hidden")
        self._scripts = gr.Textbox("0", visible="hidden")  # counts the scripts that were run before a question
        self._fields: list[Any] = []
        self._acts: dict[str, tuple[Callable[[Act, Asked], Updates | None], gr.HTML]] = {}
        self._triggers: list[Any] = [self._rest.change, self._scripts.change]

    def on(self, *triggers: Any) -> None:
        """Ask at these events."""
        self._triggers += triggers

    def act(self, name: str, handler: Callable[[Act, Asked], Updates | None], place: gr.HTML | None = None) -> None:
        """Let ``handler`` do what a script of the page calls ``name``, and return what it changes on the page.

        Its errors are displayed in ``place`` as sentences.
        """
        self._acts[name] = handler, place or self._place

    def button(
        self, button: gr.Button, name: str, fields: Sequence[Any],
        handler: Callable[[Values, Asked], Updates | None], place: gr.HTML | None = None, js: str | None = None,
    ) -> None:  # fmt: skip
        """Let ``handler`` do what a button is for, with the values that ``fields`` had at the click.

        ``js`` is a script that acts with these values, in place of the usual one.
        """

        def press(act: Act, asked: Asked) -> Updates | None:
            values = act.data if isinstance(act.data, list) and len(act.data) == len(fields) else [None] * len(fields)
            read = Values({field: _value(field, value) for field, value in zip(fields, values, strict=True)})
            read.key = act.key
            return handler(read, asked)

        self.by_script(button.click, fields, js or script("ui/press.js", NAME=name))
        self.act(name, press, place)

    def by_script(self, trigger: Any, fields: Sequence[Any], js: str) -> None:
        """Ask at this event, after a script that gets the values of ``fields``.

        The page's own event is not another one of the same trigger: when it has been put off, Gradio repeats all that
        the trigger of the answered question does, and would run the script once more.
        """
        counted = f"(...values) => {{ ({js.strip()})(...values); return window.fsd.count(); }}"
        trigger(None, [*fields], self._scripts, js=counted, trigger_mode="multiple", **PRIVATE_EVENT)

    def turns(self, pager: str, steps: Iterable[tuple[gr.Button, int]]) -> None:
        """Ask when these buttons turn a list by so many pages."""
        for button, step in steps:
            self.by_script(button.click, [], script("ui/turn.js", NAME=pager, STEP=step))

    def listen(
        self,
        redraw: Callable[[Asked], Updates],
        fields: Sequence[Any],
        outputs: Sequence[Any],
        forms: Sequence[Any] = (),
        kept: Sequence[Any] = (),
    ) -> None:
        """Attach the event, after everything else.

        Args:
            redraw: returns what differs of the page
            fields: what ``redraw`` reads; a choice in one of them asks
            outputs: what ``redraw`` and the acts change
            forms: further fields that ``redraw`` may read and fill in
            kept: those of ``fields`` that the browser fills in again after a reload
        """

        def answer(values: Updates, request: gr.Request) -> Updates:
            return self.answer(redraw, values, request)

        asking = sorted({*fields}, key=_id)
        self._fields = sorted({*fields, *forms}, key=_id)
        inputs = sorted([self._answer, *self._fields], key=_id)  # as Gradio sorts a set
        quiet: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "multiple"}
        if asking:
            choose = script("ui/choose.js", PLACES=[self._fields.index(field) for field in asking])
            gr.on([field.change for field in asking], None, asking, self._choices, js=choose, **quiet)
        hear = "(...values) => window.fsd.hear(...values)"
        self._answer.change(None, [self._answer, *self._fields], self._fields, js=hear, **quiet)
        places = [place for _, place in self._acts.values()]
        gr.on(
            [page_load(), self._choices.change, *self._triggers],
            answer,
            {*inputs},
            [*{self._place, self._answer, self._rest, *outputs, *places}],
            js=script("ui/ask.js", PLACE=inputs.index(self._answer), KEPT=self._form(kept)),
            preprocess=False,  # Gradio would compare a choice with those that a page is built with
            show_progress_on=self._answer,  # not on every output, which keeps the browser busy
            **CHOICE_EVENT,
        )

    def only(self, asked: Asked, parts: Iterable[gr.Column], part: gr.Column | None, message: Html = Html()) -> Updates:  # noqa: B008  # immutable
        """Return one part of the page, or none, without the others, below a message."""
        if not asked.differs("part", part and part._id, message):
            return {}
        return {other: gr.Column(visible=other is part) for other in parts} | {self._place: message}

    def _form(self, fields: Sequence[Any]) -> dict[str, Any]:
        """Return the numbers of the fields that the browser keeps, and a name that no other form has."""
        places = sorted(map(self._fields.index, fields))
        offered = [(i, self._fields[i].label, getattr(self._fields[i], "choices", None)) for i in places]
        return {"name": digest(offered), "places": places}

    def answer(self, redraw: Callable[[Asked], Updates], sent: Updates, request: gr.Request) -> Updates:
        """Do what was done, and return what differs then. The browser ``sent`` the fields' values and its question."""
        question = _read(sent.get(self._answer))
        values = {field: _value(field, value) for field, value in sent.items() if field is not self._answer}
        places = [i for i in range(len(self._fields)) if str(i) in question.kept]
        kept = {self._fields[i]: _value(self._fields[i], question.kept[str(i)]) for i in places}
        asked, done, updates = Asked(question, values | kept, request), Updates(), Updates()
        asked.filled |= {field: value for field, value in kept.items() if value != values[field]}
        for act in question.acts:
            done |= self._do(act, asked)
        key = digest(list(values.values()), question.wanted)
        try:
            updates = redraw(asked)
            asked.shown[_QUESTION] = digest(list((values | asked.filled).values()), question.wanted)
        except FsdError as error:
            if question.acts or question.shown.get(_QUESTION) != key:
                # Nothing that was drawn for another question remains.
                asked.shown = {_QUESTION: key}
                updates = self._fails(asked, error)
            else:
                # The header says that the database does not answer.
                asked.shown = question.shown
        heard = {
            "number": question.number, "shown": asked.shown, "done": [act.key for act in question.acts],
            "changes": question.changes, "address": asked.new_address,
            "fill": {self._fields.index(field): value for field, value in asked.filled.items()},
        }  # fmt: skip
        more = {self._rest: str(question.number)} if asked.postponed else {}
        updates |= done
        written = [field for field in self._fields if "value" in _properties(updates.get(field, {}))]
        assert not written, f"values are filled in and not answered: {written}"
        return updates | more | {self._answer: json.dumps(heard)}

    def _do(self, act: Act, asked: Asked) -> Updates:
        handler, place = self._acts.get(act.name, (None, self._place))
        try:
            if handler is None:
                raise InvalidSetting("This page has no such button: reload it.")
            with _LOCKS[int(act.key, 16) % len(_LOCKS)]:  # its first sending may still be under way
                return handler(act, asked) or {}
        except FsdError as error:
            return {place: notice(str(error), "bad")}


def _read(question: object) -> Question:
    """Return the question of a browser. A program that calls the event without a question opens the page."""
    try:
        return Question.model_validate_json(question) if isinstance(question, str) and question else Question()
    except ValidationError:
        return Question()


def _id(component: Any) -> int:
    return component._id


def _properties(update: Any) -> Collection[str]:
    """Return the names of the properties that an update changes."""
    if isinstance(update, Block):
        return update.constructor_args
    return update if isinstance(update, dict) else ["value"]


def _value(field: Any, value: Any) -> Any:
    """Return the value of a field as a browser sent it, in the field's type, or the field's empty value."""
    if isinstance(field, gr.Checkbox):
        return value is True
    if isinstance(field, gr.Number):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if number and abs(value) <= sys.float_info.max else None  # neither inf nor nan
    if isinstance(field, gr.CheckboxGroup) or getattr(field, "multiselect", False):
        return [str(one) for one in value] if isinstance(value, list) else []
    if isinstance(value, str) or (isinstance(value, int) and isinstance(field, gr.Dropdown)):
        return value
    return "" if isinstance(field, gr.Textbox) else None
