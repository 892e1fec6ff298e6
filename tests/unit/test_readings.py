"""What a careful person reads in an answer, form by form, with the reason: ``tests/forms/readings.jsonl``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsd_core.tasks import Example
from fsd_core.tasks.choices import chosen_letter
from fsd_core.tasks.custom.scorers import get_scorer
from fsd_core.tasks.readings import final_number, own_turn, stated_number

FORMS = [json.loads(line) for line in Path("tests/forms/readings.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("form", FORMS, ids=[f"{form['kind']}-{form['text'][:40]}" for form in FORMS])
def test_an_answer_as_a_careful_person_reads_it(form: dict[str, str]) -> None:
    text = form["text"]
    if form["kind"] in ("choice", "number"):
        read = chosen_letter(text) if form["kind"] == "choice" else final_number(text)
    else:
        scorer = get_scorer(form["kind"])
        read = scorer.judge(text, Example("one", "?", scorer.read(form["reference"])), "eos").outcome
    assert read == form["reading"], form["why"]


@pytest.mark.parametrize(("reference", "read"), [("5", "5"), ("5000", "5000"), ("6", "5000")])
def test_a_sum_of_thousands_is_read_as_its_question_asks(reference: str, read: str) -> None:
    assert stated_number("It costs $5k.", reference) == read


@pytest.mark.parametrize("text", ["#### 28 = 4", "The answer is 28 (4", "Bees fly.\nA", "Bees fly.\n(A) a be"])
def test_a_text_that_was_cut_off_has_no_answer_that_may_go_on(text: str) -> None:
    assert final_number(text, cut=True) is None
    assert chosen_letter(text, cut=True) is None


def test_a_text_ends_before_the_first_turn_that_is_not_its_own() -> None:
    assert own_turn("<|im_start|>assistant\n5<|im_end|>") == ("<|im_start|>assistant\n5", True)
    assert own_turn("\nQuestion: 4 + 4?\n8") == ("\nQuestion: 4 + 4?\n8", False)
    assert own_turn("Ask the Human: 5") == ("Ask the Human: 5", False)
