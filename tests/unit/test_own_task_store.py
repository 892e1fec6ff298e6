"""Tasks of one's own, kept and found: versions by hash, names, the folder, and what damage is told of."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from starlette.requests import Request

from dashboard.web import calls_of
from fsd_core.accounts import KEY
from fsd_core.errors import DataDamaged, InvalidSetting, OutOfRange, Refused, UnknownName
from fsd_core.models.model_pairs import get_pair
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import TaskRow
from fsd_core.tasks.custom.custom_task import (
    CustomTask,
    TaskFolder,
    checked_name,
    find_task,
    keep,
    kept_or_first,
    latest_custom_tasks,
    offered,
    suggested_name,
)
from fsd_core.tasks.custom.reading import check


def task_of(text: str, name: str = "mine", title: str = "") -> CustomTask:
    return CustomTask.of(name, check(f'{{"prompt": "{text}"}}'.encode()), title)


def test_a_version_is_kept_once_and_the_latest_is_what_the_name_means(repository: Repository) -> None:
    first, again = (keep(repository, task_of("a"), who) for who in ("Ann", "Bob"))
    assert first.full_name == again.full_name
    assert [(view.version, view.added_by) for view in repository.task_versions()] == [(first.version, "Bob")]
    second = keep(repository, task_of("b", title="B\0"), "Ann")
    assert second.title == "B\ufffd"
    assert find_task("mine", repository).name == second.full_name
    for name in (first.full_name, first.full_name[:-8], f"mine@{first.version[:6]}"):
        found = find_task(name, repository)
        assert (found.name, found.all_examples()[0].prompt) == (first.full_name, "a")
    keep(repository, task_of("a"), "Ann")
    assert find_task("mine", repository).name == first.full_name
    assert [task.name for task in latest_custom_tasks(repository)] == [first.full_name]
    assert len(repository.task_versions("mine")) == 2


def test_the_version_is_the_sha_256_of_the_lines(repository: Repository) -> None:
    kept = keep(repository, task_of("a"), "Ann")
    content = repository.task_content("mine", kept.version)
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == kept.version
    assert content == '{"scorer": "none"}\n{"prompt": "a"}\n'


@pytest.mark.parametrize("name", ["nothing", "mine@", "mine@00000", "mine@ffffffffffffffff", "mine\0", "", "@"])
def test_an_unknown_name_is_refused_with_the_known_ones(repository: Repository, name: str) -> None:
    known = keep(repository, task_of("a"), "Ann").name
    if name == "mine@":
        assert find_task(name, repository).name.startswith("mine@")
        return
    with pytest.raises(UnknownName, match=f"expected one of arithmetic, .*, {known}"):
        find_task(name, repository)


@pytest.mark.parametrize("name", ["", "Mine", "../mine", "a/b", "a b", "a" * 41, "-a", "a@b", "arithmetic", "ü", "a\n"])
def test_a_name_is_no_path_and_none_of_the_program(name: str) -> None:
    with pytest.raises(InvalidSetting):
        checked_name(name)


def test_a_name_is_made_of_a_file(repository: Repository) -> None:
    assert suggested_name("Support Questions (2026)") == "support-questions-2026"
    assert suggested_name("../../etc") == "etc"
    assert suggested_name("a" * 100) == "a" * 40
    assert suggested_name("質問") == ""


def test_damage_is_told_and_nothing_is_measured_on_it(repository: Repository) -> None:
    kept = keep(repository, task_of("a"), "Ann")
    found = find_task("mine", repository)
    with repository._database.session() as session:
        session.execute(update(TaskRow).values(content='{"scorer": "none"}\n{"prompt": "b"}\n'))
    with pytest.raises(DataDamaged, match=f"The prompts of the task '{kept.full_name}' are damaged"):
        found.all_examples()
    with repository._database.session() as session:
        session.execute(update(TaskRow).values(content=CustomTask.content.fget(task_of("a")), scorer="number"))
    with pytest.raises(DataDamaged, match="cannot be read"):
        find_task("mine", repository).all_examples()


def test_files_of_the_folder_become_versions_and_broken_ones_are_told_of(
    repository: Repository, tmp_path: Path
) -> None:
    folder = TaskFolder(tmp_path / "tasks")
    assert folder.take_in(repository) == ()
    folder.folder.mkdir()
    mine = folder.folder / "mine.jsonl"
    mine.write_text('{"prompt": "a"}')
    (folder.folder / "Bad Name.jsonl").write_text('{"prompt": "a"}')
    (folder.folder / "broken.jsonl").write_text("x")
    (folder.folder / "notes.txt").write_text("not looked at")
    (folder.folder / "folder.jsonl").mkdir()
    told = folder.take_in(repository)
    assert [sentence.split(":")[0] for sentence in told] == [
        "The task name 'Bad Name' cannot be used", "broken.jsonl has 1 problem. Line 1",
    ]  # fmt: skip
    assert folder.take_in(repository) == told  # nothing has changed, and it is still so
    first = find_task("mine", repository).name
    mine.write_text('{"prompt": "b"}')
    os.utime(mine, ns=(1, 1))
    folder.take_in(repository)
    second = find_task("mine", repository).name
    assert [view.full_name for view in repository.task_versions("mine")] == [second, first]
    mine.write_text('{"prompt": "a"}')
    (folder.folder / "broken.jsonl").unlink()
    (folder.folder / "Bad Name.jsonl").unlink()
    assert folder.take_in(repository) == ()
    assert find_task("mine", repository).name == first


def test_the_folder_does_not_take_a_name_back_from_who_added_to_it_since(
    repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "mine.jsonl").write_text('{"prompt": "a"}')
    TaskFolder(tmp_path).take_in(repository)
    theirs = keep(repository, task_of("b"), "Ann").full_name
    TaskFolder(tmp_path).take_in(repository)  # as of a process that has just begun
    assert find_task("mine", repository).name == theirs


def test_programs_are_offered_them_and_start_experiments_on_them(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mine.jsonl").write_text('{"prompt": "a"}')
    endpoints = {one.__name__: one for one in calls_of(repository, Settings(home=tmp_path))}
    choices = {pair["pair"]: pair["tasks"] for pair in endpoints["list_choices"]()["pairs"]}
    (kept,) = repository.task_versions()
    assert kept.full_name in choices["bundled"]

    def start(role: str, **asked: Any) -> dict[str, Any]:
        request = Request({"type": "http", "state": {}, KEY: Person("Ann", role)})
        return endpoints["start_experiment"]([{"acceptance": "speculative"}], request, task="mine", **asked)

    assert [run["task"] for run in start("author", limit=1)["runs"]] == [kept.full_name]
    assert start("author", limit=1)["runs"][0]["task_version"] == kept.version
    with pytest.raises(OutOfRange):
        start("author", limit=2)
    with pytest.raises(Refused, match="author"):
        start("viewer", limit=1)


def test_pairs_are_offered_the_latest_version_behind_their_own_tasks(repository: Repository) -> None:
    old = keep(repository, task_of("a"), "Ann").full_name
    new = keep(repository, task_of("b", title="My traffic"), "Ann").full_name
    own = latest_custom_tasks(repository)
    for pair in ("bundled", "qwen2.5-7b"):
        names = [task.name for task in offered(get_pair(pair), own)]
        assert (names[0], new in names, old in names) == (get_pair(pair).tasks[0], True, False)
        assert kept_or_first(old, get_pair(pair), own) == new
        assert kept_or_first("gone@0123456789abcdef", get_pair(pair), own) == get_pair(pair).tasks[0]
    assert own[0].title == f"My traffic · {new[5:13]}"
