"""The event of a page: one for all that the page shows, so that it always shows one state.

A page is a function of a question (its address, its fields, the pages that its lists were turned to) and of stored
data. Every choice, click and tick asks the same question, and the answer redraws the parts that differ from the
browser's. As there is one event, no two answers are under way at once, and none overtakes another. A question that
comes meanwhile is asked afterwards, with the fields as they are then.

``view.js`` is the other half. It sends what a person has done until it is answered, and the server does it once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import gradio as gr
from gradio.blocks import Block

from dashboard.ui.components import PRIVATE_EVENT, notice, page_load
from dashboard.ui.needs import LOOKS, check_role, refusal
from dashboard.ui.question import QUESTION, Act, Asked, Updates, Values, digest, field_value, read_question
from dashboard.ui.templates import Html, joined, script
from fsd_core.errors import FsdError, Stale
from fsd_core.roles import NOBODY

_LOCKS = tuple(threading.Lock() for _ in range(64))
"""for acts, by their keys"""

SECRET_FIELD = "fsd-secret"
"""the class of a field whose text no browser keeps, as it keeps none of a password"""

CHOICE_EVENT: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "always_last"}
"""Options of an event that asks the server. What comes while an answer is under way is asked once more after it.
Gradio's default would drop it."""


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
        self._buttons: dict[gr.Button, tuple[str, gr.HTML]] = {}  # with the act of each, and the place of its answers
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
        barred: gr.HTML | None = None,
    ) -> None:  # fmt: skip
        """Let ``handler`` do what a button is for, with the values that ``fields`` had at the click.

        Whoever has not the role for it sees it disabled, and the reason at ``barred``, by default ``place``.
        ``js`` is a script that acts with these values, in place of the usual one.
        """

        def press(act: Act, asked: Asked) -> Updates | None:
            values = act.data if isinstance(act.data, list) and len(act.data) == len(fields) else [None] * len(fields)
            read = Values({field: field_value(field, value) for field, value in zip(fields, values, strict=True)})
            read.key = act.key
            return handler(read, asked)

        secret = any(map(_is_secret, fields))
        self.by_script(button.click, fields, js or script("ui/press.js", NAME=name, SECRET=secret))
        self.act(name, press, place)
        if refusal(NOBODY, name):
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
        for act in question.acts:
            done |= self._do(act, asked)
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
        heard = {
            "number": question.number, "shown": asked.shown, "done": [act.key for act in question.acts],
            "kept": [*asked.unused],
            "changes": question.changes, "address": asked.new_address,
            "fill": {self._fields.index(field): value for field, value in asked.filled.items()},
        }  # fmt: skip
        more = {self._rest: str(question.number)} if asked.postponed else {}
        LOOKS.reset(before)
        updates |= done
        written = [field for field in self._fields if "value" in _properties(updates.get(field, {}))]
        assert not written, f"values are filled in and not answered: {written}"
        return updates | more | {self._answer: json.dumps(heard)}

    def _barred(self, asked: Asked, updates: Updates) -> Updates:
        """Return what disables the buttons of acts for other roles, with the reasons, as far as the page differs."""
        opening, reasons, barred = asked.differs("barred"), dict[gr.HTML, dict[str, None]](), Updates()
        for button, (name, place) in self._buttons.items():
            reason = refusal(asked.person, name)
            drawn: dict[str, Any] = {"interactive": True} | getattr(updates.get(button), "constructor_args", {})
            if opening or (reason and button in updates):
                barred[button] = gr.Button(**drawn | {"interactive": drawn["interactive"] and not reason})
            if opening and reason:
                reasons.setdefault(place, {})[reason] = None
        told = {place: notice(" ".join(texts), "warn") for place, texts in reasons.items()}
        return barred | {place: joined([updates.get(place, ""), text]) for place, text in told.items()}

    def _do(self, act: Act, asked: Asked) -> Updates:
        handler, place = self._acts.get(act.name, (None, self._place))
        try:
            if handler is None:
                raise Stale("This page has no such button: reload it.")
            check_role(asked.person, act.name)
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
