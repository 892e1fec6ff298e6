"""Where programs cannot be confined, the tasks that run them are refused before any work begins."""

from __future__ import annotations

import gzip
import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.tasks import get_task
from fsd_plugins.code.sandbox import confinement, judge, judge_process, refusal

TASKS = ["humaneval", "mbpp"]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    refusal.cache_clear()
    yield
    refusal.cache_clear()


@pytest.fixture(autouse=True)
def _files(data_folder: Path) -> None:
    (data_folder / "humaneval").mkdir()
    with gzip.open(data_folder / "humaneval" / "HumanEval.jsonl.gz", "wt") as stream:
        problem = {"task_id": "HumanEval/0", "entry_point": "one", "prompt": "def one():\n", "test": "",
                   "canonical_solution": "    return 1\n"}  # fmt: skip
        stream.write(json.dumps(problem) + "\n")
    (data_folder / "mbpp").mkdir()
    problem = {"task_id": 11, "text": "", "code": "", "test_setup_code": "", "test_list": []}
    (data_folder / "mbpp" / "mbpp.jsonl").write_text(json.dumps(problem) + "\n")


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "abi", lambda: 0)


def test_this_machine_can_confine_programs() -> None:
    assert refusal() is None
    assert all(get_task(name).available for name in TASKS)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.usefixtures("no_landlock")
def test_the_tasks_are_refused_and_not_offered(name: str) -> None:
    task = get_task(name)
    assert not task.available
    for use in (task.all_examples, lambda: task.examples(1), lambda: task.size):
        with pytest.raises(InvalidSetting, match=r"its kernel offers no Landlock.*choose another task\."):
            use()


@pytest.mark.usefixtures("no_landlock")
def test_no_program_is_run_without() -> None:
    with pytest.raises(InvalidSetting, match="offers no Landlock"):
        judge("", "")


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize("command", ["run", "sweep --thresholds 0.1", "sweep --thresholds 0.1 --enqueue"])
def test_the_command_line_refuses(command: str, call: Callable[..., tuple[int, str, str]]) -> None:
    name, *options = command.split()
    status, _, error = call(name, "--task", "humaneval", "--limit", "1", *options)
    assert status == 2
    assert "offers no Landlock" in " ".join(error.split())


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")])
def test_other_platforms_are_refused(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(InvalidSetting, match="not Linux on x86-64"):
        judge("", "")


def test_a_machine_on_which_nothing_runs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_process, "judged_program", lambda *_: "failed: ModuleNotFoundError: No module named 'os'")
    assert "a harmless program did not run: failed: ModuleNotFoundError" in str(refusal())


def test_a_machine_that_cannot_start_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise FsdError("It could not be.")

    monkeypatch.setattr(judge_process, "judged_program", fails)
    with pytest.raises(InvalidSetting, match="It could not be"):
        judge("", "")


def test_it_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(judge_process, "judged_program", lambda *arguments: tried.append(arguments) or "passed")
    assert [refusal(), refusal()] == [None, None]
    assert len(tried) == 1


@pytest.mark.parametrize("version", range(1, 9))
def test_each_version_of_landlock_is_asked_for_what_it_knows(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """A kernel refuses a structure that is longer than it knows, and rights that it has never heard of."""
    calls: list[tuple[Any, ...]] = []

    def syscall(number: int, *arguments: Any) -> int:
        calls.append((number, *arguments))
        return version

    monkeypatch.setattr(confinement, "_LIBC", SimpleNamespace(syscall=syscall, prctl=lambda *_: 0))
    monkeypatch.setattr(confinement.os, "close", lambda _: None)
    confinement.allow_only_reading([], [])
    _, created, restricted = calls
    attributes = created[1]
    assert len(attributes) == created[2] == {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}.get(version, 24)
    files = int.from_bytes(attributes[:8], "little")
    assert files.bit_length() == {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    assert restricted[2] == (1 if version >= 7 else 0)
