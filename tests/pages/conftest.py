"""All pages, built once for the session. Each test shows them over a database of its own, a copy of what takes long."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished, filled_file
from tests.tools.shown_page import Application


@pytest.fixture(scope="session")
def application(tmp_path_factory: pytest.TempPathFactory) -> Application:
    """The pages where people sign in with a password."""
    application = Application(tmp_path_factory.mktemp("home"))
    gc.collect()
    gc.freeze()  # all that the pages are made of stays
    return application


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty database."""
    return filled_file(tmp_path_factory.mktemp("nothing"), lambda repository: None)[0]


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database with a finished experiment of seven runs."""
    return filled_file(tmp_path_factory.mktemp("measured"), add_finished)[0]


@pytest.fixture
def empty(application: Application, nothing: Path) -> Repository:
    """An empty database, which the pages show."""
    return application.show(nothing)


@pytest.fixture
def repository(application: Application, measured: Path) -> Repository:
    """A database with a finished experiment, which the pages show."""
    return application.show(measured)
