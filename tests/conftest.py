"""Fixtures that several tests share: a home, the command line, a database, a toy pair, a real PostgreSQL."""

from __future__ import annotations

import os
import sys

# Before torch is loaded. Of several threads, all wait for the one that a busy machine has set aside.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import dashboard  # noqa: F401 - before a test imports Gradio, which is quicker then
from fsd_core.cli.commands import main
from fsd_core.settings import get_settings
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from tests.tools import commands_once  # noqa: F401 - before a test calls a command
from tests.tools.repeated import pytest_runtest_setup  # noqa: F401 - a hook

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell has it for what runs behind; children would as well
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as nohup has it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

if TYPE_CHECKING:
    from fsd_core.models.loading import LoadedPair

pytest_plugins = ["tests.tools.quick", "tests.tools.seconds"]
MEMORY = Path("/dev/shm")
ROOM = 6 << 30  # bytes: three times what the tests have at once


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders are in memory where there is room: a busy disk makes SQLite wait at every commit."""
    roomy = MEMORY.is_dir() and min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ROOM
    if config.option.basetemp is None and roomy:
        config.option.basetemp = tempfile.mkdtemp(prefix="fsd-tests-", dir=MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded stays: to look through it for rubbish, again and again, is a fifth of what loading it takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A file is one process's, and so is all that needs a browser: one Chromium, and one application for each way to
    serve it."""
    from xdist.scheduler import LoadFileScheduling

    class Rooms(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/ui" if nodeid.startswith("tests/ui/") else super()._split_scope(nodeid)

    return Rooms(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a browser or a process may be repeated once, and the last lines say what was."""
    for item in items:
        if item.get_closest_marker("ui") or item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    repeated = terminalreporter.stats.get("rerun", [])
    terminalreporter.section("repeated")
    for report in repeated:
        crash = getattr(report.longrepr, "reprcrash", None)
        terminalreporter.line(f"{report.nodeid}: {crash.message.splitlines()[0] if crash else report.longrepr}")
    terminalreporter.line(f"{len(repeated)} tests were repeated once.")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, as FSD_HOME."""
    folder = tmp_path / "home"
    monkeypatch.setenv("FSD_HOME", str(folder))
    return folder


@pytest.fixture
def call(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Runs a command in this process, in the test's home; returns status, standard output and standard error."""
    monkeypatch.setenv("FSD_HOME", str(home))

    def run(*arguments: str) -> tuple[int, str, str]:
        get_settings.cache_clear()
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    yield run
    get_settings.cache_clear()


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of benchmark files of the test's own, as FSD_DATA_DIR; tasks forget what they have read."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSD_DATA_DIR", str(folder))
        _forget_files()
        yield folder
    _forget_files()


def _forget_files() -> None:
    """Files are read once in a process."""
    get_settings.cache_clear()
    readers = ("fsd_core.tasks.", "fsd_plugins.code.livecodebench", "fsd_plugins.code.programs")
    for module in [module for name, module in sys.modules.items() if name.startswith(readers)]:
        for value in vars(module).values():
            if hasattr(value, "cache_clear") and value is not get_settings:
                value.cache_clear()


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a saved toy pair."""
    from fsd_core.testing import save_toy_pair

    return save_toy_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    """A toy pair in memory."""
    from fsd_core.testing import toy_pair

    return toy_pair()


@pytest.fixture
def database_url(home: Path) -> str:
    """A SQLite file that does not exist yet."""
    return f"sqlite:///{home / 'fsd.db'}"


@pytest.fixture
def repository(database_url: str) -> Iterator[Repository]:
    """A repository on the fresh database at ``database_url``, which a test module may set to another server's."""
    upgrade(database_url)
    database = open_database(database_url)
    yield Repository(database)
    database.close()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of the tests' own, on a free port of the loopback interface."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    search = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    initdb, pg_ctl = shutil.which("initdb", path=search), shutil.which("pg_ctl", path=search)
    if not (initdb and pg_ctl):
        pytest.skip("needs PostgreSQL's initdb and pg_ctl")
    home = Path(tempfile.mkdtemp(prefix="fsd-postgres-"))
    prefix: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(home, "postgres")
        prefix = ["runuser", "-u", "postgres", "--"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(*command: str) -> None:
        subprocess.run([*prefix, *command], cwd=home, check=True, stdout=subprocess.DEVNULL, timeout=60)

    data = str(home / "data")
    try:
        run(initdb, "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={home} -c fsync=off"
        run(pg_ctl, "-D", data, "-l", str(home / "log"), "-w", "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
