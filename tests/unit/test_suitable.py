"""Which task a pair begins with, and which it is offered first."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsd_core.models.model_pairs import ADAPTED, DRAFTED, MODEL_PAIRS, get_pair
from fsd_core.tasks import TASKS, get_task
from fsd_core.tasks.custom.custom_task import kept_or_first, offered, suits

SHIPPED = {"arithmetic", "everyday", "short-problems"}


@pytest.fixture(autouse=True)
def _no_files(data_folder: Path) -> None:
    """A fresh installation."""


def names(pair: str) -> list[str]:
    return [task.name for task in offered(get_pair(pair))]


@pytest.mark.parametrize("pair", [*MODEL_PAIRS, "hub:a/b+c/d"])
def test_every_pair_begins_with_a_task_that_ships_and_suits_it(pair: str) -> None:
    spec = get_pair(pair)
    assert set(spec.tasks) <= set(TASKS)
    assert spec.tasks[0] == names(pair)[0] == kept_or_first(None, spec)
    assert get_task(spec.tasks[0]).available
    assert suits("everyday", spec) is not spec.narrow
    assert suits("arithmetic", spec) is pair.startswith("bundled")


def test_what_suits_comes_first_and_nothing_is_withheld(data_folder: Path) -> None:
    assert names("bundled") == ["arithmetic", "everyday", "short-problems"]
    assert names(DRAFTED) == ["everyday", "short-problems", "arithmetic"]
    (data_folder / "math_word" / "SVAMP").mkdir(parents=True)
    (data_folder / "math_word" / "SVAMP" / "test.json").write_text("[]")
    assert names(ADAPTED) == ["short-problems", "svamp", "everyday", "arithmetic"]
    assert names("qwen2.5-7b") == ["everyday", "short-problems", "svamp", "arithmetic"]


def test_a_task_stays_where_it_suits_and_is_there() -> None:
    assert kept_or_first("arithmetic", get_pair(DRAFTED)) == "everyday"
    assert kept_or_first("arithmetic", get_pair(ADAPTED)) == "short-problems"
    assert kept_or_first("everyday", get_pair("bundled")) == "arithmetic"
    assert kept_or_first("short-problems", get_pair("qwen2.5-7b")) == "short-problems"
    assert kept_or_first("gsm8k", get_pair("qwen2.5-7b")) == "everyday"  # its files are missing
