"""Features beside the core: which are in use, what each adds, and the core without any of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import APIRouter, FastAPI

import fsd_plugins
from dashboard.server.api import OpenRoutes
from fsd_core import plugins
from fsd_core.actions.action import actions_in
from fsd_core.errors import Misconfigured
from fsd_core.plugins import Plugin, folders, parts
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.tasks import TASKS

ROOT = Path(__file__).parents[2]
NAMES = [plugin.name for plugin in fsd_plugins.PLUGINS]


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    for cached in (plugins.plugins, folders):
        cached.cache_clear()
    yield
    for cached in (plugins.plugins, folders):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("value", "names"),
    [("", NAMES), ("all", NAMES), ("none", []), ("notices, theory", ["notices", "theory"])],
)
def test_the_variable_says_which_are_in_use(monkeypatch: pytest.MonkeyPatch, value: str, names: list[str]) -> None:
    monkeypatch.setenv("FSD_PLUGINS", value)
    assert [plugin.name for plugin in plugins.plugins()] == names


def test_a_name_that_there_is_not_is_told_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSD_PLUGINS", "theory, <b>")
    with pytest.raises(Misconfigured, match="names '<b>': expected all, none, or some of reports, theory, workspaces"):
        plugins.plugins()


def test_every_door_that_a_feature_names_is_there() -> None:
    assert [page.path for page in parts("page")] == ["reports", "theory"]
    assert [section.__name__ for section in parts("sections", "runs")] == ["ImportPanel"]
    assert [section.__name__ for section in parts("sections", "compare")] == ["ReportForm"]
    assert [action.name for module in parts("actions") for action in actions_in(module)] == [
        "list_reports", "read_report",
    ]  # fmt: skip
    (links,) = parts("links", "runs")
    assert [links(Person("Ann", role)) for role in ("reviewer", "admin")] == [
        [], [("export/workspace.zip", "Export everything")],
    ]  # fmt: skip
    assert {door.__module__ for door in (*parts("commands"), *parts("service"))} == {
        "fsd_plugins.reports.commands", "fsd_plugins.workspaces.commands",
        "fsd_plugins.results.commands", "fsd_plugins.notices.commands", "fsd_plugins.notices.notifier",
        "fsd_plugins.training.commands",
    }  # fmt: skip
    assert folders() == tuple(ROOT / "fsd_plugins" / name for name in ("reports", "theory", "results"))
    for name in NAMES:
        assert (ROOT / "fsd_plugins" / name / "README.md").read_text(encoding="utf-8").startswith(f"# {name.title()}\n")


def test_tasks_of_features_stand_with_those_that_have_answers() -> None:
    (programs,) = parts("tasks")
    names, offered = [task.name for task in programs], list(TASKS)
    place = offered.index("humaneval")
    assert offered[place : place + len(names)] == names
    assert (offered[place - 1], offered[place + len(names)]) == ("gpqa-diamond", "mt-bench")


def test_another_package_brings_a_feature_too(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Plugin("other", actions="fsd_core.actions.kept")
    monkeypatch.setattr(plugins, "_loaded", lambda: (other,))
    assert plugins.plugins()[-1] is other
    assert parts("actions")[-1].__name__ == "fsd_core.actions.kept"


def test_the_addresses_of_a_feature_are_let_in_for_their_methods_alone() -> None:
    router = APIRouter(prefix="/more")
    router.add_api_route("/{name}.csv", list, methods=["GET"])
    router.add_api_route("/{name}", list, methods=["PUT"])
    within = OpenRoutes(FastAPI(), ["runs"], routes=router.routes)

    def is_open(method: str, path: str) -> bool:
        return within.is_open({"type": "http", "method": method, "path": path, "query_string": b""})

    assert is_open("GET", "/more/a.csv")
    assert is_open("PUT", "/more/a")
    assert not is_open("POST", "/more/a.csv")
    assert not is_open("GET", "/more/a")
    assert not is_open("GET", "/more/a/b.csv")
    assert not is_open("GET", "/more/a.csv/runs")


def test_whoever_may_fetch_the_workspace_is_told_of_it_on_a_space_that_forgets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (note,) = parts("note")
    assert note(Settings(home=tmp_path)) == ""
    monkeypatch.setenv("SPACE_ID", "ann/lab")
    monkeypatch.setenv("SPACE_HOST", "ann-lab.hf.space")
    assert note(Settings(home=tmp_path)) == "An admin takes all of it along as one file, on the page Runs."


NAMED = r"Reports|reports\?|[Aa] report|save-report"
"""what a page says of reports"""


@pytest.mark.parametrize("features", ["none", pytest.param("theory", marks=pytest.mark.wide)])
def test_the_core_works_without_them(tmp_path: Path, features: str) -> None:
    code = (
        "import re, sys\nfrom dashboard.web import PAGES, all_actions, build_app\n"
        "from fastapi.testclient import TestClient\nfrom fsd_core.cli.commands import application\n"
        "from fsd_core.settings import get_settings\nfrom fsd_core.worker.run_actions import open_repository\n"
        "repository = open_repository(get_settings())\n"
        "client = TestClient(build_app(repository, get_settings()), 'http://127.0.0.1')\n"
        "doors = 'export/review.csv', 'export/workspace.zip', 'export/report.html', 'export/report.svg', 'reports'\n"
        "print([client.get(f'/{it}').status_code for it in doors])\napplication()\n"
        "loaded = sorted({name.split('.')[1] for name in sys.modules if name.startswith('fsd_plugins.')})\n"
        "from tests.tools.plausible import add_finished\nexperiment = add_finished(repository, 'Knee', limit=3)\n"
        "compared = client.get(f'/compare?experiment={experiment}').text\n"
        "texts = [compared, *(client.get(f'/{page.path}').text for page in PAGES), client.get('/reference').text]\n"
        f"print('export/comparison.csv' in compared, [found for it in texts for found in re.findall({NAMED!r}, it)])\n"
        "print([it.name for it in application().registered_commands])\n"
        "print([page.title for page in PAGES])\nprint([it.name for it in application().registered_groups])\n"
        "print([it.name for it in all_actions()])\nprint(loaded)"
    )
    environment = os.environ | {"FSD_HOME": str(tmp_path), "FSD_PLUGINS": features, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    doors, texts, commands, pages, groups, calls, loaded = answer.stdout.splitlines()[-7:]
    assert doors == "[200, 404, 404, 404, 404]"
    assert texts == "True []"
    assert "'runs'" in commands
    assert "'export'" not in commands
    assert ("Theory" in pages) is (features == "theory")
    assert "Reports" not in pages
    assert "'db'" in groups
    assert "'train'" not in groups
    assert "'reports'" not in groups
    assert "'list_views'" in calls
    assert "report'" not in calls
    assert loaded == ("['theory']" if features == "theory" else "[]")


def test_the_pages_have_the_style_sheets_of_features(tmp_path: Path) -> None:
    code = "from dashboard.ui.page import STYLE_SHEETS; print('.report-facts' in STYLE_SHEETS)"
    for features, expected in (("reports", "True"), ("theory", "False")):
        environment = os.environ | {"FSD_HOME": str(tmp_path), "FSD_PLUGINS": features, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code]
        answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert answer.stdout.strip() == expected
