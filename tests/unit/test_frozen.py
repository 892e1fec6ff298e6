"""What the program shows the outside is what ``tests/frozen`` says, and what was stored long ago is as it was."""

from __future__ import annotations

import hashlib

import pytest

from tools.freeze import FOLDER, ROOT, frozen

STORED = "stored.sha256"
"""as ``sha256sum`` writes it; ``make freeze`` does not touch it"""


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    return frozen()


def test_each_file_is_written_by_the_program(shown: dict[str, str]) -> None:
    assert shown.keys() == {path.name for path in FOLDER.iterdir()} - {STORED}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir() if path.name != STORED))
def test_nothing_that_others_see_has_changed_unseen(shown: dict[str, str], name: str) -> None:
    held = (FOLDER / name).read_text(encoding="utf-8")
    assert shown[name] == held, f"tests/frozen/{name} says otherwise: run make freeze, and read its diff"


def test_stored_databases_and_workspaces_are_as_they_were() -> None:
    held = dict(reversed(line.split("  ")) for line in (FOLDER / STORED).read_text().splitlines())
    stored = [path for folder in ("golden", "data") for path in (ROOT / "tests" / folder).rglob("*") if path.is_file()]
    found = {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in stored}
    assert found == held
