"""What stands in the HTML of a page before Gradio has drawn it."""

from __future__ import annotations

import logging
import re
from urllib.parse import parse_qsl, urlencode

import pytest
from starlette.requests import Request

from dashboard.ui.first_paint import first_paint
from dashboard.web import PAGES, Pages
from fsd_core.accounts import KEY
from fsd_core.roles import Person
from fsd_core.storage.repository import Repository
from tests.pages.test_planted_text import WHO, Planted, address, harmful, hostile, planted
from tests.tools.planted import DOORS
from tests.tools.plausible import add_finished
from tests.tools.shown_page import Application, Read

__all__ = ["hostile", "planted"]
ANN = Person("Ann", "author")


def shown(application: Application, path: str, person: Person = ANN, **query: str) -> Read:
    """What the page's HTML has at this address, as a browser reads it."""
    scope = {"type": "http", "headers": [], "query_string": urlencode(query).encode(), "state": {}, KEY: person}
    assert isinstance(application.blocks, Pages)
    application.forget()
    return Read(first_paint(application.blocks, application.blocks.openings, path, Request(scope)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_every_page_begins_with_its_name_and_the_way_to_the_others(
    application: Application, empty: Repository, page: object
) -> None:
    path = getattr(page, "path", "")
    read = shown(application, path)
    links = [one.attributes.get("href") for one in read.elements if one.tag == "a"]
    assert {f"./{other.path}" for other in PAGES if other.in_bar} <= set(links)
    assert any(one.tag == "h1" for one in read.elements), read.text
    assert "Nothing here" not in read.text


def test_the_first_page_has_its_answer_at_once(application: Application, empty: Repository) -> None:
    text = shown(application, "").text
    assert re.search(r"Use FSD reducible · js ≤ \d\.\d+ · γ \d+: \d\.\d × as fast as exact SD", text)
    assert "Try it on a prompt" in text


def test_a_list_has_its_rows_at_once_and_what_is_opened_its_figures(
    application: Application, empty: Repository
) -> None:
    assert "No runs yet" in shown(application, "runs").text
    run = empty.experiment(add_finished(empty, "Mine", limit=2)).runs[0]
    assert run.label in shown(application, "runs").text
    assert "Mine" in shown(application, "runs", run=run.id).text
    text = shown(application, "compare", experiment=str(run.experiment_id)).text
    assert "Setting ↕ Accuracy ↕ Points" in text
    assert "Target alone 100 – 1 baseline" in text


def test_fields_and_buttons_are_shapes_with_their_names(application: Application, empty: Repository) -> None:
    read = shown(application, "experiments")
    shapes = {one.text: one.attributes["class"] for one in read.elements if one.tag == "i"}
    assert (shapes["Model pair"], shapes["Find the setting"]) == ("first-field", "first-button")
    assert "Percent" not in shapes, "it is hidden"


def test_a_page_that_cannot_be_drawn_beforehand_shows_what_it_is_built_with(
    application: Application, empty: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(application.blocks, Pages)
    monkeypatch.setitem(application.blocks.openings, "", lambda request: 1 / 0)
    with caplog.at_level(logging.ERROR):
        assert "as fast as exact SD" in shown(application, "").text
    assert "was not drawn beforehand" in caplog.text


def test_a_large_comparison_is_not_waited_for(
    application: Application, empty: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = add_finished(empty, "Mine", limit=2)
    monkeypatch.setattr("dashboard.compare.compare_page._MOST_BEFOREHAND", 13)  # seven runs of two prompts
    text = shown(application, "compare", experiment=experiment).text
    assert "Which setting to use" in text
    assert "Target alone" not in text


@pytest.mark.parametrize("door", [door for door in DOORS if not door.startswith("nosuch")])
def test_what_is_planted_is_text_there_too(hostile: Application, planted: Planted, door: str) -> None:
    path, _, query = address(door, planted.ids).partition("?")
    read = shown(hostile, path, WHO, **dict(parse_qsl(query)))
    assert [one for one in read.elements if harmful(one)] == []
