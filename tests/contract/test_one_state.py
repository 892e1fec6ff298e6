"""Each page shows one state: nothing that it displays is written by two events, and none of its clicks is dropped.

The pages are walked as they are built. Endpoints for programs have no page and are exempt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gradio as gr
import pytest

from dashboard.ui.components import PRIVATE_EVENT
from dashboard.ui.templates import script
from dashboard.ui.view import CHOICE_EVENT
from dashboard.web import PAGES, build_pages
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from tests.tools.built import built

Event = Mapping[str, Any]
Writer = Callable[[Event], bool]


def _answers(event: Event) -> bool:
    return bool(event["backend_fn"])


def _runs(*pieces: str) -> Writer:
    """Whether an event runs a script in the browser alone, and one that has one of these pieces."""
    return lambda event: not event["backend_fn"] and any(piece in str(event["js"]) for piece in pieces)


def _comment(file: str) -> str:
    return script(file).splitlines()[0]


_fills_in = _runs("window.fsd.hear(")
_counts = _runs("window.fsd.count()")
_chooses = _runs(_comment("playground/example.js"), _comment("playground/step.js"))
_completes = _runs(_comment("compare/show_address.js"))

# Who may write one component beside each other, and why nothing is lost by it.
EXCEPTIONS: Sequence[tuple[Writer, Writer, str]] = [
    (
        _answers,
        _fills_in,
        "The answer changes what a field offers, and never its value (View.answer refuses it). The script writes the "
        "value alone, after the answer, and only where the field still holds what was sent.",
    ),
    (
        _counts,
        _counts,
        "Each writes the next number of one counter, which says only that something is to be asked. Two at one moment "
        "ask once, with all that the scripts have noted by then.",
    ),
    *(
        (
            _chooses,
            other,
            "A person's choice is run in the browser at once: an example becomes the prompt, a button the next number "
            "of settings. Like anything typed it counts more than what is being filled in for the choice before.",
        )
        for other in (_answers, _fills_in, _chooses)
    ),
    (
        _answers,
        _completes,
        "The answer writes the query of a comparison. The script makes the address of it, which the server does not "
        "know, before the page can ask again; nobody types into this field.",
    ),
]


def faults(config: Mapping[str, Any], path: str) -> list[str]:
    """What a page as built could lose, overtake or do twice, in sentences."""
    parts = {one["id"]: one for one in config["components"] if one["id"] in config["page"][path]["components"]}
    events = [one for one in config["dependencies"] if one["id"] in config["page"][path]["dependencies"]]
    events = [one for one in events if one["targets"] or one["trigger_after"] is not None]  # the others are endpoints
    return [*_written_twice(parts, events), *_keeping(parts), *_losing(events)]


def _written_twice(parts: Mapping[int, Any], events: Sequence[Event]) -> Iterator[str]:
    writers: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        for component in event["outputs"]:
            writers[component].append(event)
    for component, (first, *others) in writers.items():
        for other in others:
            if not any((a(first) and b(other)) or (a(other) and b(first)) for a, b, _ in EXCEPTIONS):
                yield f"{_named(parts[component])} is written by the events {first['id']} and {other['id']}"


def _keeping(parts: Mapping[int, Any]) -> Iterator[str]:
    for part in parts.values():
        if part["type"] == "state":
            yield f"{_named(part)} is kept by the server, which does not know what the browser shows"


def _losing(events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        if event["trigger_after"] is not None:
            yield f"the event {event['id']} follows another, beside whatever comes meanwhile"
        if event["queue"]:
            yield f"the event {event['id']} uses the queue, whose stream may lose its answer"
        if event["backend_fn"] and event["trigger_mode"] != "always_last":
            yield f"the event {event['id']} is {event['trigger_mode']}: dropped or overtaken while one is answered"


def _named(part: Mapping[str, Any]) -> str:
    props = part["props"]
    name = props.get("label") or props.get("elem_id") or props.get("value") or ""
    return f"{part['type']} {part['id']} ({name})"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """All pages, as a browser is told of them."""
    url = f"sqlite:///{tmp_path_factory.mktemp('home') / 'fsd.db'}"
    upgrade(url)
    database = open_database(url)
    yield built(lambda: build_pages(Repository(database), Settings(access="password"))).get_config_file()
    database.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_a_page_shows_one_state(config: Mapping[str, Any], page: Any) -> None:
    assert faults(config, page.path) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_a_page_asks_by_one_event_and_its_header_by_another(config: Mapping[str, Any], page: Any) -> None:
    own = config["page"][page.path]["dependencies"]
    asking = [one for one in config["dependencies"] if one["id"] in own and one["targets"] and one["backend_fn"]]
    assert len(asking) == 2


def test_what_is_for_programs_is_built_on_no_page(config: Mapping[str, Any]) -> None:
    parameters = {part["id"] for part in config["components"] if part["type"] == "api"}
    endpoints = {one["id"] for one in config["dependencies"] if not one["targets"]}
    assert len(parameters) > len(endpoints) > 20
    for page in config["page"].values():
        assert parameters.isdisjoint(page["components"])
        assert parameters.isdisjoint(child["id"] for child in page["layout"]["children"])
        assert endpoints.isdisjoint(page["dependencies"])


def test_no_field_leaves_its_range_to_gradio(config: Mapping[str, Any]) -> None:
    """It would refuse a number without the name of its field, and log a traceback. Our handlers name the field."""
    numbers = [part for part in config["components"] if part["type"] in ("number", "slider")]
    assert len(numbers) > 20
    bounded = [part for part in numbers if {part["props"].get("minimum"), part["props"].get("maximum")} != {None}]
    assert [_named(part) for part in bounded] == []


def test_every_exception_is_needed_and_has_its_reason(config: Mapping[str, Any]) -> None:
    for *writers, reason in EXCEPTIONS:
        assert len(reason) > 80
        for writes in writers:
            assert any(writes(event) for event in config["dependencies"])


def _endpoint(text: str) -> int:
    return len(text)


def _two_writers() -> None:
    text, button, clock = gr.Textbox(label="Text"), gr.Button(), gr.Timer()
    button.click(str, None, text, **CHOICE_EVENT)
    clock.tick(str, None, text, **CHOICE_EVENT)


def _a_script_and_a_writer() -> None:
    text, button = gr.Textbox(label="Text"), gr.Button()
    button.click(str, None, text, **CHOICE_EVENT)
    button.click(None, None, text, js="() => 'x'", **PRIVATE_EVENT)


def _two_scripts_that_hear() -> None:
    text, button = gr.Textbox(label="Text"), gr.Button()
    for _ in range(2):
        button.click(None, None, text, js="() => window.fsd.hear()", **PRIVATE_EVENT)


def _a_script_and_one_that_counts() -> None:
    text, button = gr.Textbox(label="Text"), gr.Button()
    for js in ("() => window.fsd.count()", "() => 'x'"):
        button.click(None, None, text, js=js, **PRIVATE_EVENT)


def _state() -> None:
    gr.State(1)


def _step() -> None:
    gr.Button().click(None, js="() => []", **PRIVATE_EVENT).then(str, None, gr.Textbox(), **CHOICE_EVENT)


def _on_success() -> None:
    gr.Button().click(str, None, gr.Textbox(), **CHOICE_EVENT).success(None, js="() => []", **PRIVATE_EVENT)


def _once() -> None:
    gr.Button().click(str, None, gr.Textbox(), **PRIVATE_EVENT)


def _multiple() -> None:
    gr.Button().click(str, None, gr.Textbox(), trigger_mode="multiple", **PRIVATE_EVENT)


def _queued() -> None:
    queued: dict[str, Any] = CHOICE_EVENT | {"queue": True}
    gr.Button().click(str, None, gr.Textbox(), **queued)


@pytest.mark.parametrize(
    ("add", "found"),
    [
        (_two_writers, "is written by the events"),
        (_a_script_and_a_writer, "is written by the events"),
        (_two_scripts_that_hear, "is written by the events"),
        (_a_script_and_one_that_counts, "is written by the events"),
        (_state, "is kept by the server"),
        (_step, "follows another"),
        (_on_success, "follows another"),
        (_once, "is once"),
        (_multiple, "is multiple"),
        (_queued, "uses the queue"),
    ],
)
def test_a_page_that_could_lose_something_is_found(add: Callable[[], None], found: str) -> None:
    def build() -> gr.Blocks:
        with gr.Blocks(analytics_enabled=False) as blocks:
            gr.api(_endpoint)
            add()
        return blocks

    (fault,) = faults(built(build).get_config_file(), "")
    assert found in fault
