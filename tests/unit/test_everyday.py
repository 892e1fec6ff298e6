"""The everyday prompts that ship: eight kinds that take turns, and nothing that is right or wrong."""

from __future__ import annotations

import json
from collections import Counter

from fsd_core.tasks import Score, get_task
from fsd_core.tasks.open_ended import EVERYDAY

KINDS = ["question", "explanation", "summary", "rewriting", "list", "code", "dialogue", "translation"]
ROWS = [json.loads(line) for line in EVERYDAY.read_text(encoding="utf-8").splitlines()]


def test_the_kinds_take_turns_so_that_the_first_prompts_are_a_mix() -> None:
    assert [row["kind"] for row in ROWS] == KINDS * 10
    assert [row["id"] for row in ROWS] == [f"{kind}-{turn:02d}" for turn in range(10) for kind in KINDS]
    assert Counter(row["prompt"] for row in ROWS).most_common(1)[0][1] == 1
    assert all(20 < len(row["prompt"]) < 1000 and row["prompt"].strip() == row["prompt"] for row in ROWS)


def test_the_task_asks_them_as_they_are_and_scores_none() -> None:
    task = get_task("everyday")
    assert task.available  # without any file of the data folder
    assert [(e.id, e.prompt, e.reference) for e in task.all_examples()] == [
        (row["id"], row["prompt"], None) for row in ROWS
    ]
    for stop_reason in ("eos", "length", "context"):
        assert task.score("Ice is lighter.", task.examples(1)[0], stop_reason) == Score("unscored", None)
