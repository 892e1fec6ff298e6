"""The database of a unit test is a copy of an empty one that is migrated once; test_opening.py migrates by itself.

Programs are judged without haste.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsd_core.storage import opening
from fsd_core.storage.opening import upgrade
from fsd_core.storage.repository import Repository
from fsd_plugins.code.sandbox import judge_process
from fsd_plugins.workspaces import importing
from tests.tools.copies import copy_of
from tests.tools.plausible import add_finished, filled_file
from tests.tools.sizes import PATIENCE


@pytest.fixture(autouse=True)
def no_haste_in_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of the machine is no verdict: only the kernel's limit of processor time stops a program."""
    for limit in ("STARTING", "SPARE", "ENDING"):
        monkeypatch.setattr(judge_process, limit, PATIENCE)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty database, migrated."""
    return filled_file(tmp_path_factory.mktemp("migrated"), lambda repository: None)[0]


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database with a finished experiment."""
    return filled_file(tmp_path_factory.mktemp("measured"), add_finished)[0]


@pytest.fixture
def repository(migrated: Path, database_url: str) -> Iterator[Repository]:
    """A repository on the fresh database at ``database_url``."""
    with copy_of(migrated, database_url) as repository:
        yield repository


@pytest.fixture(autouse=True)
def quick_staging(migrated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file of today's revision is a copy of one that was migrated; test_opening.py migrates each time."""

    def copied(url: str, *, to: str | None = None) -> None:
        file = Path(url.removeprefix("sqlite:///"))
        if to == opening.head() and not file.exists():
            shutil.copyfile(migrated, file)
        upgrade(url, to=to)

    monkeypatch.setattr(importing, "upgrade", copied)
