"""docs/deploy.md and the image: what they set and start is run here, and is closed without settings."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

from fsd_core import system
from fsd_core.accounts import FIRST_ADMIN, ensure_admin
from fsd_core.errors import InvalidSetting
from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_plugins.workspaces.exporting import export
from tests.tools import plausible
from tests.tools.documents import ROOT, Command, blocks, commands
from tests.tools.forked import ForkedApp
from tests.tools.raw_http import send_request
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import free_port, until

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


@pytest.mark.processes
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


@pytest.mark.processes
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


@pytest.mark.processes
def test_the_proxy_passes_on_what_the_app_goes_by() -> None:
    passed = set(re.findall(r"proxy_set_header ([\w-]+)", shown("nginx")))
    assert passed == {"Host", "X-Forwarded-Proto", "X-Forwarded-For"}
    assert f"127.0.0.1:{Settings.model_fields['port'].default}" in shown("nginx")


DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IMAGE_PAGE = {"Accept": "text/html"}


def environment_of_the_image() -> dict[str, str]:
    lines = re.findall(r"^ENV (.*)$", DOCKERFILE, re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


def command_of_the_image() -> list[str]:
    (command,) = re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)
    return json.loads(command)


class Container:
    """The image's environment and command. ``data`` is what is mounted at /data.

    Its worker is ours, by its lock, as one that somebody has started: to start another takes seconds of a processor.
    """

    def __init__(self, folder: Path) -> None:
        self.data, self.folder, self.port = folder / "data", folder, free_port(7900)
        self.url = f"http://127.0.0.1:{self.port}"
        self.started: list[ForkedApp] = []
        self.data.mkdir()
        worker = system.acquire(self.data / "worker.lock")
        assert worker is not None
        worker.write_metadata(pid=os.getpid(), supervised=False)
        self.worker = worker

    def environment(self, **more: str) -> dict[str, str]:
        image = {name: re.sub("^/data", str(self.data), value) for name, value in environment_of_the_image().items()}
        machine = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": str(ROOT)}
        own = {"FSD_PORT": str(self.port), "FSD_THREADS": "1", "FSD_MLFLOW_UI": "false"}
        return image | machine | own | more

    def start(self, **more: str) -> ForkedApp:
        python, script, *arguments = command_of_the_image()
        assert (python, script) == ("python", "app.py")
        process = ForkedApp(self.environment(**more), self.folder / f"{len(self.started)}.out", *arguments)
        self.started.append(process)
        return process

    def ready(self, **more: str) -> str:
        """Starts it; what it has said once it answers."""
        process = self.start(**more)
        output = process.output
        until(lambda: process.poll() is not None or (output.exists() and "is ready" in output.read_text()), "an answer")
        assert process.poll() is None, output.read_text()
        return output.read_text()

    def stop(self) -> None:
        self.started[-1].terminate()
        assert self.started[-1].wait(PATIENCE) == 0

    def sign_in(self, password: str, **headers: str) -> tuple[int, str]:
        """The status and the cookie."""
        body = urlencode({"name": FIRST_ADMIN, "password": password}).encode()
        headers |= {"Content_Type": "application/x-www-form-urlencoded"}
        status, answer, _ = send_request(self.url, "POST", "/login", body, **headers)
        return status, answer.get("set-cookie", "")

    def page(self, cookie: str = "") -> tuple[int, str]:
        """The status of the first page, and where it leads or what it is."""
        signed_in = {"Cookie": cookie.partition(";")[0]} if cookie else {}
        status, headers, body = send_request(self.url, "GET", "/", **IMAGE_PAGE, **signed_in)
        return status, headers.get("location", "") or body.decode()


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    container = Container(tmp_path)
    yield container
    for process in container.started:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE)
    container.worker.close()


@pytest.mark.wide
@pytest.mark.processes
def test_without_settings_people_sign_in_with_a_password_that_is_printed_once(container: Container) -> None:
    said = container.ready()
    (password,) = re.findall(rf"Sign in as {FIRST_ADMIN} with the password (\S+)$", said, re.MULTILINE)
    assert container.page() == (303, "/login?next=/")
    assert send_request(container.url, "GET", "/gradio_api/info")[0] == 401
    assert b'type="password"' in send_request(container.url, "GET", "/login", **IMAGE_PAGE)[2]
    assert container.sign_in(password + "x")[0] == 403
    status, cookie = container.sign_in(password)
    assert (status, "Secure" in cookie, "HttpOnly" in cookie) == (303, False, True)
    assert container.page(cookie)[0] == 200
    people = open_database(f"sqlite:///{container.data / 'fsd.db'}")
    assert [(user.name, user.role) for user in Repository(people).users()] == [(FIRST_ADMIN, "admin")]
    people.close()
    for header in ({"X_Forwarded_Proto": "https"}, {"Origin": container.url.replace("http:", "https:")}):
        assert "Secure" in container.sign_in(password, **header)[1], header
    container.stop()

    again = container.ready()
    assert "password" not in again
    assert container.page(cookie)[0] == 200  # and who was signed in still is
    assert container.sign_in(password)[0] == 303


@pytest.mark.wide
@pytest.mark.processes
def test_a_password_in_a_file_is_taken_and_not_printed(container: Container, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("correct horse battery\nsecond line\n")
    said = container.ready(FSD_ADMIN_PASSWORD_FILE=str(file))
    assert "correct horse" not in said
    assert said.count("\n") == 1
    assert container.sign_in("correct horse battery")[0] == 303
    assert container.sign_in("second line")[0] == 403


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"FSD_ACCESS": "none"}, "so others reach this port, and FSD_ACCESS is none, so each of them could do"),
        ({"FSD_ACCESS": ""}, "so others reach this port, and FSD_ACCESS is none, so each of them could do"),
        ({"FSD_ADMIN_PASSWORD_FILE": "/nowhere/password"}, "The file /nowhere/password cannot be read (No such file"),
        (
            {"FSD_ACCESS": "none", "FSD_UNPROTECTED": "true", "FSD_ADMIN_PASSWORD_FILE": "/nowhere/password"},
            "FSD_ADMIN_PASSWORD_FILE is set, and FSD_ACCESS is none, so nobody signs in with a password: set",
        ),
    ],
)  # fmt: skip
def test_half_a_word_opens_nothing(container: Container, variables: dict[str, str], sentence: str) -> None:
    said, _ = container.start(**variables).communicate(PATIENCE)
    assert container.started[-1].returncode == 2
    assert said.startswith("error: ")
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.processes
def test_only_an_explicit_word_opens_it(container: Container) -> None:
    said = container.ready(FSD_ACCESS="none", FSD_UNPROTECTED="true")
    assert "password" not in said
    assert container.page()[0] == 200
    assert send_request(container.url, "GET", "/gradio_api/info")[0] == 200


def test_fetched_models_lie_in_the_volume(container: Container) -> None:
    """Those that our own folder keeps, and those in the cache of the hub's library."""
    code = (
        "from huggingface_hub.constants import HF_HUB_CACHE\n"
        "from fsd_core.models.sources import models_folder\n"
        "from fsd_core.settings import get_settings\n"
        "print(HF_HUB_CACHE, models_folder(), get_settings().data_folder, sep='\\n')"
    )
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, env=container.environment(), capture_output=True, text=True, check=True).stdout
    assert [Path(line).is_relative_to(container.data) for line in told.splitlines()] == [True, True, True]
    assert "\nVOLUME /data\n" in DOCKERFILE


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"short\n", "The password has 5 characters: expected 10 to 256. Change the first line of "),
        (b"\n", "The password has 0 characters"),
        (b"x" * 300, "characters: expected 10 to 256. Change the first line of"),
        (b"\xff" * 20, r"cannot be read \(it is not UTF-8\)"),
        (None, r"cannot be read \(Is a directory\)"),
    ],
)
def test_a_file_that_holds_no_password_is_refused(
    repository: Repository, tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    file = tmp_path / "password"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(InvalidSetting, match=sentence):
        ensure_admin(repository, file)
    assert repository.users() == []


def test_nobody_is_added_where_somebody_may_sign_in(repository: Repository, tmp_path: Path) -> None:
    first = ensure_admin(repository, None)
    assert first is not None
    assert len(first) >= 20
    repository.add_user("Ann", "viewer", "hash", "test")
    repository.remove_user(FIRST_ADMIN, "test")
    assert ensure_admin(repository, None) is None
    assert ensure_admin(repository, tmp_path / "missing") is None  # nor is the file read
    assert [user.name for user in repository.users()] == ["Ann"]
