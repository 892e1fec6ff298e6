"""Task files as they come: JSON Lines, an array, gzip and Parquet. None takes much time or memory, damaged or not."""

from __future__ import annotations

import gzip
import io
import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from fsd_core.tasks.custom import reading
from fsd_core.tasks.custom.reading import LARGEST_FILE, LONGEST_TASK_LINE, MOST_LINES, MOST_TASK_PROMPTS, check
from fsd_core.tasks.custom.rows import FieldNames

ROWS = [
    {"scorer": "number", "title": "Sums"},
    {"id": "one", "prompt": "2 + 3 = ü?", "reference": 5},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "7 × 8?"}], "reference": 56},
]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
TOO_LARGE = ["The file unpacks to more than 8,000,000 bytes: split it into several tasks."]
UNREADABLE = "The file begins as one of Parquet and cannot be read: it is damaged, or takes too much time or memory."


def table(**columns: Any) -> bytes:
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), written)
    return written.getvalue()


def repeated(text: str, times: int) -> pyarrow.DictionaryArray:
    """A column of one text many times, which takes no space in the file."""
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * times, pyarrow.int32()), pyarrow.array([text]))


def problems(data: bytes, scorer: str | None = None) -> list[str]:
    return [problem.sentence for problem in check(data, scorer).problems]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(ROWS, indent=1).encode(),
        b"\xef\xbb\xbf \n" + json.dumps(ROWS, ensure_ascii=False).encode() + b"\n",
        gzip.compress(LINES),
        gzip.compress(LINES[:30]) + gzip.compress(LINES[30:]),  # as programs append to a file
        gzip.compress(json.dumps(ROWS).encode()),
    ],
    ids=["array", "array with a mark", "gzip", "gzip twice", "array in gzip"],
)
def test_the_same_rows_are_the_same_task_in_every_format(data: bytes) -> None:
    checked = check(data)
    assert (checked.problems, checked.title, checked.content) == ((), "Sums", check(LINES).content)


def test_a_table_of_parquet_is_a_task() -> None:
    messages = [None, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "7 × 8?"}]]
    data = table(id=["one", None], prompt=["2 + 3 = ü?", None], messages=messages, reference=[5, 56])
    for each in (data, gzip.compress(data)):
        checked = check(each, "number")
        assert (checked.problems, checked.content) == ((), check(LINES).content)


def test_a_task_file_that_was_made_a_table_is_the_same_task() -> None:
    columns = {name: [row.get(name) for row in ROWS] for name in ("scorer", "title", "id", "prompt", "messages")}
    checked = check(table(**columns, reference=[None, 5, 56]))
    assert (checked.problems, checked.title, checked.content) == ((), "Sums", check(LINES).content)


def test_values_that_json_lacks_are_texts_or_absent() -> None:
    columns = {
        "question": [b"What?", b"Why?"], "answer": [Decimal("1.50"), Decimal("2.00")], "score": [float("nan"), 1.0],
        "day": [date(2026, 1, 2), None], "image": [b"\xff", b"\xfe"],
    }  # fmt: skip
    checked = check(table(**columns), "exact", FieldNames(prompt="question", reference="answer", id="day"))
    assert [(line.model_input, line.reference, line.id) for line in checked.lines] == [
        ("What?", "1.50", "2026-01-02"),
        ("Why?", "2.00", None),
    ]
    assert checked.problems == ()


def test_problems_of_rows_name_rows() -> None:
    sentences = problems(b'[{"prompt": "a"}, 3, {"prompt": "a"}, {"prompt": NaN}, {"prompt": "b", "prompt": "c"}]')
    assert sentences == [
        'Row 2: It is no object: expected one such as {"prompt": "…"}.',
        "Row 3: It asks the same as row 1: a prompt counts once, so leave one of them out.",
        "Row 4: NaN is no value of JSON: write a number or a text.",
        "Row 5: The field 'prompt' is there twice: leave one of them out.",
    ]
    assert problems(table(prompt=["a", " "])) == ["Row 2: Its prompt is empty: write at least one word."]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[]", "The file has no prompt"),
        (b"[", "Row 1: It is not JSON (Expecting value at character 2): expected a list of objects."),
        (b'[{"prompt": "a"}, {"prompt', "Row 2: It is not JSON"),
        (b'[{"prompt": "a"},]', "Row 2: It is not JSON"),
        (b'[{"prompt": "a"} {"prompt": "b"}]', "Row 1: Behind it stands neither a comma nor the end of the list"),
        (b'[{"prompt": "a"}', "Row 1: Behind it stands neither a comma nor the end of the list"),
        (b'[{"prompt": "a"}] {"prompt": "b"}', "There is more behind the end of the list"),
        (b'[{"prompt": "\xff"}]', "The file is not UTF-8 from byte 14 on"),
        (b'[{"prompt": "' + b"x" * LONGEST_TASK_LINE + b'"}]', "characters: expected at most 1,000,000."),
        (b"[" * LARGEST_FILE, "nested too deep"),
        (b"[" + b"{}," * MOST_LINES + b"{}]", "The file has more than 100,000 rows: expected at most 20,000."),
        (gzip.compress(LINES)[:-9], "The file begins as one of gzip and cannot be unpacked"),
        (b"\x1f\x8b" + LINES, "The file begins as one of gzip and cannot be unpacked"),
        (gzip.compress(gzip.compress(LINES)), "Line 1: It is not UTF-8 from byte 2 on"),
        (table(prompt=["a"])[:60], UNREADABLE),
        (b"PAR1" + LINES, UNREADABLE),
    ],
)
def test_a_damaged_file_is_a_sentence(data: bytes, told: str) -> None:
    assert told in problems(data)[0]


def test_a_small_file_that_unpacks_to_a_large_one_is_refused() -> None:
    assert problems(gzip.compress(b" " * (LARGEST_FILE + 1))) == TOO_LARGE
    assert problems(gzip.compress(b"\0" * 20 * LARGEST_FILE)) == TOO_LARGE
    assert problems(table(prompt=repeated("x" * 900_000, 10_000))) == TOO_LARGE  # 9 GB
    assert problems(table(prompt=[str(i) * 2000 for i in range(2000)])) == TOO_LARGE  # by what it says of itself
    assert problems(table(prompt=[str(i) for i in range(MOST_TASK_PROMPTS + 1)])) == [
        "The file has 20,001 rows: expected at most 20,000 prompts."
    ]


@pytest.mark.wide
def test_a_row_that_would_fill_the_memory_is_refused() -> None:
    row = pyarrow.ListArray.from_arrays([0, 10_000], repeated("x" * 900_000, 10_000))
    (sentence,) = problems(table(prompt=["a"], texts=row))
    assert sentence.startswith(UNREADABLE)


def test_reading_parquet_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PARQUET_SECONDS", 0.001)
    (sentence,) = problems(table(prompt=["a"]))
    assert sentence.startswith(UNREADABLE)


def test_two_columns_of_one_name_are_refused() -> None:
    written = io.BytesIO()
    parquet.write_table(
        pyarrow.table([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["prompt", "prompt"]), written
    )
    assert problems(written.getvalue()) == ["The file has two columns of one name: rename one of them."]
