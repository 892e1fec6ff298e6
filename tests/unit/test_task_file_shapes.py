"""Rows as people have them: other fields, chats, ShareGPT, batches. What is not read is told, and what is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsd_core.tasks.base import Messages
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import CheckedFile, check
from fsd_core.tasks.custom.rows import FieldNames

CHAT = (("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Why?"))


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def checked(*rows: object, scorer: str | None = None, **names: str) -> CheckedFile:
    return check(lines(*rows), scorer, FieldNames(**names))


def problems(*rows: object, scorer: str | None = None, **names: str) -> list[str]:
    return [problem.sentence for problem in checked(*rows, scorer=scorer, **names).problems]


def asked(row: dict[str, Any], **more: Any) -> str | Messages:
    file = checked(row, **more)
    assert file.problems == ()
    return file.lines[0].model_input


def chat(*turns: tuple[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def sharegpt(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": value} for who, value in turns]}


def test_fields_by_other_names_are_named() -> None:
    rows = {"question": "2 + 3?", "answer": "5", "n": 7}, {"question": "1 + 1?", "answer": 2, "n": 8}
    file = checked(*rows, scorer="number", prompt="question", reference="answer", id="n")
    assert (file.problems, file.notes) == ((), ())
    assert file.content == (
        '{"scorer": "number"}\n{"id": "7", "prompt": "2 + 3?", "reference": "5"}\n'
        '{"id": "8", "prompt": "1 + 1?", "reference": "2"}\n'
    )
    both = {"prompt": "a", "messages": chat(("user", "b"))["messages"]}
    assert [asked(both, prompt=name) for name in ("prompt", "messages")] == ["a", "b"]
    assert asked({"chat": chat(*CHAT)["messages"]}, prompt="chat") == CHAT


def test_a_field_that_is_not_there_is_told_with_those_that_are() -> None:
    row = {"question": "a", "answer": "b"}
    assert problems(row) == [
        "Line 1: It has neither prompt nor messages. Name the field that is asked with --prompt-field, one of "
        "'question', 'answer'."
    ]
    told = "Line 1: It has no field 'qustion': expected one of 'question', 'answer'."
    assert problems(row, prompt="qustion") == [told]
    assert problems(row, row, row, prompt="qustion") == [f"{told} So it is with every other line."]
    assert problems(row, {"prompt": "a"}, row)[1].startswith("Line 3: It has neither prompt nor messages.")
    assert problems(row, scorer="exact", prompt="question", reference="x")[0].startswith("Line 1: It has no field 'x'")
    assert "and 59,990 more" in problems({f"f{i}": 1 for i in range(60_000)})[0]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("promt", "prompt"), ("Prompts", "prompt"), ("message", "messages"), ("conversation", "conversations")],
)
def test_a_misspelt_prompt_is_told(wrong: str, right: str) -> None:
    assert problems({"prompt": "fine"}, {wrong: "a", "x": 1})[0].endswith(f", or rename '{wrong}' to {right}.")


def test_fields_that_are_not_read_are_told() -> None:
    file = checked({"prompt": "a", "source": "web", "empty": None}, {"prompt": "b", "level": 3, "scorer": "exact"})
    assert file.problems == ()
    assert file.notes == (
        "Fields that are not used: 'scorer' (a first line of its own names the scorer), 'source', 'level'.",
    )
    assert checked({"prompt": "a", "refrence": 5, "ID": "x", "a": 1}).notes == (
        "Fields that are not used: 'ID' (is it id?), 'refrence' (is it reference?), 'a'.",
    )
    right = {"prompt": "a", "reference": "b", "preference": "c", "\x1b[31m": 1}
    assert checked(right, scorer="exact").notes == ("Fields that are not used: '\\x1b[31m', 'preference'.",)
    many = checked({"prompt": "a"} | {f"f{i:05}": 1 for i in range(60_000)} | {"refrence": 1})
    assert many.notes[0].endswith("'f00008', 'f00009' and 59,991 more.")
    assert problems({"prompt": "a", "refrence": 5}, scorer="number")[0].startswith("Line 1: It has no reference")


def test_content_in_parts_is_a_text_if_all_parts_are() -> None:
    parts = [{"type": "text", "text": "What"}, {"type": "text", "text": "is it?"}]
    assert asked(chat(("user", parts))) == "What\nis it?"
    image = [*parts, {"type": "image_url", "image_url": {"url": "a.png"}}]
    for content, kind in ((image, "image_url"), (["a"], "None"), ([{"type": "text"}], "text")):
        assert problems(chat(("user", content))) == [
            f"Line 1: Message 1 has a part of type '{kind}': expected parts of type 'text' alone."
        ]
    assert "Its message 1 is empty" in problems(chat(("user", [])))[0]


def test_chats_of_sharegpt_are_conversations() -> None:
    turns = ("system", "Be brief."), ("human", "Hi"), ("gpt", "Yes?"), ("human", "Why?")
    assert asked(sharegpt(*turns)) == CHAT
    assert asked({"chat": sharegpt(*turns)["conversations"]}, prompt="chat") == CHAT
    assert "The role of message 1 is not known" in problems(sharegpt(("alien", "a")))[0]


@pytest.mark.parametrize(
    "turns", [sharegpt(("human", "2 + 3?"), ("gpt", "5")), chat(("user", "2 + 3?"), ("assistant", "5"))]
)
def test_the_answer_at_the_end_is_the_reference_where_one_is_needed(turns: dict[str, Any]) -> None:
    plain, scored, given = (
        checked(row, scorer=scorer)
        for row, scorer in ((turns, None), (turns, "number"), (turns | {"reference": 6}, "number"))
    )
    assert [file.lines[0].model_input for file in (plain, scored, given)] == ["2 + 3?"] * 3
    assert [file.lines[0].reference for file in (plain, scored, given)] == [None, "5", "6"]
    left_out = "1 conversation ended with an answer, which is not asked: it is left out."
    assert (plain.notes, given.notes) == ((left_out,), (left_out,))
    assert scored.notes[0].endswith("it is the reference where there is no other.")


def test_batches_for_an_openai_server_are_read() -> None:
    body = {"model": "m", "max_tokens": 5} | chat(*CHAT)
    file = checked({"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": body})
    (line,) = file.lines
    assert (line.id, line.model_input) == ("request-1", CHAT)
    assert file.notes == ("Fields that are not used: 'body.max_tokens', 'body.model', 'method', 'url'.",)
    assert asked({"custom_id": "a", "body": {"prompt": "Why?"}}) == "Why?"
    assert problems({"custom_id": "a", "body": {"input": "Why?"}}) == [
        "Line 1: Its body has neither messages nor prompt, but 'input'."
    ]
    assert "with --prompt-field, one of 'custom_id', 'body'" in problems({"custom_id": "a", "body": "Why?"})[0]
    assert asked({"custom_id": "a", "body": "Why?"}, prompt="body") == "Why?"


def test_developers_and_tools_speak_in_conversations() -> None:
    turns = ("developer", "Be brief."), ("user", "Rain?"), ("assistant", "weather()"), ("tool", '{"rain": 1}')
    assert asked(chat(*turns)) == turns
    assert asked(chat(*turns, ("tool", "dry"), ("assistant", "Yes."), ("user", "Sure?")))[-1] == ("user", "Sure?")
    again = check(checked(chat(*turns)).content.encode())
    assert (again.problems, again.lines[0].model_input) == ((), turns)
    row = {"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": None},
                        {"role": "tool", "content": "1"}]}  # fmt: skip
    assert problems(row) == ["Line 1: Message 2 has no content: expected a text."]
    row["messages"][1] = {"role": "assistant", "content": "weather()", "name": "x"}
    assert checked(row).notes == ("Fields that are not used: 'messages.name'.",)


def test_a_file_names_the_marks_of_thoughts_and_the_categories_of_its_lines() -> None:
    rows = [
        {"scorer": "exact", "thought_marks": [["<plan>", "</plan>"]]},
        {"prompt": "One", "reference": "a", "category": "short"},
        {"prompt": "Two", "reference": "b"},
    ]
    file = check(lines(*rows))
    assert (file.problems, file.notes) == ((), ())
    task = CustomTask.of("x", file)
    again = CustomTask(task.view, lambda: task.content)
    for read in (task, again):
        first, second = read.all_examples()
        assert (first.category, second.category) == ("short", "")
        assert read.score("<plan>b? No.</plan>\na", first, "eos").outcome == "correct"
        assert read.score("<plan>a", first, "length").outcome == "truncated"
        assert read.score("<think>b</think>a", first, "eos").outcome == "wrong"  # no mark of this task's model
    plain = CustomTask.of("x", check(lines({"scorer": "exact"}, rows[2])))
    assert plain.view.version != CustomTask.of("x", check(lines(rows[0], rows[2]))).view.version
    assert plain.score("<think>a</think>b", plain.all_examples()[0], "eos").outcome == "correct"


@pytest.mark.parametrize("marks", ["<plan>", [["<plan>"]], [["", "</plan>"]], [[1, 2]], [["a", "b"]] * 11, {"a": "b"}])
def test_marks_that_cannot_be_used_are_told(marks: object) -> None:
    (first, *_) = problems({"scorer": "none", "thought_marks": marks}, {"prompt": "One"})
    assert "Line 1: The thought_marks cannot be used" in first


@pytest.mark.parametrize("category", [7, "a\nb", "x" * 101, ["a"]])
def test_categories_that_cannot_be_used_are_told(category: object) -> None:
    (first,) = problems({"prompt": "One", "category": category})
    assert "Line 1: Its category cannot be used" in first
