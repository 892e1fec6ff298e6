"""What each scorer of one's own tasks takes for right, wrong and cut off."""

from __future__ import annotations

import pytest

from fsd_core.errors import InvalidSetting
from fsd_core.tasks import Example
from fsd_core.tasks.custom import scorers
from fsd_core.tasks.custom.scorers import SCORERS, get_scorer


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


def test_an_expression_that_never_ends_is_stopped() -> None:
    with pytest.raises(InvalidSetting, match="The regular expression of the prompt 'one' takes more than 1 s"):
        outcome("regex", "(a+)+$", "a" * 30_000 + "!")
    assert outcome("regex", "(a+)+$", "aaa") == "correct"


def test_the_expressions_time_is_that_of_the_text_and_not_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time at all the engine itself stops: nothing else counts it."""
    assert outcome("regex", "(a+)+$", "a" * 50) == "correct"
    monkeypatch.setattr(scorers, "PATTERN_SECONDS", 1e-9)
    with pytest.raises(InvalidSetting, match="without repetitions inside of repetitions"):
        get_scorer("regex").judge("a" * 30_000 + "!", Example("one", "?", "(a+)+$"), "eos")


def test_an_unknown_scorer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidSetting, match="expected one of number, choice, exact, contains, regex, none"):
        get_scorer("bleu")
