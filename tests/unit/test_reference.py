"""The reference names every command, option, variable and column, as the program has them, and is a page for all who
may see the pages."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from fastapi.testclient import TestClient

from dashboard.compare.compared_runs import compare
from dashboard.compare.export import csv_text
from dashboard.server import api
from dashboard.web import build_app
from fsd_core import accounts
from fsd_core.cli import reference
from fsd_core.cli.commands import application
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from fsd_core.texts import markdown_html
from tests.tools import plausible
from tests.tools.built import built
from tests.unit.test_components import Reader

COMMANDS = dict(reference.commands(typer.main.get_command(application())))


@cache
def text() -> str:
    return reference.text(application())


@cache
def part(title: str) -> str:
    """What stands below a heading, up to the next of its kind or above."""
    level = title.partition(" ")[0]
    _, found, below = f"\n{text()}".partition(f"\n{title}\n")
    assert found, title
    return re.split(rf"\n#{{1,{len(level)}}} ", below)[0]


def rows(title: str) -> dict[str, str]:
    """The rows of the table below a heading: what stands in the first cell, as code, and the meaning."""
    lines = re.findall(r"^\| (`.+?`) \| (.+) \|$", part(title), re.MULTILINE)
    return {name: meaning for names, meaning in lines for name in re.findall("`([^`]+)`", names)}


def written(help: str) -> str:
    return " ".join(help.replace("|", "\\|").split())


def heading_of(path: tuple[str, ...]) -> str:
    words = re.escape(" ".join(path))
    (line,) = re.findall(rf"^### `{words}(?: [A-Z.]+)*`$", text(), re.MULTILINE)
    return line


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        application()(["docs"])
    assert (ended.value.code, capsys.readouterr().out) == (0, text())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_each_of_its_options_is_explained(path: tuple[str, ...]) -> None:
    command: Any = COMMANDS[path]
    heading = heading_of(path)
    below, everywhere = part(heading), rows("## Options of several commands")
    assert written(command.help) in below
    for argument in (param for param in command.params if param.param_type_name == "argument"):
        assert (argument.metavar or argument.name).strip("[]").upper() in heading
    for option in (param for param in command.params if param.param_type_name == "option"):
        for name in (name for name in (*option.opts, *option.secondary_opts) if name.startswith("--")):
            assert f"`{name}`" in below
            assert written(option.help or "") == (rows(heading).get(name) or everywhere[name])


def test_every_variable_is_explained() -> None:
    fields = Settings.model_fields.items()
    assert rows("## Variables") == {f"FSD_{name.upper()}": written(field.description or "") for name, field in fields}


def test_every_column_of_a_comparison_is_explained(repository: Repository) -> None:
    id = plausible.add_finished(repository, limit=3)
    comparison = compare(repository, [*(run.id for run in repository.experiment(id).runs), "gone"], None, 2.0)
    assert comparison.warnings, "the last column is theirs"
    known = rows("## Columns of a comparison as CSV")
    assert all(known.values())
    patterns = [re.escape(name).replace("…", ".+") for name in known]
    for column in next(csv.reader(io.StringIO(csv_text(comparison)))):
        assert any(re.fullmatch(pattern, column) for pattern in patterns), column


def test_as_html_it_says_the_same_and_its_links_lead_to_headings() -> None:
    page = Reader(markdown_html(text(), anchors=True))
    ids = Counter(attributes.get("id") for tag, attributes in page.elements if re.fullmatch("h[1-6]", tag))
    assert set(ids.values()) == {1}
    assert {"train-eagle-head", "options-of-several-commands", "columns-of-a-comparison-as-csv"} <= ids.keys()
    targets = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert targets <= {f"#{id}" for id in ids}
    assert len(targets) >= 4
    assert not {"em", "strong", "img"} & {tag for tag, _ in page.elements}, "a help text is no Markdown but for code"
    for field in Settings.model_fields.values():
        assert (field.description or "").replace("`", "") in page.text


def test_it_is_a_page_for_all_who_may_see_the_pages(repository: Repository, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, access="password", mlflow_ui=False)
    accounts.add_user(repository, "Eve", "viewer", "correct horse battery")
    secret = accounts.sign_in(repository, "Eve", "correct horse battery", "127.0.0.1")
    served = built(lambda: build_app(repository, settings))
    browser = TestClient(served, "http://127.0.0.1", follow_redirects=False)
    as_page = {"Accept": "text/html", "Sec-Fetch-Dest": "document"}
    led = browser.get("/reference", headers=as_page)
    assert (led.status_code, led.headers["location"]) == (303, "/login?next=/reference")
    assert browser.get("/reference").status_code == 401
    browser.cookies.set(settings.session_cookie, secret)
    page = browser.get("/reference", headers=as_page)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    read = Reader(page.text)
    assert ("a", {"href": "/"}) in read.elements
    assert ("h3", {"id": "train-eagle-head"}) in read.elements
    assert "FSD_HOME" in read.text
    assert str(tmp_path) not in page.text
    assert api._reference() is api._reference()  # made once
    assert browser.post("/reference").status_code == 404
