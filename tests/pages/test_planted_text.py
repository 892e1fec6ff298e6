"""Text that is a program stays text on every page and in every file: what a browser would make of it is looked for."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboard.compare.export import export_routes
from dashboard.ui.templates import escape
from dashboard.web import PAGES
from fsd_core.roles import Person
from tests.tools.planted import DOORS, HOSTILE, NAME, SCRIPT, plant
from tests.tools.plausible import filled_file
from tests.tools.shown_page import Application, Element, Read, ShownPage

WHO = Person(NAME, "admin")
LIVE = frozenset("${}`")
"""what begins an expression in a template of Gradio's HTML, in the browser"""
RUNS = frozenset({"script", "iframe", "object", "embed", "base", "meta", "textarea", "style"})
"""elements that no answer of a page has, and that the planted text would open or close"""


class Planted(NamedTuple):
    file: Path
    ids: dict[str, str]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """The file of a database whose every text is hostile, and what addresses need."""
    return Planted(*filled_file(tmp_path_factory.mktemp("planted"), plant))


@pytest.fixture(scope="module")
def hostile(application: Application, planted: Planted) -> Application:
    """The pages over that database, which no test here changes."""
    application.show(planted.file)
    return application


def address(door: str, ids: Mapping[str, str]) -> str:
    return door if "%" in door else door.format(**ids)


def harmful(element: Element) -> bool:
    """Whether a browser would run it, or fetch what the planted text names."""
    values = {name: (value or "").strip().lower() for name, value in element.attributes.items()}
    return (
        element.tag in RUNS
        or any(name.startswith("on") for name in values)
        or any(value.startswith(("javascript:", "data:")) for value in values.values())
        or values.get("src") == "x"
        or ("srcdoc" in values)
    )


def everything(page: ShownPage) -> str:
    """All HTML of a page, also what is not visible now."""
    return "\n".join(str(page.values[part] or "") for part in page.built.parts if isinstance(part, gr.HTML))


@pytest.mark.parametrize("door", [door for door in DOORS if not door.startswith("nosuch")])
def test_no_page_has_what_is_planted_but_as_text(hostile: Application, planted: Planted, door: str) -> None:
    page = hostile.open(address(door, planted.ids), WHO, {"job": planted.ids["job"]})
    html = everything(page)
    assert [one for one in Read(html).elements if harmful(one)] == []
    assert not LIVE & set(html), "an expression of a template"
    assert SCRIPT in Read(str(page.html)).text, "the head of each page names who looks"
    if door.partition("?")[0] in ("", "playground", "experiments", "compare", "runs", "settings", "review", "reports"):
        assert page.text.count(SCRIPT) > 1 or "%" in door


def test_every_page_is_among_the_doors() -> None:
    assert {page.path for page in PAGES} <= {door.partition("?")[0] for door in DOORS}


def test_what_is_looked_for_is_found() -> None:
    """In the planted text as HTML, so that the tests above would see it."""
    found = {one.tag for one in Read(HOSTILE).elements if harmful(one)}
    assert found == {"script", "img", "svg", "a"}
    assert set(HOSTILE) >= LIVE
    assert [one for one in Read(f"<b>{escape(HOSTILE)}</b>").elements if harmful(one)] == []


def test_no_component_of_a_page_reads_markup_of_its_own(hostile: Application) -> None:
    """What Gradio makes of Markdown, or of a chat, is not escaped here."""
    kinds = {type(part) for page in hostile.pages.values() for part in page.parts}
    assert kinds.isdisjoint({gr.Markdown, gr.Chatbot, gr.HighlightedText, gr.Dataframe, gr.Label, gr.JSON})


@pytest.mark.parametrize("door", [door for door in DOORS if door.startswith(("compare?runs={", "runs?run={"))])
def test_names_in_figures_are_escaped(hostile: Application, planted: Planted, door: str) -> None:
    page = hostile.open(address(door, planted.ids), WHO)
    figures = [page.values[part] for part in page.built.parts if isinstance(part, gr.Plot) and page.values[part]]
    texts = [text for figure in figures for text in texts_of(json.loads(figure.to_json()))]
    assert len(texts) > 20
    assert [text for text in texts if any(harmful(one) for one in Read(text).elements)] == []


def texts_of(value: Any) -> Iterator[str]:
    """All texts in what a figure is drawn from."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from texts_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_of(one)


@pytest.fixture(scope="module")
def files(hostile: Application) -> TestClient:
    """What can be downloaded."""
    app = FastAPI()
    app.include_router(export_routes(hostile.repository))
    return TestClient(app)


def exported(files: TestClient, planted: Planted, extension: str) -> str:
    runs = f"{planted.ids['first']},{planted.ids['run']}"
    answer = files.get(f"/export/comparison.{extension}?runs={runs}&baseline={planted.ids['first']}")
    assert answer.status_code == 200
    return answer.text


def test_latex_that_is_exported_runs_no_command_that_is_planted(files: TestClient, planted: Planted) -> None:
    text = exported(files, planted, "tex")
    assert "alert" in text
    assert "\\input{x}" not in text
    assert "$" not in text.replace("\\$", "").replace("$-$", "")


def test_no_cell_that_is_exported_is_a_formula(files: TestClient, planted: Planted) -> None:
    text = exported(files, planted, "csv")
    rows = [*csv.reader(io.StringIO(text))]
    assert any(SCRIPT in cell for row in rows for cell in row)
    assert not [cell for row in rows for cell in row if cell[:1] in ("=", "+", "@")]


def test_a_page_that_is_exported_has_what_is_planted_but_as_text(files: TestClient, planted: Planted) -> None:
    text = exported(files, planted, "html")
    body = text.partition("<body")[2]
    assert SCRIPT not in body
    read = Read("<body" + re.sub("<script.*?</script>", "", body, flags=re.DOTALL))  # our own, megabytes long
    assert [one for one in read.elements if harmful(one) and "data:" not in str(one.attributes)] == []
    assert SCRIPT in read.text
