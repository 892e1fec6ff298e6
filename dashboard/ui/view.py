"""The event of a page: one question for all that the page shows, so that it always shows one state.

What a browser asks of a page: the question that comes with every event, and what is read of it.

Nothing in it is trusted: what does not fit becomes an empty value, or opens the page.

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
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import quote

import gradio as gr
from cachetools import TTLCache
from fastapi import Request
from gradio.blocks import Block
from gradio.context import Context
from pydantic import BaseModel, Field, StringConstraints

from dashboard.ui.components import LOOKS, PRIVATE_EVENT, Notice, check_role, notice, page_load, refusal
from dashboard.ui.templates import Html, joined, render, script
from fsd_core.accounts import person_in
from fsd_core.actions.action import Action, Ask
from fsd_core.errors import FsdError, Stale
from fsd_core.frozen import text_hash
from fsd_core.roles import NOBODY, Person, folded, require
from fsd_core.settings import here
from fsd_core.texts import whole

_T = TypeVar("_T")
_MOST = 256
"""cached answers, each for other arguments"""
_LONGEST = 2_000
"""characters of arguments: what somebody types without end is asked anew each time, and not kept"""


class Polled(Generic[_T]):
    """The cached answers of a function of hashable arguments, each kept for ``seconds``.

    Callers wait while the same answer is being computed. Errors are not cached and are raised for each caller.
    """

    def __init__(self, query: Callable[..., _T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._query, self._answers = query, TTLCache[tuple[Hashable, ...], _T](_MOST, seconds, clock)
        self._lock, self._computing = threading.Lock(), [threading.Lock() for _ in range(16)]

    def __call__(self, *arguments: Hashable) -> _T:
        if len(repr(arguments)) > _LONGEST:
            return self._query(*arguments)
        with self._computing[hash(arguments) % len(self._computing)]:
            with self._lock, suppress(KeyError):
                return self._answers[arguments]
            answer = self._query(*arguments)
            with self._lock:
                self._answers[arguments] = answer
            return answer

    def forget(self) -> None:
        """Clear the cache, after a change that must be visible at once."""
        with self._lock:
            self._answers.clear()


def person_of(request: gr.Request | Request | None) -> Person:
    """Return the person behind a request. An unknown person may look, and no more.

    A tool of the MCP server gets Starlette's request, and an event's handler gets Gradio's wrapper of it.
    """
    http_request = request if isinstance(request, Request) else getattr(request, "request", None)
    return (person_in(http_request.scope) if http_request is not None else None) or NOBODY


def person_mark(person: Person | None) -> str:
    """Return what stands for a person in a page and in what the page asks, so that both are known to be theirs."""
    one = person or NOBODY
    return text_hash(f"{folded(one.name)} {one.known} {one.is_program}")


def sign_in_link(text: str, next: str = "/", style: str = "", root: str = "") -> Html:
    """Return a link to Hugging Face's own form, which leads back to the page ``next`` below ``root``.

    On a Space it opens a tab of its own, because a frame may keep no cookies.
    """
    space = here()
    address = f"{space.url if space else root}/login/huggingface?next={quote(next)}"
    return render("ui/links.html", "sign_in", address, text, style, tab=space is not None)


MOST_COUNTED = 10**9
"""what a browser says it counts stays below this, which every database can hold"""
QUESTION = "question"
"""the part of a page that stands for what was asked"""

Updates = dict[Any, Any]
_Short = Annotated[str, StringConstraints(max_length=200)]


class Values(dict[Any, Any]):
    """Values of fields at a click, by component. ``key`` is that of the act."""

    key: str

    @classmethod
    def read(cls, fields: Sequence[Any], values: object, key: str) -> Values:
        """Return the values that an act sent of these fields; those of empty fields if they do not fit."""
        sent = values if isinstance(values, list) and len(values) == len(fields) else [None] * len(fields)
        read = cls({field: field_value(field, value) for field, value in zip(fields, sent, strict=True)})
        read.key = key
        return read


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
        self.unused: set[str] = set()
        """keys of acts whose texts stay drafts in the browser, because nothing was stored of them"""
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
        return self._question.shown.keys() <= {QUESTION}

    @property
    def beforehand(self) -> bool:
        """Whether this is for the page's HTML, which waits for the answer: no browser asks yet."""
        return self._question.number == 0

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
        return min(max(0, page), MOST_COUNTED) if isinstance(page, int) else first

    def differs(self, part: str, *content: object, slow: bool = False) -> bool:
        """Return whether this part of the page has to be redrawn, for the browser shows other content.

        A ``slow`` part waits for another answer if this one has something to show already.
        """
        key = digest(*content, self.person)
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


def read_question(question: object) -> Question:
    """Return the question of a browser. A program that calls the event without a question opens the page."""
    try:
        read = json.loads(question) if isinstance(question, str) and question else {}
        return Question.model_validate(whole(read))
    except (ValueError, RecursionError):
        return Question()


def field_value(field: Any, value: Any) -> Any:
    """Return the value of a field as a browser sent it, in the field's type, or the field's empty value."""
    value = whole(value)
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


_LOCKS = tuple(threading.Lock() for _ in range(64))
"""for acts, by their keys"""

SECRET_FIELD = "fsd-secret"
"""the class of a field whose text no browser keeps, as it keeps none of a password"""

CHOICE_EVENT: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "always_last"}
"""Options of an event that asks the server. What comes while an answer is under way is asked once more after it.
Gradio's default would drop it."""


class Part:
    """A part of a page, with its components as attributes."""

    fields: Sequence[Any] = ()
    """components that it reads; a choice in one of them asks"""
    forms: Sequence[Any] = ()
    """further components that it or its acts read or fill in"""
    outputs: Sequence[Any] = ()
    """components that it and its acts change"""


def together(
    parts: Iterable[Part], fields: Iterable[Any] = (), outputs: Iterable[Any] = ()
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the fields, outputs and forms of parts, and of the page around them, as :meth:`View.listen` takes them."""
    parts = list(parts)
    return (
        [*fields, *(field for part in parts for field in part.fields)],
        [*outputs, *(output for part in parts for output in part.outputs)],
        [form for part in parts for form in part.forms],
    )


class View:
    """The event of a page, with the answers to what a person does on it.

    ``place`` displays the answers of acts. ``fails`` returns the page for an error.
    """

    def __init__(self, place: gr.HTML, fails: Callable[[Asked, FsdError], Updates]) -> None:
        self._place, self._fails = place, fails
        self._answer = gr.Textbox(visible="hidden")
        self._rest = gr.Textbox(visible="hidden")
        self._choices = gr.Textbox("0", visible="hidden")
        # Counts the scripts that were run before a question.
        self._scripts = gr.Textbox("0", visible="hidden", elem_id="fsd-scripts")
        self._fields: list[Any] = []
        self._written: dict[Any, None] = {}  # fields that scripts send
        self._acts: dict[str, tuple[Callable[[Act, Asked], Updates | None], gr.HTML]] = {}
        self._needs: dict[str, tuple[str, str]] = {}
        self._buttons: dict[gr.Button, tuple[str, gr.HTML]] = {}  # with the act of each, and the place of its answers
        self._triggers: list[Any] = [self._rest.change, self._scripts.change]

    def on(self, *triggers: Any) -> None:
        """Ask at these events."""
        self._triggers += triggers

    def act(
        self, name: str, handler: Callable[[Act, Asked], Updates | None], place: gr.HTML | None = None,
        needs: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Let ``handler`` do what a script of the page calls ``name``, and return what it changes on the page.

        Its errors are displayed in ``place`` as sentences. ``needs`` is the role, and what it is needed for, of an act
        that ``check_role`` does not know. Whoever has not the role sees what is marked ``data-needs`` disabled.
        """
        self._acts[name] = handler, place or self._place
        if needs:
            self._needs[name] = needs

    def deed(
        self, name: str, action: Action[..., Any], ask: Callable[[Person], Ask], place: gr.HTML,
        done: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Let an action be done with the id that a script of the page gives, as what it calls ``name``. ``done`` is
        called then. An answer that is a sentence is displayed in ``place``."""

        def handler(act: Act, asked: Asked) -> Updates:
            answer = action(ask(asked.person), act["id"])
            done()
            return {place: notice(answer) if isinstance(answer, str) else ""}

        self.act(name, handler, place)

    def button(
        self, button: gr.Button, name: str, fields: Sequence[Any],
        handler: Callable[[Values, Asked], Updates | None], place: gr.HTML | None = None, js: str | None = None,
        barred: gr.HTML | None = None, needs: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Let ``handler`` do what a button is for, with the values that ``fields`` had at the click.

        Whoever has not the role for it sees it disabled, and the reason at ``barred``, by default ``place``.
        ``js`` is a script that acts with these values, in place of the usual one. ``needs`` is as of :meth:`act`.
        """

        def press(act: Act, asked: Asked) -> Updates | None:
            return handler(Values.read(fields, act.data, act.key), asked)

        secret = any(map(_is_secret, fields))
        self.by_script(button.click, fields, js or script("ui/press.js", NAME=name, SECRET=secret))
        self.act(name, press, place, needs)
        if refusal(NOBODY, name, self._check_role):
            self._buttons[button] = name, barred or place or self._place

    def by_script(self, trigger: Any, fields: Sequence[Any], js: str) -> None:
        """Ask at this event, after a script that gets the values of ``fields``.

        The page's own event is not another one of the same trigger: when it has been put off, Gradio repeats all that
        the trigger of the answered question does, and would run the script once more.
        """
        self._written |= dict.fromkeys(fields)
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
        lasting: Sequence[Any] = (),
    ) -> None:
        """Attach the event, after everything else.

        Args:
            redraw: returns what differs of the page
            fields: what ``redraw`` reads; a choice in one of them asks
            outputs: what ``redraw`` and the acts change
            forms: further fields that ``redraw`` may read and fill in
            kept: those of ``fields`` that the browser fills in again after a reload
            lasting: those of ``kept`` that it also fills in when a link leads to the page again
        """

        def answer(values: Updates, request: gr.Request) -> Updates:
            return self.answer(redraw, values, request)

        if (openings := getattr(Context.root_block, "openings", None)) is not None:
            openings[getattr(Context.root_block, "current_page", "")] = partial(self.opening, redraw)
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
        texts = _texts([field for field in {**self._written, **dict.fromkeys(forms)} if field not in asking])
        gr.on(
            [page_load(), self._choices.change, *self._triggers],
            answer,
            {*inputs},
            [*{self._place, self._answer, self._rest, *outputs, *places, *self._buttons}],
            js=script("ui/ask.js", PLACE=inputs.index(self._answer), KEPT=self._form(kept, lasting) | {"texts": texts}),
            preprocess=False,  # Gradio would compare a choice with those that a page is built with
            show_progress_on=self._answer,  # not on every output, which keeps the browser busy
            **CHOICE_EVENT,
        )

    def only(self, asked: Asked, parts: Iterable[gr.Column], part: gr.Column | None, message: Html = Html()) -> Updates:  # noqa: B008  # immutable
        """Return one part of the page, or none, without the others, below a message."""
        if not asked.differs("part", part and part._id, message):
            return {}
        return {other: gr.Column(visible=other is part) for other in parts} | {self._place: message}

    def _form(self, fields: Sequence[Any], lasting: Sequence[Any]) -> dict[str, Any]:
        """Return the numbers of the fields that the browser keeps, and a name that no other form has."""
        places = sorted(map(self._fields.index, fields))
        offered = [(i, self._fields[i].label, getattr(self._fields[i], "choices", None)) for i in places]
        return {"name": digest(offered), "places": places, "lasting": [*map(self._fields.index, lasting)]}

    def answer(self, redraw: Callable[[Asked], Updates], sent: Updates, request: gr.Request) -> Updates:
        """Do what was done, and return what differs then. The browser ``sent`` the fields' values and its question."""
        question = read_question(sent.get(self._answer))
        values = {field: field_value(field, value) for field, value in sent.items() if field is not self._answer}
        places = [i for i in range(len(self._fields)) if str(i) in question.kept]
        kept = {self._fields[i]: field_value(self._fields[i], question.kept[str(i)]) for i in places}
        asked, done, updates = Asked(question, values | kept, request), Updates(), Updates()
        asked.filled |= {field: value for field, value in kept.items() if value != values[field]}
        before = LOOKS.set(asked.person)
        said: dict[str, str] = {}
        for act in question.acts:
            did = self._do(act, asked)
            done |= did
            answer = did.get(self._acts.get(act.name, (None, self._place))[1])
            if act["id"] and isinstance(answer, Notice):
                said[act.key] = answer
        key = digest(list(values.values()), question.wanted)
        try:
            updates = redraw(asked)
            updates |= self._barred(asked, updates)
            asked.shown[QUESTION] = digest(list((values | asked.filled).values()), question.wanted)
        except FsdError as error:
            if question.acts or question.shown.get(QUESTION) != key:
                # Nothing that was drawn for another question remains.
                asked.shown = {QUESTION: key}
                updates = self._fails(asked, error)
            else:
                # The header says that the database does not answer.
                asked.shown = question.shown
        reasons = {name: refusal(asked.person, name, self._check_role) for name in self._acts}
        heard = {
            "number": question.number, "shown": asked.shown, "done": [act.key for act in question.acts], "said": said,
            "kept": [*asked.unused],
            "changes": question.changes, "address": asked.new_address,
            "fill": {self._fields.index(field): value for field, value in asked.filled.items()},
            "barred": {name: reason for name, reason in reasons.items() if reason}, "more": asked.postponed,
        }  # fmt: skip
        more = {self._rest: str(question.number)} if asked.postponed else {}
        LOOKS.reset(before)
        updates |= done
        written = [field for field in self._fields if "value" in _properties(updates.get(field, {}))]
        assert not written, f"values are filled in and not answered: {written}"
        return updates | more | {self._answer: json.dumps(heard)}

    def opening(self, redraw: Callable[[Asked], Updates], request: Request) -> Updates:
        """Return the answer to a browser that opens the page at this address, for the page's HTML."""
        question = Question(address=dict(request.query_params))
        sent = {field: field.value for field in self._fields} | {self._answer: question.model_dump_json()}
        return self.answer(redraw, sent, gr.Request(request))

    def _barred(self, asked: Asked, updates: Updates) -> Updates:
        """Return what disables the buttons of acts for other roles, with the reasons, as far as the page differs."""
        opening, reasons, barred = asked.differs("barred"), dict[gr.HTML, dict[str, None]](), Updates()
        for button, (name, place) in self._buttons.items():
            reason = refusal(asked.person, name, self._check_role)
            drawn: dict[str, Any] = {"interactive": True} | getattr(updates.get(button), "constructor_args", {})
            if opening or (reason and button in updates):
                barred[button] = gr.Button(**drawn | {"interactive": drawn["interactive"] and not reason})
            if opening and reason:
                reasons.setdefault(place, {})[reason] = None
        told = {place: notice(" ".join(texts), "warn") for place, texts in reasons.items()}
        return barred | {place: joined([updates.get(place, ""), text]) for place, text in told.items()}

    def _check_role(self, person: Person, act: str) -> None:
        check_role(person, act)
        if act in self._needs:
            require(person, *self._needs[act])

    def _do(self, act: Act, asked: Asked) -> Updates:
        handler, place = self._acts.get(act.name, (None, self._place))
        try:
            if handler is None:
                raise Stale("This page has no such button: reload it.")
            self._check_role(asked.person, act.name)
            with _LOCKS[int(act.key, 16) % len(_LOCKS)]:  # its first sending may still be under way
                return handler(act, asked) or {}
        except FsdError as error:
            asked.unused.add(act.key)
            return {place: notice(str(error), "bad")}


def _is_secret(field: Any) -> bool:
    return getattr(field, "type", "text") == "password" or SECRET_FIELD in getattr(field, "elem_classes", ())


def _texts(fields: Iterable[Any]) -> dict[str, str]:
    """Return the names of texts that a person types, by the ids that they have on the page. No two names are the
    same, and no secret is among the texts."""
    named: dict[str, str] = {}
    for field in fields:
        if isinstance(field, gr.Textbox) and field.visible is True and not _is_secret(field):
            same = sum(name.split("#")[0] == field.label for name in named.values())
            field.elem_id = field.elem_id or f"text-{field._id}"
            named[field.elem_id] = f"{field.label}#{same}" if same else str(field.label)
    return named


def _id(component: Any) -> int:
    return component._id


def _properties(update: Any) -> Collection[str]:
    """Return the names of the properties that an update changes."""
    if isinstance(update, Block):
        return update.constructor_args
    return update if isinstance(update, dict) else ["value"]
