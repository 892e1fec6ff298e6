"""What the Playground does once, and what a poll of it costs: without a browser."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from dashboard.playground.job_panels import FORMER, Visitors
from dashboard.playground.playground_page import Playground, payload
from dashboard.ui.fields import pair_defaults
from dashboard.ui.view import Asked, Values
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.config.options import method
from fsd_core.errors import Refused, Stale, UnknownName
from fsd_core.roles import Person
from fsd_core.storage.repository import Repository
from tests.tools.asking import act, asked
from tests.tools.built import built
from tests.tools.plausible import new_repository
from tests.tools.sizes import PATIENCE
from tests.tools.tracking_examples import chunk

FIRST, SECOND = "a" * 32, "b" * 32
BOB = Person("bob", "viewer")
LENIENT = SettingConfig(
    pair="bundled",
    decoding=method({"acceptance": "fsd-reducible", "threshold": 0.3, "draft_length": 7, "temperature": 0.5}),
)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return new_repository(tmp_path)


@pytest.fixture
def page(repository: Repository) -> Playground:
    def build() -> Playground:
        with gr.Blocks(analytics_enabled=False):
            return Playground(repository, None, "worker")

    return built(build)


def form(page: Playground, changed: dict[Any, Any] | None = None, key: str = FIRST) -> Values:
    """What the fields hold at a click."""
    values = Values({field: field.value for field in page.fields} | {page.owner: ""} | (changed or {}))
    values.key = key
    return values


def question(
    page: Playground, changed: dict[Any, Any] | None = None, person: Person | None = None, **told: Any
) -> Asked:
    opened = asked(form(page, changed), **told)
    opened.person = person or opened.person
    return opened


def test_an_act_that_is_sent_twice_begins_one_job(page: Playground, repository: Repository) -> None:
    for _ in range(2):
        again = question(page)
        page.start(form(page), again)
        assert again.shown["job"] == FIRST
    assert [job.id for job in repository.latest_jobs("playground")] == [FIRST]


def test_a_page_whose_texts_are_written_begins_no_second_job(page: Playground, repository: Repository) -> None:
    page.start(form(page), question(page))
    with pytest.raises(Refused):
        page.start(form(page, key=SECOND), question(page, shown={"job": FIRST}))
    repository.request_cancel(FIRST)
    page.start(form(page, key=SECOND), question(page, shown={"job": FIRST}))
    assert repository.job(SECOND).status == "queued"


def test_stop_stops_the_job_of_its_click_and_nobody_else_s(page: Playground, repository: Repository) -> None:
    page.start(form(page), question(page))
    page.start(form(page, key=SECOND), question(page, person=BOB))
    page.cancel(act("stop", {"job": FIRST}), question(page, shown={"job": SECOND}))
    assert (repository.job(FIRST).status, repository.job(SECOND).status) == ("cancelled", "queued")
    with pytest.raises(UnknownName):
        page.cancel(act("stop", {"job": SECOND}), question(page))
    assert repository.job(SECOND).status == "queued"


def test_somebody_who_has_signed_in_since_the_click_does_not_begin_the_job(
    page: Playground, repository: Repository
) -> None:
    page.start(form(page, {page.owner: "ann"}), question(page, person=BOB))
    assert repository.latest_jobs("playground") == []


def test_a_choice_that_is_not_offered_is_refused(page: Playground) -> None:
    rule = page.cards[0].fields["acceptance"]
    for changed in ({rule: "magic"}, {rule: None}):
        with pytest.raises(Stale):
            page.start(form(page, changed), question(page))
    for typed in ("<b>", "path:/etc", None):
        with pytest.raises(UnknownName, match=f"no model pair called '{typed}': choose one of it"):
            page.start(form(page, {page.form.pair: typed}), question(page))


def test_a_poll_reads_new_chunks_and_draws_what_has_changed(
    page: Playground, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.start(form(page), begun := question(page))
    page.redraw(begun)
    read: list[int] = []
    chunks = repository.chunks

    def noted(job: str, after: int = -1) -> Any:
        read.append(after)
        return chunks(job, after)

    monkeypatch.setattr(repository, "chunks", noted)
    repository.append_chunks(FIRST, [chunk(4, setting=0), chunk(5, setting=1)])
    page.redraw(told := question(page, shown=begun.shown))
    repository.append_chunks(FIRST, [chunk(6, setting=1)])
    lost = page.redraw(question(page, shown=told.shown))
    assert {panel for panel in page.texts.panels if panel in lost} == {page.texts.panels[1]}
    same = page.redraw(latest := question(page, shown=told.shown))  # the browser has not got that answer
    assert same[page.texts.panels[1]] == lost[page.texts.panels[1]]
    assert page.redraw(question(page, shown=latest.shown)) == {}
    assert read == [-1, 1, 2, 2]


def test_texts_are_marked_as_of_a_former_form_until_it_is_as_it_was(page: Playground, repository: Repository) -> None:
    page.start(form(page), told := question(page))
    page.redraw(told)
    repository.append_chunks(FIRST, [chunk(4, setting=0)])
    prompt, unread = page.form.prompt, page.cards[0].fields["tree_tokens"]
    for changed, marked in (({}, False), ({prompt: "Another"}, True), ({unread: 99}, False), ({page.number: 3}, True)):
        page.redraw(told := question(page, changed, shown={"job": FIRST}))
        updates = page.redraw(question(page, changed, shown={**told.shown, "former": "?"}))
        assert (FORMER in updates[page.texts.former]) == marked, changed


def test_two_tabs_of_a_member_do_not_pass_the_demo_s_limit_together(repository: Repository) -> None:
    """The second asks while the first is begun."""
    visitors, inside, go_on = Visitors(repository), threading.Event(), threading.Event()
    message = payload("bundled", "Hi", 0, [DecodingConfig(max_new_tokens=20)], BOB.name)

    def slow() -> str:
        inside.set()
        assert go_on.wait(PATIENCE)
        return repository.enqueue(message)

    def begin(enqueue: Callable[[], str]) -> None:
        visitors.begin(BOB, "", message.pair, message.decodings, enqueue)

    with ThreadPoolExecutor(2) as tabs:
        first = tabs.submit(begin, slow)
        assert inside.wait(PATIENCE)
        second = tabs.submit(begin, lambda: repository.enqueue(message))
        go_on.set()
        first.result(PATIENCE)
        with pytest.raises(Refused):
            second.result(PATIENCE)
    assert repository.queue_length() == 1


def test_a_link_fills_in_the_setting_the_pair_and_the_prompt_that_it_names(
    page: Playground, repository: Repository
) -> None:
    run = repository.run(repository.create_run(RunConfig(setting=LENIENT, task="arithmetic", limit=3)))
    opened = question(page, address={"setting": run.setting_id, "prompt": "Question: 1 + 1?\nAnswer:"})
    page.redraw(opened)
    second = page.cards[1].fields
    assert opened.filled[page.form.prompt] == "Question: 1 + 1?\nAnswer:"
    assert (opened.current(second["threshold"]), opened.current(second["draft_length"])) == (0.3, 7)
    assert opened.current(page.cards[0].fields["acceptance"]) == "speculative"
    assert opened.current(page.form.shared["temperature"]) == 0.5

    exact = SettingConfig(pair="bundled", decoding=method({"acceptance": "speculative", "draft_length": 4}))
    run = repository.run(repository.create_run(RunConfig(setting=exact, task="arithmetic", limit=3)))
    opened = question(page, address={"setting": run.setting_id})
    page.redraw(opened)
    assert opened.current(page.cards[0].fields["acceptance"]) == "autoregressive"  # not itself once more

    opened = question(page, address={"pair": "smollm2-135m"})
    page.redraw(opened)
    assert opened.current(page.form.pair) == "smollm2-135m"
    assert opened.current(second["draft_length"]) == pair_defaults("smollm2-135m").draft_length

    for address, sentence in (({"setting": "nosuch"}, "no setting"), ({"pair": "nosuch"}, "no model pair")):
        updates = page.redraw(question(page, address=address))
        assert sentence in str(updates[page.texts.verdict])


def test_a_setting_is_told_in_a_line_and_what_it_lacks_too(page: Playground) -> None:
    card = page.cards[1]
    built = {part: part.value for part in card.fields.values()}
    assert card.line_html(built) == "<p>FSD reducible · js ≤ 0.1 · γ 16</p>"
    assert "0.9 is beyond the range" in card.line_html(built | {card.fields["threshold"]: 0.9})
    opened = question(page, {card.fields["threshold"]: 0.2})
    assert page.redraw(opened)[card.line] == "<p>FSD reducible · js ≤ 0.2 · γ 16</p>"
