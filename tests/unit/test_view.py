"""The event of a page, without a browser: what it answers to which question, once for all who poll."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gradio as gr
import pytest

from dashboard.ui.components import notice, show
from dashboard.ui.view import SECRET_FIELD, Act, Asked, Polled, Updates, Values, View, digest
from fsd_core.errors import DatabaseUnavailable, FsdError, InvalidSetting
from fsd_core.roles import NOBODY
from tests.tools.asking import asked
from tests.tools.built import built
from tests.tools.sizes import PATIENCE

KEY = "0123456789abcdef" * 2


class Shown:
    """A small page, and the browser that shows it: each answer is taken over before the next question."""

    def __init__(self) -> None:
        with gr.Blocks(analytics_enabled=False):
            self.place, self.other = show(), show()
            self.letter = gr.Radio(["a", "b"], value="a")
            self.name = gr.Textbox()
            self.size = gr.Number()
            self.figure, self.figures = show(), show()
            self.save = gr.Button("Save")
            self.view = View(self.place, self.fail)
            self.view.act("add", self.add)
            self.view.act("refuse", self.refuse, self.other)
            self.view.button(self.save, "save", [self.letter, self.name, self.size], self.keep)
            self.view.listen(self.redraw, [self.letter], [self.figure, self.figures], [self.name, self.size])

    def begin_anew(self) -> None:
        """Forgets what was done and shown."""
        self.done: list[Act] = []
        self.saved: list[Values] = []
        self.drawn: list[str] = []
        self.opening: list[bool] = []
        self.error: FsdError | None = None
        self.values: dict[Any, Any] = {self.letter: "a", self.name: "", self.size: 1}
        self.question: dict[str, Any] = {"number": 0}

    def redraw(self, asked: Asked) -> Updates:
        self.opening.append(asked.opening)
        if self.error:
            raise self.error
        updates = Updates()
        if asked.differs("letter", asked[self.letter]):
            self.drawn.append("letter")
            updates[self.figure] = asked[self.letter]
            asked.fill(self.name, f"Name of {asked[self.letter]}")
        if asked.differs("figures", asked[self.letter], len(self.done), slow=True):
            self.drawn.append("figures")
            updates[self.figures] = f"{len(self.done)} done"
        return updates

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        return {self.figure: notice(str(error), "bad"), self.figures: ""}

    def add(self, act: Act, asked: Asked) -> None:
        if act.key not in {one.key for one in self.done}:
            self.done.append(act)

    def refuse(self, act: Act, asked: Asked) -> None:
        raise InvalidSetting("Not today.")

    def keep(self, values: Values, asked: Asked) -> Updates:
        self.saved.append(values)
        asked.used(values, self.name)
        return {self.place: notice("Saved.")}

    def ask(self, question: object = None, **changed: Any) -> tuple[Updates, dict[str, Any]]:
        """What is drawn, and what the browser hears."""
        self.question["number"] += 1
        asked = json.dumps(self.question | changed) if question is None else question
        updates = self.view.answer(self.redraw, {**self.values, self.view._answer: asked}, gr.Request())
        heard = json.loads(updates.pop(self.view._answer))
        self.question["shown"] = heard["shown"]
        for place, value in heard["fill"].items():
            self.values[self.view._fields[int(place)]] = value
        return updates, heard


@pytest.fixture(scope="module")
def small() -> Shown:
    return built(Shown)


@pytest.fixture
def closed(small: Shown) -> Shown:
    """The page, not yet opened."""
    small.begin_anew()
    return small


@pytest.fixture
def shown(closed: Shown) -> Shown:
    """The page, opened."""
    while closed.ask()[0]:
        pass
    closed.drawn.clear()
    return closed


def act(name: str, data: Any = None, key: str = KEY) -> dict[str, Any]:
    return {"key": key, "name": name, "data": data}


def test_a_page_that_opens_draws_everything_and_slow_parts_in_a_second_answer(closed: Shown) -> None:
    first, heard = closed.ask()
    assert closed.drawn == ["letter"]
    assert first == {closed.figure: "a", closed.view._rest: "1"}  # which asks once more
    assert heard["fill"] == {str(closed.view._fields.index(closed.name)): "Name of a"}
    second, _ = closed.ask()
    assert second == {closed.figures: "0 done"}
    assert closed.ask()[0] == {}


def test_what_has_not_changed_is_not_drawn_again(shown: Shown) -> None:
    before = dict(shown.question["shown"])
    assert shown.ask()[0] == {}
    assert (shown.drawn, shown.question["shown"]) == ([], before)


def test_a_slow_part_alone_is_drawn_at_once(shown: Shown) -> None:
    updates, heard = shown.ask(acts=[act("add")])
    assert updates == {shown.figures: "1 done"}
    assert heard["done"] == [KEY]


def test_only_what_differs_is_filled_in(shown: Shown) -> None:
    shown.values[shown.letter] = "b"
    _, heard = shown.ask()
    assert list(heard["fill"].values()) == ["Name of b"]
    shown.values |= {shown.letter: "a", shown.name: "Name of a"}
    _, heard = shown.ask()
    assert heard["fill"] == {}


def test_an_act_is_done_once_however_often_it_is_sent(shown: Shown) -> None:
    for _ in range(3):
        _, heard = shown.ask(acts=[act("add", {"id": "7"})])
        assert heard["done"] == [KEY]
    (done,) = shown.done
    assert (done["id"], done["unknown"]) == ("7", "")


def test_acts_are_done_in_their_order_and_each_is_answered(shown: Shown) -> None:
    keys = [f"{i:032x}" for i in range(3)]
    updates, heard = shown.ask(
        acts=[act(name, key=key) for name, key in zip(["add", "refuse", "add"], keys, strict=True)]
    )
    assert [one.key for one in shown.done] == [keys[0], keys[2]]
    assert (heard["done"], heard["kept"]) == (keys, [keys[1]])
    assert updates[shown.other] == notice("Not today.", "bad")
    assert updates[shown.figures] == "2 done"  # beside the refusal


def test_a_button_hands_over_the_values_of_its_click(shown: Shown) -> None:
    updates, heard = shown.ask(acts=[act("save", ["b", "Name of a", 2.5])])
    (values,) = shown.saved
    assert dict(values) == {shown.letter: "b", shown.name: "Name of a", shown.size: 2.5}
    assert values.key == KEY
    assert updates[shown.place] == notice("Saved.")
    assert list(heard["fill"].values()) == [""]  # used
    shown.values[shown.name] = "typed since"
    _, heard = shown.ask(acts=[act("save", ["b", "Name of a", 2.5], "f" * 32)])
    assert heard["fill"] == {}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (None, (None, "", None)),
        ("text", (None, "", None)),
        ([1, 2], (None, "", None)),
        ([1, None, "2"], (None, "", None)),
        ([["a"], {"a": 1}, True], (None, "", None)),
        (["z", "x", 10**400], ("z", "x", None)),
    ],
)
def test_values_of_another_type_are_read_as_none(shown: Shown, sent: object, read: tuple[object, ...]) -> None:
    shown.ask(acts=[act("save", sent)])
    assert tuple(shown.saved[0].values()) == read


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_read_as_none(shown: Shown, number: str) -> None:
    question = json.dumps({"number": 1, "acts": [act("save", ["a", "x", "NUMBER"])]})
    shown.ask(question.replace('"NUMBER"', number))
    assert [values[shown.size] for values in shown.saved] in ([None], [])


def test_an_unknown_act_is_a_sentence(shown: Shown) -> None:
    updates, heard = shown.ask(acts=[act("nothing")])
    assert updates == {shown.place: notice("This page has no such button: reload it.", "bad")}
    assert heard["done"] == [KEY]


def test_an_error_stands_in_place_of_what_was_asked_for(shown: Shown) -> None:
    shown.values[shown.letter] = "b"
    shown.error = InvalidSetting("There is no b.")
    updates, _ = shown.ask()
    assert updates == {shown.figure: notice("There is no b.", "bad"), shown.figures: ""}
    assert shown.ask()[0] == {}  # the same question again
    shown.error, shown.values[shown.letter] = None, "a"
    shown.ask()
    shown.ask()
    assert shown.drawn == ["letter", "figures"]  # nothing counts as shown that the error has replaced


def test_an_error_of_a_tick_leaves_what_is_shown(shown: Shown) -> None:
    before = dict(shown.question["shown"])
    shown.error = DatabaseUnavailable("The database does not answer.")
    assert shown.ask()[0] == {}
    assert shown.question["shown"] == before
    shown.error = None
    assert shown.ask()[0] == {}


def test_an_error_after_an_act_is_displayed_and_the_act_is_done(shown: Shown) -> None:
    shown.error = DatabaseUnavailable("The database does not answer.")
    updates, heard = shown.ask(acts=[act("add")])
    assert (heard["done"], len(shown.done)) == ([KEY], 1)
    assert updates[shown.figure] == notice("The database does not answer.", "bad")


def test_an_error_at_opening_is_displayed_and_the_page_still_opens(closed: Shown) -> None:
    closed.error = DatabaseUnavailable("The database does not answer.")
    assert closed.ask()[0][closed.figure] == notice("The database does not answer.", "bad")
    closed.error = None
    assert closed.ask()[0][closed.figure] == "a"
    closed.ask()
    assert closed.opening == [True, True, False]


def hostile(**question: Any) -> str:
    return json.dumps({"number": 1} | question)


@pytest.mark.parametrize(
    "question",
    [
        "", "{", "null", "[]", "7", '"text"', "{}" * 2, "\x00", "[" * 100_000, '{"number": ' + "9" * 5000 + "}",
        7, ["a"], {"number": 1},
        hostile(number="one"), hostile(number=10**400), hostile(number=-1), hostile(number=None), hostile(number=1.5),
        hostile(changes=10**30), hostile(changes="x"),
        hostile(shown=[]), hostile(shown={"letter": 7}), hostile(shown={"letter": "x" * 201}),
        hostile(shown={"x" * 201: ""}),
        hostile(address=[]), hostile(address={"run": ["a", "b"]}), hostile(address={"run": None}),
        hostile(wanted=[]), hostile(wanted={"page": [[[[]]]]}), hostile(wanted={"x" * 201: 1}),
        hostile(kept=[]), hostile(kept={"0": {"a": 1}, "1": ["x"], "2": "three", "99": 1, "-1": 1, "name": 1}),
        hostile(acts={}), hostile(acts=[7]), hostile(acts=[act("add", key="0")]),
        hostile(acts=[act("add", key=KEY.upper())]),
        hostile(acts=[act("x" * 201)]), hostile(acts=[{"key": KEY}]), hostile(acts=[act("add")] * 101),
        hostile(unknown=1, acts=[act("save", {"0": "a"}), act("refuse", [[]])]),
    ],
)  # fmt: skip
def test_a_hostile_question_is_answered_with_a_page(closed: Shown, question: object) -> None:
    updates, heard = closed.ask(question)
    assert updates[closed.figure] in ("a", None)
    assert heard["shown"]["letter"]


def test_more_acts_than_a_question_holds_are_none(shown: Shown) -> None:
    _, heard = shown.ask(acts=[act("add", key=f"{i:032x}") for i in range(101)])
    assert (heard["done"], shown.done) == ([], [])
    _, heard = shown.ask(acts=[act("add", key=f"{i:032x}") for i in range(100)])
    assert len(heard["done"]) == len(shown.done) == 100


@pytest.mark.parametrize(
    ("turned", "page"),
    [
        ({"of": "x", "page": 3}, 3),
        ({"of": "y", "page": 3}, 0),
        ({"of": "x", "page": -3}, 0),
        ({"of": "x", "page": 10**40}, 10**9),
        ({"of": "x", "page": "3"}, 0),
        ({"of": "x", "page": 1.5}, 0),
        ({"of": "x"}, 0),
        ([3], 0),
        ("x", 0),
        (None, 0),
    ],
)
def test_a_page_is_a_number_that_a_list_may_have(turned: object, page: int) -> None:
    assert asked({}, wanted={"list": turned}).page("list", "x") == page


def test_nobody_is_asking_without_a_request() -> None:
    assert asked({}).person is NOBODY


def test_digests_tell_apart_what_is_joined_otherwise() -> None:
    assert digest("a", "bc") != digest("ab", "c")
    assert digest(1) != digest("1")
    assert digest(["a"], {"b": 1}) == digest(["a"], {"b": 1})


def test_what_a_form_kept_is_read_in_the_type_of_its_field() -> None:
    def build() -> tuple[View, list[Any]]:
        with gr.Blocks(analytics_enabled=False):
            view = View(show(), lambda asked, error: {})
            kept = [
                gr.Checkbox(), gr.CheckboxGroup(["a"]), gr.Dropdown(["a"], multiselect=True), gr.Dropdown(["a"]),
                gr.Number(), gr.Textbox(),
            ]  # fmt: skip
            view.listen(lambda asked: {}, kept, [], kept=kept)
        return view, kept

    view, kept = built(build)
    read: list[Any] = []
    question = json.dumps({"number": 1, "kept": {str(i): {"hostile": 1} for i in range(len(kept))}})
    values = dict.fromkeys(kept, "other") | {view._answer: question}
    view.answer(lambda asked: read.extend(asked[field] for field in kept) or {}, values, gr.Request())
    assert read == [False, [], [], None, None, ""]


def test_texts_that_a_browser_keeps_are_named_one_by_one_and_are_no_secrets() -> None:
    def build() -> tuple[list[str], list[gr.Textbox]]:
        with gr.Blocks(analytics_enabled=False) as blocks:
            texts = [gr.Textbox(label=label) for label in ("Search", "Note", "Note", "Reply")]
            password, key = gr.Textbox(type="password"), gr.Textbox(label="Key", elem_classes=[SECRET_FIELD])
            search, note, other, reply = texts
            view = View(show(), lambda asked, error: {})
            fields = [gr.Textbox(visible="hidden"), note, gr.Number(), search, password, key]
            view.button(gr.Button(), "say", fields, lambda values, asked: None)
            view.listen(lambda asked: {}, [search], [], [other, reply])
            return [one["js"] or "" for one in blocks.get_config_file()["dependencies"]], texts

    scripts, (_, note, other, reply) = built(build)
    (asking,) = [js for js in scripts if "fsd.ask(" in js]
    kept = re.search(r"ask\(\d+, (\{.*?\}\}),", asking)
    assert kept is not None
    assert json.loads(kept[1])["texts"] == {note.elem_id: "Note", other.elem_id: "Note#1", reply.elem_id: "Reply"}
    assert any('act("say", values, null, true)' in js for js in scripts)  # kept by the page alone


ENDLESS = 1e9


def test_many_who_ask_at_once_cost_one_question() -> None:
    asked, asking, all_ask = [], [], threading.Event()

    def slow(page: int) -> int:
        asked.append(page)
        assert all_ask.wait(PATIENCE)
        return len(asked)

    def ask(page: int) -> int:
        asking.append(page)
        if len(asking) == 8:
            all_ask.set()
        return polled(page)

    polled = Polled(slow, ENDLESS)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, [1] * 8)) == {1}
    assert (polled(2), polled(1), asked) == (2, 1, [1, 2])


def test_an_answer_is_forgotten_after_its_time_or_a_change() -> None:
    asked: list[None] = []
    clock = [100.0]
    polled = Polled(lambda: asked.append(None) or len(asked), 5, lambda: clock[0])
    assert polled() == 1
    clock[0] += 4.9
    assert polled() == 1
    clock[0] += 0.2
    assert polled() == 2
    polled.forget()
    assert polled() == 3


def test_what_is_typed_without_end_is_not_kept() -> None:
    polled = Polled(len, ENDLESS)
    assert polled("a" * 1_000_000) == 1_000_000
    assert len(polled._answers) == 0
    for i in range(10_000):
        polled(f"{i} {'a' * 1_900}")
    assert sum(len(repr(key)) for key in polled._answers) < 256 * 2_000


def test_an_error_is_raised_each_time_and_not_kept() -> None:
    answers = iter([DatabaseUnavailable("away"), DatabaseUnavailable("away"), "here"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, FsdError):
            raise answer
        return answer

    polled = Polled(ask, ENDLESS)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match="away"):
            polled()
    assert polled() == "here"
