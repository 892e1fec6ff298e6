"""What the fields of a file are taken for, whatever their names, and what is left to the person."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsd_core.tasks.custom.field_guess import guess
from fsd_core.tasks.custom.reading import check
from fsd_core.tasks.custom.shapes import FieldNames


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
