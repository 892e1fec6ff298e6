"""The event of a page in a real browser, on a small page of the test's own: slow, lost and doubled questions."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import gradio as gr
import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Locator, Page, Route, expect

from dashboard.ui.components import CLICKS, button, notice, show
from dashboard.ui.fields import Pager
from dashboard.ui.page import HEAD
from dashboard.ui.templates import joined
from dashboard.ui.view import Act, Asked, Updates, Values, View, digest
from fsd_core.accounts import KEY
from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.middleware import RequireSignIn
from fsd_core.roles import LOCAL
from tests.tools.settled import go, meanwhile, settled
from tests.tools.sizes import PATIENCE, some
from tests.tools.worker_process import ROOT, until

pytestmark = pytest.mark.ui

NUMBERS = 50
SIZE = 5


class Small:
    """A choice with a text that is filled in for it, a list of numbers, and buttons that do something once."""

    def __init__(self) -> None:
        show(elem_classes=["fsd-worker"])  # a page has opened when it says how the worker is
        self.answer = show()
        self.letter = gr.Radio(["a", "b", "c"], value="a", label="Letter")
        self.name = gr.Textbox(label="Name", elem_id="name")
        self.save = gr.Button("Save")
        self.secret = gr.Textbox(label="Secret", type="password")
        self.use = gr.Button("Use it")
        self.shown = show(elem_id="shown")
        self.buttons = show(js_on_load=CLICKS, elem_id="buttons")
        self.list = show(elem_id="list")
        self.pager = Pager(SIZE, "number")
        self.begin_anew()
        view = View(self.answer, self.fail)
        view.on(self.buttons.click)
        view.turns(self.pager.name, self.pager.steps)
        for name in ("archive", "unarchive", "delete"):
            view.act(name, self.press)
        view.button(self.save, "save", [self.name], self.keep)
        view.button(self.use, "use", [self.secret], lambda values, asked: None)
        outputs = [self.shown, self.buttons, self.list, *self.pager.parts]
        view.listen(self.redraw, [self.letter], outputs, [self.name])

    def begin_anew(self) -> None:
        """Forgets what was done, and holds nothing."""
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.at_once, self.most_at_once, self.fails_once = 0, 0, False
        self.done: dict[str, str] = {}
        self.saved: dict[str, str] = {}
        self.lock = threading.Lock()

    def hold(self) -> Callable[[], None]:
        """Holds answers until what is returned is called."""
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        return self.gate.set

    def wait(self) -> None:
        """Until an answer is held."""
        assert self.entered.acquire(timeout=PATIENCE)

    def redraw(self, asked: Asked) -> Updates:
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.entered.release()
            assert self.gate.wait(PATIENCE)
            if self.fails_once:
                self.fails_once = False
                raise RuntimeError("as a bug of a page would")
            return self.draw(asked)
        finally:
            with self.lock:
                self.at_once -= 1

    def draw(self, asked: Asked) -> Updates:
        letter, updates = asked[self.letter], Updates()
        if asked.differs("letter", letter):
            updates[self.shown] = notice(f"Letter {letter}")
            asked.fill(self.name, f"Name of {letter}")
        if asked.differs("buttons", self.done):
            archived = "archive" in self.done.values()
            first = (
                button("unarchive", "run", "0", "Unarchive") if archived else button("archive", "run", "0", "Archive")
            )
            others = [button("delete", "run", str(i), f"Delete {i}") for i in range(1, 5)]
            updates[self.buttons] = joined([first, *others])
        of = digest("numbers")
        page = self.pager.clamp(asked.page(self.pager.name, of), NUMBERS)
        if asked.differs("list", page):
            text = " ".join(str(i) for i in range(page * SIZE, (page + 1) * SIZE))
            updates |= {self.list: notice(text)} | self.pager.updates(page, NUMBERS, of)
        return updates

    def press(self, act: Act, asked: Asked) -> None:
        self.done[act.key] = act.name if act.name != "delete" else f"delete {act['id']}"

    def keep(self, values: Values, asked: Asked) -> Updates:
        if not values[self.name]:
            raise InvalidSetting("There is no name.")
        if values[self.name].startswith("refuse"):
            raise InvalidSetting("It is refused.")
        self.saved[values.key] = values[self.name]
        asked.used(values, self.name)
        return {self.answer: notice(f"{values[self.name]} was saved.")}

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        return {self.shown: notice(str(error), "bad")}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Small]]:
    """The page in a thread of this process, so that a test can hold its answers."""
    with gr.Blocks(analytics_enabled=False) as blocks:
        small = Small()
    app = FastAPI()
    app.add_middleware(RequireSignIn, identify=lambda scope: LOCAL, key=KEY, login=None)
    app = gr.mount_gradio_app(app, blocks, path="/", head=HEAD, footer_links=[], ssr_mode=False)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_keep_alive=int(PATIENCE)))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        until(lambda: server.started, "the server", PATIENCE)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", small
        server.should_exit = server.force_exit = True
        thread.join()


@pytest.fixture
def small(served: tuple[str, Small], page: Page) -> Small:
    """The small page, opened, with nothing done so far."""
    url, small = served
    small.begin_anew()
    go(page, url)
    expect(page.locator("#shown")).to_contain_text("Letter a")
    expect(name(page)).to_have_value("Name of a")
    return small


def name(page: Page) -> Locator:
    return page.get_by_label("Name")


def choose(page: Page, letter: str) -> None:
    page.get_by_role("radio", name=letter, exact=True).check()


@pytest.mark.parametrize("letter", some(["c", "a"], "c"))
def test_a_choice_made_while_an_answer_is_held_is_answered_last(page: Page, small: Small, letter: str) -> None:
    release = small.hold()
    choose(page, "b")
    small.wait()
    choose(page, letter)
    release()
    expect(name(page)).to_have_value(f"Name of {letter}")
    settled(page)
    expect(page.locator("#shown")).to_contain_text(f"Letter {letter}")
    expect(name(page)).to_have_value(f"Name of {letter}")
    expect(page.get_by_role("radio", name=letter, exact=True)).to_be_checked()


@pytest.mark.wide
def test_two_events_at_one_moment_are_answered_one_after_the_other(page: Page, small: Small) -> None:
    release = small.hold()
    page.evaluate(
        """() => {
          const buttons = [...document.querySelectorAll('button')];
          for (const text of ['Delete 1', 'Delete 2', 'Next']) {
            setTimeout(() => buttons.find((one) => one.textContent.trim() === text).click(), 0);
          }
          setTimeout(() => document.querySelector('input[type=radio][value=b]').click(), 0);
        }"""
    )
    small.wait()
    release()
    expect(page.locator("#shown")).to_contain_text("Letter b")
    expect(page.locator("#list")).to_contain_text("5 6 7 8 9")
    meanwhile(page, lambda: len(small.done) == 2, "what was clicked")
    assert (small.most_at_once, list(small.done.values())) == (1, ["delete 1", "delete 2"])


@pytest.mark.wide
def test_text_typed_while_a_fill_in_is_held_stays(page: Page, small: Small) -> None:
    release = small.hold()
    choose(page, "b")
    small.wait()
    name(page).fill("Mine")
    release()
    expect(page.locator("#shown")).to_contain_text("Letter b")
    settled(page)
    expect(name(page)).to_have_value("Mine")


def test_text_typed_while_gradio_writes_the_fields_stays(page: Page, small: Small) -> None:
    """Its values are read some moments before they are written."""
    page.evaluate(
        """() => {
          const hear = window.fsd.hear;
          window.fsd.hear = (...values) => {
            const fill = hear(...values);
            const field = document.querySelector('#name textarea');
            field.value = 'Typed';
            field.dispatchEvent(new Event('input', {bubbles: true}));
            window.fsd.hear = hear;
            return fill;
          };
        }"""
    )
    page.get_by_label("b", exact=True).check()
    expect(page.locator("#shown")).to_contain_text("Letter b")
    expect(name(page)).to_have_value("Typed")
    settled(page)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Typed was saved.")).to_be_visible()


def test_text_typed_while_it_is_being_saved_stays(page: Page, small: Small) -> None:
    name(page).fill("First")
    release = small.hold()
    page.get_by_role("button", name="Save").click()
    small.wait()
    name(page).fill("First and second")
    release()
    expect(page.get_by_text("First was saved.")).to_be_visible()
    expect(name(page)).to_have_value("First and second")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("First and second was saved.")).to_be_visible()
    expect(name(page)).to_have_value("")  # it was used, and nobody typed
    assert list(small.saved.values()) == ["First", "First and second"]


@pytest.mark.parametrize("lost", some(["question", "answer", "502", "500", "520"], "answer", "500"))
def test_a_lost_answer_neither_loses_an_act_nor_does_it_twice(page: Page, small: Small, lost: str) -> None:
    questions: list[Route] = []

    def lose(route: Route) -> None:
        questions.append(route)
        if len(questions) > 1:
            route.continue_()
            return
        if lost != "question":
            route.fetch()
        route.fulfill(status=int(lost), body="Bad gateway") if lost.isdigit() else route.abort()

    page.route("**/gradio_api/run/**", lose)
    name(page).fill("Kept")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Kept was saved.")).to_be_visible()
    expect(name(page)).to_have_value("")
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    assert (list(small.saved.values()), list(small.done.values())) == (["Kept"], ["archive"])


@pytest.mark.wide
def test_an_act_is_sent_again_where_the_page_itself_has_failed(page: Page, small: Small) -> None:
    small.fails_once = True
    page.get_by_role("button", name="Delete 1").click()
    meanwhile(page, lambda: not small.fails_once, "the failure")
    choose(page, "b")
    expect(page.locator("#shown")).to_contain_text("Letter b")
    assert list(small.done.values()) == ["delete 1"]  # with one key, so a page does it once


def test_a_double_click_acts_once(page: Page, small: Small) -> None:
    name(page).fill("Twice")
    page.get_by_role("button", name="Save").dblclick()
    expect(page.get_by_text("Twice was saved.")).to_be_visible()
    page.get_by_role("button", name="Archive").dblclick()
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    settled(page)
    assert (list(small.saved.values()), list(small.done.values())) == (["Twice"], ["archive"])


def test_a_second_click_does_not_press_what_has_moved_under_the_pointer(page: Page, small: Small) -> None:
    """The two clicks of a double click, at times of their own: the answer comes between them."""
    click = """(button, [text, at]) => {
      if (button.textContent !== text) throw new Error(button.textContent);
      const {x, y} = button.getBoundingClientRect();
      const where = {clientX: x + 5, clientY: y + 5};
      const event = new MouseEvent('click', {bubbles: true, cancelable: true, detail: 1, ...where});
      Object.defineProperty(event, 'timeStamp', {value: at});
      button.dispatchEvent(event);
    }"""
    first = page.locator("#buttons button").first
    first.evaluate(click, ["Archive", 1000])
    expect(first).to_have_text("Unarchive")
    first.evaluate(click, ["Unarchive", 1300])
    settled(page)
    expect(first).to_have_text("Unarchive")
    first.evaluate(click, ["Unarchive", 2000])  # a click of its own
    meanwhile(page, lambda: len(small.done) == 2, "the second act")
    assert list(small.done.values()) == ["archive", "unarchive"]


def test_next_twice_turns_two_pages(page: Page, small: Small) -> None:
    release = small.hold()
    forward = page.get_by_role("button", name="Next")
    forward.click()
    small.wait()
    forward.click()
    release()
    expect(page.locator("#list")).to_contain_text("10 11 12 13 14")
    forward.dblclick()
    expect(page.locator("#list")).to_contain_text("20 21 22 23 24")
    page.get_by_role("button", name="Previous").click()
    expect(page.locator("#list")).to_contain_text("15 16 17 18 19")


@pytest.mark.wide
def test_what_is_clicked_while_an_answer_is_held_is_all_done_once_each(page: Page, small: Small) -> None:
    release = small.hold()
    for i in range(1, 5):
        page.get_by_role("button", name=f"Delete {i}").click()
    small.wait()
    page.get_by_role("button", name="Archive").click()
    release()
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    settled(page)
    assert list(small.done.values()) == [*(f"delete {i}" for i in range(1, 5)), "archive"]


def test_the_same_act_is_done_again_after_another_one(page: Page, small: Small) -> None:
    release = small.hold()
    for text in ("Good", "Bad", "Bad", "Good"):
        name(page).fill(text)
        page.get_by_role("button", name="Save").click()
    small.wait()
    release()
    expect(page.get_by_text("Good was saved.")).to_be_visible()
    settled(page)
    assert list(small.saved.values()) == ["Good", "Bad", "Good"]


@pytest.mark.wide
def test_a_refused_act_says_so_and_keeps_what_was_typed(page: Page, small: Small) -> None:
    name(page).fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no name.")
    name(page).fill("Now")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Now was saved.")).to_be_visible()


@pytest.mark.wide
def test_a_server_that_is_lost_is_said_and_the_page_opens_again_when_it_is_back(page: Page, small: Small) -> None:
    lost = threading.Event()
    lost.set()
    page.route("**/gradio_api/**", lambda route: route.abort() if lost.is_set() else route.continue_())
    name(page).fill("Sent in vain")
    page.get_by_role("button", name="Save").click()
    name(page).fill("Typed in vain")
    expect(page.get_by_text("Connection to the server was lost")).to_be_visible()
    with page.expect_navigation():
        lost.clear()
    expect(page.locator("#shown")).to_contain_text("Letter a")
    expect(page.get_by_text("Sent in vain was saved.")).to_be_visible()
    expect(name(page)).to_have_value("Typed in vain")
    assert list(small.saved.values()) == ["Sent in vain"]


def kept_by(page: Page) -> str:
    """All that the browser keeps of the page, as one text."""
    return page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")


def test_what_was_typed_is_there_when_the_page_is_loaded_again_until_it_is_saved(page: Page, small: Small) -> None:
    name(page).fill("Typed for long")
    page.reload()
    expect(page.locator(".fsd-still")).to_contain_text("Still here, and not sent: Name.")
    expect(name(page)).to_have_value("Typed for long")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Typed for long was saved.")).to_be_visible()
    expect(page.locator(".fsd-still")).to_have_count(0)
    assert "Typed" not in kept_by(page)
    page.reload()
    expect(name(page)).to_have_value("Name of a")


def test_what_was_refused_is_there_when_the_page_is_loaded_again(page: Page, small: Small) -> None:
    name(page).fill("refuse this")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("It is refused.")
    page.reload()
    expect(name(page)).to_have_value("refuse this")


def test_an_act_behind_another_answer_outlasts_a_reload(page: Page, small: Small) -> None:
    release = small.hold()
    choose(page, "b")
    small.wait()
    name(page).fill("Behind")
    page.get_by_role("button", name="Save").click()
    page.reload()
    release()
    expect(page.locator(".fsd-still")).to_contain_text("Sent now that the page is here again: save.")
    page.reload()
    expect(page.locator("#shown")).to_contain_text("Letter a")
    settled(page)
    assert (list(small.saved.values()), "Behind" in kept_by(page)) == (["Behind"], False)


@pytest.mark.wide
def test_an_act_of_long_ago_is_told_and_not_done(page: Page, small: Small) -> None:
    page.evaluate(
        """() => {
          window.fsd.act('save', ['Long ago']);
          const [name] = Object.keys(localStorage).filter((one) => one.includes(' act '));
          const act = JSON.parse(localStorage.getItem(name));
          localStorage.setItem(name, JSON.stringify({...act, at: Date.now() - 3700000}));
        }"""
    )
    page.reload()
    expect(page.locator(".fsd-still")).to_contain_text("Not sent, because more than an hour has passed: save.")
    settled(page)
    assert (small.saved, "Long ago" in kept_by(page)) == ({}, False)


def test_words_of_somebody_else_are_not_written_over(page: Page, small: Small) -> None:
    choose(page, "b")
    expect(name(page)).to_have_value("Name of b")
    name(page).fill("Mine")
    page.reload()  # the field holds another text than the one that was typed over
    expect(page.locator(".fsd-still")).to_contain_text("Name was changed meanwhile. You had typed: “Mine”.")
    expect(name(page)).to_have_value("Name of a")
    page.get_by_role("button", name="Close").click()
    assert "Mine" not in kept_by(page)


def test_a_browser_keeps_no_secret(page: Page, small: Small) -> None:
    release = small.hold()
    page.get_by_label("Secret").fill("hunter2")
    page.get_by_role("button", name="Use it").click()
    small.wait()
    assert "hunter2" not in kept_by(page)
    release()
    settled(page)


def say(page: Page, act: str, text: str, kind: str) -> None:
    page.evaluate("(said) => window.fsdSaid.say(...said)", ["ann", act, notice(text), kind])


def test_an_answer_stands_beside_no_line_of_another_kind_and_takes_the_place_of_the_last(page: Page) -> None:
    lines = [
        f"<p>{button('disable', 'person', 'ann', 'Disable')}</p>",
        f"<p>{button('revoke', 'token', 'ann', 'Revoke')}</p>",
    ]
    page.set_content("".join(lines))
    page.add_script_tag(content=(ROOT / "dashboard" / "ui" / "said.js").read_text(encoding="utf-8"))
    person, token = page.locator("p:has(> button)").all()
    say(page, "revoke", "The token is worth nothing.", "token")
    expect(token).to_contain_text("The token is worth nothing.")
    say(page, "revoke", "It was revoked before.", "token")
    expect(token).to_contain_text("It was revoked before.")
    expect(token).not_to_contain_text("The token is worth nothing.")
    token.evaluate("(line) => line.remove()")
    expect(page.locator(".fsd-said")).to_have_count(0)
    expect(person).to_have_text("Disable")
