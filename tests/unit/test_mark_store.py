"""Marks on outputs: each person's own, replaced and taken back, and gone with their run."""

from __future__ import annotations

import pytest

from fsd_core.errors import OutOfRange, UnknownChoice, UnknownName
from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished


@pytest.fixture
def run(repository: Repository) -> str:
    return repository.experiment(add_finished(repository, limit=3)).runs[0].id


def told(repository: Repository, run: str) -> list[tuple[int, str, str | None, str]]:
    return [(mark.position, mark.who, mark.verdict, mark.note) for mark in repository.marks([run])]


def test_each_person_has_one_mark_on_an_output(repository: Repository, run: str) -> None:
    repository.mark(run, 1, "Ann", "good")
    repository.mark(run, 1, "Bob", "bad", "wrong unit")
    repository.mark(run, 1, "Ann", None, "on second thoughts")
    assert sorted(told(repository, run)) == [(1, "Ann", None, "on second thoughts"), (1, "Bob", "bad", "wrong unit")]
    repository.mark(run, 1, "Bob", None)
    repository.mark(run, 2, "Bob", None)
    assert told(repository, run) == [(1, "Ann", None, "on second thoughts")]
    assert repository.marks(["0" * 32]) == []


def test_what_is_no_output_or_no_mark_is_refused(repository: Repository, run: str) -> None:
    for output in ((run, 3), (run, -1), ("0" * 32, 0)):
        with pytest.raises(UnknownName):
            repository.mark(*output, "Ann", "good")
    with pytest.raises(UnknownChoice, match="good or bad"):
        repository.mark(run, 0, "Ann", "<script>")
    with pytest.raises(OutOfRange, match="10,001"):
        repository.mark(run, 0, "Ann", None, "x" * 10_001)
    assert told(repository, run) == []


def test_marks_go_with_their_run(repository: Repository, run: str) -> None:
    repository.mark(run, 0, "Ann", "bad")
    repository.delete_run(run)
    assert repository.marks([run]) == []
