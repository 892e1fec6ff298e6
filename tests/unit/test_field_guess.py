"""What the fields of a file are taken for, whatever their names, and what is left to the person."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsd_core.tasks.custom.reading import check, guess
from fsd_core.tasks.custom.rows import FieldNames
from fsd_core.tasks.custom.scorers import get_scorer


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


@pytest.mark.parametrize(
    ("row", "names", "scorer"),
    [
        ({"frage": "3 + 4 = ?", "antwort": "7"}, FieldNames("frage", "antwort"), "number"),
        ({"Question": "Which?", "Answer": "b", "topic": "of no use"}, FieldNames("Question", "Answer"), "choice"),
        ({"instruction": "Name it.", "output": "Paris"}, FieldNames("instruction", "output"), "contains"),
        ({"question": "Why?", "solution": "Because. " * 20}, FieldNames("question", "solution"), "none"),
        ({"ticket": "My invoice of May is wrong.", "label": "billing"}, FieldNames("ticket", "label"), "contains"),
        ({"prompt": "3 + 4 = ?", "reference": 7}, FieldNames(), "number"),
        ({"prompt": "3 + 4 = ?", "answer": 7}, FieldNames("", "answer"), "number"),
        ({"messages": [{"role": "user", "content": "Hello?"}]}, FieldNames(), None),
        ({"id": "a very long identifier indeed", "body_text": "Hello?"}, FieldNames("body_text"), None),
    ],
)  # fmt: skip
def test_names_and_values_tell_what_fields_hold(row: dict[str, Any], names: FieldNames, scorer: str | None) -> None:
    data = lines(row, row | {key: f"{value} again?" for key, value in row.items() if key == (names.prompt or "prompt")})
    guessed = guess(data)
    assert (guessed.names, guessed.scorer) == (names, scorer)
    assert guessed.sentence.startswith(
        f"Prompt: {names.prompt or next(k for k in row if k in ('prompt', 'messages'))}."
    )
    checked = check(lines(row), guessed.scorer, guessed.names)
    assert checked.problems == (), "a file can be added as it was guessed"


@pytest.mark.parametrize(
    ("reference", "scorer", "read"),
    [
        ("He buys 8 boxes of 11.\n8 * 11 = <<8*11=88>>88\n#### 88", "number", "88"),
        ("#### 1,200", "number", "1200"),
        ("We add them up, and get \\boxed{42}.", "number", "42"),
        ("The sum is 3 + 4. The answer is 7.", "number", "7"),
        ("Bread rises because yeast makes gas, so the answer is (C).", "choice", "C"),
        ("Answer: b", "choice", "B"),
    ],
)
def test_a_reference_is_read_as_an_answer_is(reference: str, scorer: str, read: str) -> None:
    """As GSM8K's: a solution that ends in its marked answer, long or short."""
    file = "".join(json.dumps({"question": f"Which {i}?", "answer": reference}) + "\n" for i in range(3)).encode()
    assert guess(file).scorer == scorer
    assert get_scorer(scorer).read(reference) == read
    assert check(file, scorer, guess(file).names).problems == ()


@pytest.mark.parametrize("reference", ["There were 3 apples and 4 pears in 1999.", "Call 555-0199 at 8 pm, then wait."])
def test_a_text_with_numbers_and_no_answer_is_no_number(reference: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        get_scorer("number").read(reference)


def test_one_reference_that_is_no_number_makes_them_texts() -> None:
    guessed = guess(lines({"question": "a", "answer": 7}, {"question": "b", "answer": "seven"}))
    assert guessed.scorer == "contains"
    assert guessed.sentence.endswith("Scorer: Contains, since every reference is short.")


def test_what_the_file_says_itself_is_not_guessed() -> None:
    data = lines({"scorer": "exact"}, {"question": "a", "answer": 7})
    assert guess(data)[:2] == (FieldNames("question", "answer"), None)
    assert check(data, None, guess(data).names).scorer == "exact"


@pytest.mark.parametrize("data", [b"", b"no json", b"[1, 2]", b'{"n": 1}', b"\xff\xfe", lines({"a": "x"}, {"b": "y"})])
def test_nothing_is_guessed_of_what_cannot_be_read(data: bytes) -> None:
    assert guess(data) == guess(b"")
    assert check(data).problems
