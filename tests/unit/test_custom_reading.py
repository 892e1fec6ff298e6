"""Files of one's own prompts, as people have them: what is read, guessed and refused."""

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

from fsd_core.errors import UnfitTask
from fsd_core.tasks.custom import reading
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import (
    LARGEST_FILE,
    LONGEST_TASK_LINE,
    MOST_LINES,
    MOST_TASK_PROMPTS,
    CheckedFile,
    check,
)
from fsd_core.tasks.custom.rows import MOST_PROBLEMS_LISTED, FieldNames

ASK = {"prompt": "Why?"}
TALK = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Why?"},
]


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def problems(data: bytes, scorer: str | None = None) -> list[str]:
    return [problem.sentence for problem in check(data, scorer).problems]


def messages(*turns: tuple[str, str]) -> dict:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_prompts_and_conversations_are_read_in_order() -> None:
    system = {"role": "system", "content": "Be brief."}
    checked = check(
        lines(
            {"scorer": "number", "title": "Sums"},
            {"prompt": "2 + 3 = ?", "reference": 5, "id": "first"},
            {"messages": [system, *TALK], "reference": "1,200.0"},
            {"messages": [{"role": "user", "content": "Alone"}], "reference": 2.5},
        )
    )
    assert (checked.problems, checked.scorer, checked.title) == ((), "number", "Sums")
    task = CustomTask.of("sums", checked)
    first, second, third = task.all_examples()
    assert (first.id, first.model_input, first.reference) == ("first", "2 + 3 = ?", "5")
    assert second.model_input == (("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Why?"))
    assert second.prompt == "System: Be brief.\n\nUser: Hi\n\nAssistant: Yes?\n\nUser: Why?"
    assert (second.id, second.reference) == ("sums-0001", "1200")
    assert (third.model_input, third.reference) == ("Alone", "2.5")  # one message of a user is a prompt
    assert [task.score(text, first, "eos").outcome for text in ("It is 5.", "6")] == ["correct", "wrong"]


def test_the_canonical_form_is_a_task_file_with_the_same_content() -> None:
    data = b"\xef\xbb\xbf" + lines({"scorer": "exact"}, {"reference": "ü", "prompt": "a"}, messages(("user", "b")))
    data = data.replace(b"\n", b"\r\n") + b"\n\n"
    checked = check(data.replace(b'"b"}]', b'"b"}], "reference": "x"'))
    again = check(checked.content.encode())
    assert checked.problems == again.problems == ()
    assert (again.content, again.lines) == (checked.content, checked.lines)
    assert checked.content.splitlines()[1] == '{"prompt": "a", "reference": "ü"}'


def test_versions_of_files_as_they_always_were_stay_the_same() -> None:
    """These hashes are of the first release that had tasks from files. Runs name them."""
    system = {"role": "system", "content": "Be brief."}
    rows = [ASK | {"reference": 5, "id": "one"}, {"id": "ü", "messages": [system, *TALK], "reference": 2.5}]
    assert (
        CustomTask.of("x", check(lines({"scorer": "number", "title": "T"}, *rows))).view.version == "b3367e4e5d1caada"
    )
    assert CustomTask.of("x", check(lines(ASK, messages(("user", "Alone"))))).view.version == "ccf3d3974163501b"


def test_a_version_is_of_the_lines_and_the_scorer_alone() -> None:
    def version(data: bytes, scorer: str | None = None, **about: str) -> str:
        return CustomTask.of("x", check(data, scorer), **about).view.version

    one = lines({"prompt": "a", "reference": "1"})
    same = version(one, "exact")
    assert same == version(lines({"scorer": "exact", "title": "T"}) + one) == version(one, "exact", title="Other")
    assert same != version(one, "contains")
    assert same != version(one.replace(b"a", b"b"), "exact")
    assert version(one + lines(ASK | {"reference": "2"}), "exact") != same


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ([1], "It is no object"),
        ({}, "It has neither prompt nor messages"),
        ({"prompt": "a", "messages": TALK}, "It has both prompt and messages"),
        ({"promt": "a"}, "one of 'promt', or rename 'promt' to prompt."),
        ({"prompt": ["a"]}, "Its prompt is no text"),
        ({"prompt": " \n"}, "Its prompt is empty"),
        ({"prompt": "a\0b"}, "Its prompt holds the character NUL"),
        ({"messages": "a"}, "Its messages are no list of 1 to 100"),
        ({"messages": []}, "Its messages are no list of 1 to 100"),
        ({"messages": TALK * 34}, "Its messages are no list of 1 to 100"),
        ({"messages": ["a"]}, "Message 1 has no role: expected an object with role and content."),
        ({"messages": [{"role": "user"}]}, "Message 1 has no content: expected a text."),
        (messages(("robot", "a")), "expected one of system, developer, user, assistant, tool."),
        (messages(("tool", "a")), "A tool follows the assistant."),
        (messages(("user", "a"), ("tool", "b")), "A tool follows the assistant."),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "The role of message 1 is not known"),
        (messages(("user", " ")), "Its message 1 is empty"),
        (messages(("assistant", "b")), "in no order that a model can go on with"),
        (messages(("user", "a"), ("assistant", "b"), ("assistant", "c")), "in no order that a model can go on with"),
        (messages(("system", "a"), ("developer", "b"), ("user", "c")), "in no order that a model can go on with"),
        (messages(("user", "a"), ("user", "b")), "in no order that a model can go on with"),
        (messages(("user", "a"), ("system", "b"), ("user", "c")), "in no order that a model can go on with"),
        (messages(("system", "a")), "in no order that a model can go on with"),
        (ASK | {"reference": True}, "Its reference is neither text nor number"),
        (ASK | {"reference": ["a"]}, "Its reference is neither text nor number"),
        (ASK | {"reference": "x" * 10_001}, "Its reference has 10,001 characters"),
        (ASK | {"id": 3.5}, "Its id cannot be used: expected a whole number, or a text of 1 to 100"),
        (ASK | {"id": True}, "Its id cannot be used"),
        (ASK | {"id": 10**100}, "Its id cannot be used"),
        (ASK | {"id": "a\nb"}, "Its id cannot be used"),
    ],
)
def test_what_is_wrong_with_a_line_is_one_sentence_that_names_it(row: object, told: str) -> None:
    (sentence,) = problems(lines({"prompt": "fine"}, row), "none")
    assert sentence.startswith("Line 2: ")
    assert told in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{'prompt': 'a'}", "It is not JSON (Expecting property name enclosed in double quotes at character 2)"),
        (b'{"prompt": "a", "prompt": "b"}', "The field 'prompt' is there twice"),
        (b'{"prompt": "a", "reference": NaN}', "NaN is no value of JSON"),
        (b'{"prompt": "a", "reference": ' + b"9" * 5000 + b"}", "a number in it is too long"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"prompt": "\xff"}', "It is not UTF-8 from byte 13 on"),
        (b'{"prompt": "\\ud800"}', "half of a character"),
        (b'{"prompt": "' + b"x" * LONGEST_TASK_LINE + b'"}', "expected at most 1,000,000"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: bytes, told: str) -> None:
    (sentence,) = problems(lines(ASK) + b"\n" + line + b"\n" + lines({"prompt": "fine"}))
    assert sentence.startswith("Line 3: ")
    assert told in sentence


@pytest.mark.parametrize(
    ("scorer", "reference", "told"),
    [
        ("number", "many", "Its reference 'many' is no number"),
        ("number", None, "It has no reference, which the scorer number needs"),
        ("choice", "AB", "is no choice: expected one letter from A to M"),
        ("choice", "Z", "is no choice"),
        ("exact", " ", "is empty"),
        ("contains", "", "every text contains that"),
        ("regex", "(", "is no regular expression of RE2 (missing ): ()"),
        ("regex", "a*", "matches even an empty text"),
        ("regex", "a" * 1001, "at most 1,000"),
        ("regex", "(?P<x>a)(?P<x>", "is no regular expression"),
    ],
)
def test_a_reference_must_suit_the_scorer(scorer: str, reference: str | None, told: str) -> None:
    (sentence,) = problems(lines(ASK | ({} if reference is None else {"reference": reference})), scorer)
    assert sentence.startswith("Line 1: ")
    assert told in sentence


@pytest.mark.wide
def test_what_is_wrong_with_the_whole_file() -> None:
    assert problems(b"") == ['The file has no prompt: expected a line such as {"prompt": "…"}.']
    assert problems(lines({"scorer": "none"})) == problems(b"")
    assert problems(lines(ASK), "bleu")[0].startswith("The scorer 'bleu' is not known: expected one of number, choice,")
    assert problems(b" " * (LARGEST_FILE + 1))[0].startswith("The file is larger than 8,000,000 bytes")
    assert problems(b"\n" * 100_001)[0].startswith("The file has 100,001 lines: expected at most 20,000 prompts")
    many = b"".join(b'{"prompt": "%d"}\n' % i for i in range(MOST_TASK_PROMPTS + 1))
    assert problems(many) == ["The file has 20,001 prompts: expected at most 20,000."]
    assert "not known beside scorer" in problems(lines({"scorer": "none", "author": "x"}, ASK))[0]
    assert "Line 1: The title cannot be used" in problems(lines({"scorer": "none", "title": "a\nb"}, ASK))[0]
    assert "Line 1: The scorer is no text" in problems(lines({"scorer": 3}, ASK))[0]
    assert "Line 2: It has neither prompt nor messages" in problems(lines(ASK, {"scorer": "none"}))[0]


def test_a_prompt_counts_once() -> None:
    one = messages(("user", "Why?"))
    (sentence,) = problems(lines(ASK, {"prompt": "else"}, one))
    assert sentence == "Line 3: It asks the same as line 1: a prompt counts once, so leave one of them out."
    (sentence,) = problems(lines(ASK | {"id": "a"}, {"prompt": "b", "id": "a"}))
    assert sentence == "Line 2: Its id 'a' is that of line 1: give each its own."


def test_all_problems_are_told_up_to_a_count_in_the_order_of_the_lines() -> None:
    data = b"".join(b"x\n" if i % 2 else b'{"prompt": ""}\n' for i in range(300))
    checked = check(data)
    assert [problem.line for problem in checked.problems] == list(range(1, MOST_PROBLEMS_LISTED + 1))
    assert (len(checked.problems), checked.unlisted) == (MOST_PROBLEMS_LISTED, 300 - MOST_PROBLEMS_LISTED)
    with pytest.raises(UnfitTask, match="300 problems"):
        checked.require("x.jsonl")


def test_a_scorer_that_is_given_takes_the_place_of_the_files() -> None:
    data = lines({"scorer": "number"}, {"prompt": "a", "reference": "not a number"})
    assert len(problems(data)) == 1
    assert (problems(data, "contains"), check(data, "contains").scorer) == ([], "contains")
    assert (problems(data, "none"), check(data, "none").lines[0].reference) == ([], "not a number")
    (example,) = CustomTask.of("a", check(data, "none")).all_examples()
    assert example.reference is None  # nothing is right or wrong


def test_marks_of_a_thought_are_whole_texts() -> None:
    header = b'{"scorer": "exact", "thought_marks": [["\\ud800", "</x>"]]}\n{"prompt": "a", "reference": "b"}\n'
    (sentence,) = problems(header)
    assert "thought_marks" in sentence


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


@pytest.mark.parametrize("indent", [None, 1])
def test_the_list_of_rows_in_a_file_that_is_one_object_is_read(indent: int | None) -> None:
    def within(**held: Any) -> CheckedFile:
        return check(json.dumps(held, indent=indent).encode())

    file = within(version="1.1", train=ROWS[1:], test=ROWS[1:2])
    assert (file.problems, file.lines) == ((), check(lines(*ROWS)).lines)
    assert "Of the file, the list 'train' is read. Left out: 'version', 'test' (1 row)." in file.notes
    assert within(data=ROWS[1:]).lines == file.lines
    assert within(data=[ASK, ASK]).problems[0].sentence.startswith("Row 2: It asks the same as row 1")
    chosen = check(lines({"question": "Which?", "choices": [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}]}))
    assert chosen.lines[0].model_input == "Which?\nA. x\nB. y\nAnswer:"
    assert within(data=[{"prompt": "a", "reference": float("nan")}]).problems


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
        (gzip.compress(gzip.compress(LINES)), "The file is packed twice: unpack it once."),
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
    monkeypatch.setattr(reading, "READING_SECONDS", 0.001)
    (sentence,) = problems(table(prompt=["a"]))
    assert sentence.startswith(UNREADABLE)


def test_two_columns_of_one_name_are_refused() -> None:
    written = io.BytesIO()
    parquet.write_table(
        pyarrow.table([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["prompt", "prompt"]), written
    )
    assert problems(written.getvalue()) == ["The file has two columns of one name: rename one of them."]
