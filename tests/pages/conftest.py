"""All pages, built once for the session. Each test shows them over a database of its own, a copy of what takes long."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from fsd_core.storage.database.repository import Repository
from tests.tools.plausible import add_finished, new_repository
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
    home = tmp_path_factory.mktemp("nothing")
    new_repository(home)._database.close()
    return home / "fsd.db"


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database with a finished experiment of seven runs."""
    home = tmp_path_factory.mktemp("measured")
    repository = new_repository(home)
    add_finished(repository)
    repository._database.close()
    return home / "fsd.db"


@pytest.fixture
def empty(application: Application, nothing: Path) -> Repository:
    """An empty database, which the pages show."""
    return application.show(nothing)


@pytest.fixture
def repository(application: Application, measured: Path) -> Repository:
    """A database with a finished experiment, which the pages show."""
    return application.show(measured)
