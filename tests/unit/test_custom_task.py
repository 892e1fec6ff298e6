"""Tasks of one's own: how they are kept, found, scored and offered to a pair."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import resource
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from starlette.requests import Request

from dashboard.web import calls_of
from fsd_core.accounts import KEY
from fsd_core.errors import DataDamaged, InvalidSetting, OutOfRange, Refused, UnknownChoice, UnknownName
from fsd_core.models.model_pairs import ADAPTED, DRAFTED, MODEL_PAIRS, get_pair
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import TaskRow
from fsd_core.tasks import TASKS, Example, get_task
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
    suits,
)
from fsd_core.tasks.custom.reading import check
from fsd_core.tasks.custom.scorers import SCORERS, get_scorer


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
    assert [re.split("[:,]", sentence)[0] for sentence in told] == [
        "The task name 'Bad Name' cannot be used",
        "broken.jsonl has 1 problem. The file is no JSON",
    ]
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


def test_the_folder_takes_files_as_people_have_them(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "Tickets 2026.csv").write_text("question;answer\nWhat is 1 + 1?;2\n")
    (tmp_path / "sums.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "2 + 3 = ?", "reference": 5}\n'))
    (tmp_path / "sums.json").write_text('[{"prompt": "3 + 3 = ?", "reference": 6}]')
    (tmp_path / "notes.md").write_text("# Nothing of it")
    (tmp_path / ".hidden.csv").write_text("question\nWhat?\n")
    folder = TaskFolder(tmp_path)
    assert folder.take_in(repository) == ("sums.jsonl.gz would be the same task as sums.json: rename one of them.",)
    assert {view.name: view.scorer for view in repository.task_versions()} == {
        "tickets-2026": "number",
        "sums": "number",
    }
    (tmp_path / "sums.json").unlink()
    assert folder.take_in(repository) == ()
    assert len(repository.task_versions("sums")) == 2


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


def outcome(name: str, reference: str, text: str, stop_reason: str = "eos") -> str:
    scorer = get_scorer(name)
    return scorer.judge(text, Example("one", "?", scorer.read(reference)), stop_reason).outcome


@pytest.mark.parametrize(
    ("name", "reference", "right", "wrong"),
    [
        ("number", "1,200.0", ["The answer is $1200.", "#### 1200"], ["1201", "no idea"]),
        ("number", "1/2", ["It is 0.5", "\\boxed{\\frac{1}{2}}"], ["1"]),
        ("choice", "b", ["B", "The answer is (B)."], ["A", "I do not know."]),
        ("exact", "Paris ", ["Paris", "\n Paris\n"], ["paris", "Paris.", "In Paris"]),
        ("contains", "New  York", ["it is new york, of course", "NEW\nYORK"], ["newyork", ""]),
        ("contains", "STRASSE", ["Straße"], ["Strase"]),
        ("regex", r"(?i)\border-\d{4}\b", ["See Order-1234.", "order-0000"], ["order-12345", "order-12"]),
        ("regex", r"^yes", ["yes, it is"], ["oh yes", "Yes"]),
        ("regex", r"\p{Lu}{3}", ["ÄÖÜ"], ["abc"]),
    ],
)
def test_right_and_wrong(name: str, reference: str, right: list[str], wrong: list[str]) -> None:
    assert [outcome(name, reference, text) for text in right] == ["correct"] * len(right)
    assert [outcome(name, reference, text) for text in wrong] == ["wrong"] * len(wrong)


def test_a_text_that_was_cut_off_before_its_answer_is_truncated_and_not_wrong() -> None:
    for name, reference in (("number", "7"), ("choice", "C"), ("exact", "x"), ("contains", "x"), ("regex", "x")):
        assert outcome(name, reference, "let me think", "length") == "truncated"
    assert outcome("exact", "x", "x", "length") == "truncated"  # it may have gone on
    assert outcome("contains", "x", "an x in it", "length") == outcome("regex", "x", "x", "context") == "correct"


def test_without_a_scorer_nothing_is_right_or_wrong() -> None:
    assert outcome("none", "", "anything") == "unscored"
    assert [name for name, scorer in SCORERS.items() if not scorer.needs_reference] == ["none"]


def test_an_expression_takes_time_in_proportion_to_the_text() -> None:
    """A backtracking engine would never end here."""
    assert outcome("regex", "(a+)+$", "a" * 30_000 + "!") == "wrong"
    assert outcome("regex", "(?:a?b?){1000}z", "ab" * 10_000) == "wrong"
    assert outcome("regex", "(a+)+$", "aaa\n") == "correct"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a{1000000000}b", "repeats more often than 1,000"),
        ("a{1001}b", "RE2 .invalid repetition"),
        ("((a{100}){100}){100}b", "RE2 .invalid repetition"),
        (".{1000}" * 100 + "b", "RE2 .pattern too large"),
        (r"\p{L}{1000}b", "RE2 .pattern too large"),
        ("(?=a)b", r"RE2 .invalid perl operator: \(\?="),
        (r"(a)\1", "RE2 .invalid escape"),
        (r"\bétude\b", r"\\b beside letters"),
        ("a\ud800", "half a character"),
    ],
)
def test_what_could_take_all_memory_or_is_not_known_is_a_sentence(pattern: str, why: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=why):
        get_scorer("regex").read(pattern)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kilobytes


def test_an_unknown_scorer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownChoice):
        get_scorer("bleu")


SHIPPED = {"arithmetic", "everyday", "short-problems"}


@pytest.fixture
def _no_files(data_folder: Path) -> None:
    """A fresh installation."""


def names(pair: str) -> list[str]:
    return [task.name for task in offered(get_pair(pair))]


@pytest.mark.usefixtures("_no_files")
@pytest.mark.parametrize("pair", [*MODEL_PAIRS, "hub:a/b+c/d"])
def test_every_pair_begins_with_a_task_that_ships_and_suits_it(pair: str) -> None:
    spec = get_pair(pair)
    assert set(spec.tasks) <= set(TASKS)
    assert spec.tasks[0] == names(pair)[0] == kept_or_first(None, spec)
    assert get_task(spec.tasks[0]).available
    assert suits("everyday", spec) is not spec.narrow
    assert suits("arithmetic", spec) is pair.startswith("bundled")


@pytest.mark.usefixtures("_no_files")
def test_what_suits_comes_first_and_nothing_is_withheld(data_folder: Path) -> None:
    assert names("bundled") == ["arithmetic", "everyday", "short-problems"]
    assert names(DRAFTED) == ["everyday", "short-problems", "arithmetic"]
    (data_folder / "math_word" / "SVAMP").mkdir(parents=True)
    (data_folder / "math_word" / "SVAMP" / "test.json").write_text("[]")
    assert names(ADAPTED) == ["short-problems", "svamp", "everyday", "arithmetic"]
    assert names("qwen2.5-7b") == ["everyday", "short-problems", "svamp", "arithmetic"]


@pytest.mark.usefixtures("_no_files")
def test_a_task_stays_where_it_suits_and_is_there() -> None:
    assert kept_or_first("arithmetic", get_pair(DRAFTED)) == "everyday"
    assert kept_or_first("arithmetic", get_pair(ADAPTED)) == "short-problems"
    assert kept_or_first("everyday", get_pair("bundled")) == "arithmetic"
    assert kept_or_first("short-problems", get_pair("qwen2.5-7b")) == "short-problems"
    assert kept_or_first("gsm8k", get_pair("qwen2.5-7b")) == "everyday"  # its files are missing
