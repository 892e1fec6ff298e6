"""What each scorer of one's own tasks takes for right, wrong and cut off."""

from __future__ import annotations

import resource

import pytest

from fsd_core.errors import UnknownChoice
from fsd_core.tasks import Example
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
