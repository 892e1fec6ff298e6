"""docs/deploy.md: its commands on a real PostgreSQL, and its unit and its proxy held against the program."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.workspace_export import export
from tests.tools import plausible
from tests.tools.documents import ROOT, Command, blocks, commands

pytestmark = pytest.mark.processes

PAGE = ROOT / "docs" / "deploy.md"
BLOCKS = blocks(PAGE)


def shown(language: str) -> str:
    (block,) = (block for block in BLOCKS if block.language == language)
    return block.text


def called(command: Command, folder: Path, url: str) -> None:
    words = [os.path.expandvars(word.replace("$FSD_DATABASE_URL", url)) for word in command.words]
    words[:1] = [sys.executable] if words[0] == "python" else words[:1]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FSD_HOME": str(folder / "home"), "FSD_DATABASE_URL": url}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command.block.place}: {shlex.join(words)}\n{done.stderr}"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An exported workspace with an experiment, as SQLite held it."""
    url = sqlite_url(tmp_path / "old.db")
    upgrade(url)
    database = open_database(url)
    plausible.add_finished(Repository(database), limit=2)
    database.close()
    export(url, tmp_path / "workspace.zip", tmp_path)
    return tmp_path


def experiments(url: str) -> list[str]:
    database = open_database(url)
    names = [experiment.name for experiment in Repository(database).experiments()]
    database.close()
    return names


@pytest.mark.wide
def test_a_team_moves_to_postgresql_backs_it_up_and_restores_it(workspace: Path, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute('CREATE DATABASE "deployed"')
    url = f"{postgres_url.rpartition('/')[0]}/deployed"
    lost = False
    for block in BLOCKS:
        for command in commands(block):
            if command.reason or not command.words or command.text.startswith("export ") or "copy.db" in command.text:
                continue
            if command.words[0] == "pg_restore":  # what the back-up is for
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("DROP TABLE jobs CASCADE")
                    connection.execute("DELETE FROM runs")
                lost = True
            if block.language == "":
                called(command, workspace, url)
    assert lost
    assert experiments(url) == experiments(sqlite_url(workspace / "old.db"))
    database = open_database(url)
    assert all(run.status == "finished" for run in Repository(database).runs(limit=None))
    database.close()


def test_the_unit_starts_the_app_with_variables_that_it_has() -> None:
    unit = shown("ini")
    assert re.search(r"^ExecStart=\S+/python app\.py$", unit, re.MULTILINE)
    pairs = [
        pair.partition("=") for line in re.findall(r"^Environment=(.+)$", unit, re.MULTILINE) for pair in line.split()
    ]
    named = {name: value for name, _, value in pairs if name.startswith("FSD_")}
    settings = Settings.model_validate({name.removeprefix("FSD_").lower(): value for name, value in named.items()})
    settings.check_access()
    assert settings.access == "password"
    assert "lab.example.org" in settings.hosts


def test_the_proxy_passes_on_what_the_app_goes_by() -> None:
    passed = set(re.findall(r"proxy_set_header ([\w-]+)", shown("nginx")))
    assert passed == {"Host", "X-Forwarded-Proto", "X-Forwarded-For"}
    assert f"127.0.0.1:{Settings.model_fields['port'].default}" in shown("nginx")
