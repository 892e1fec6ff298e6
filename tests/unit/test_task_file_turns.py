"""Task files whose user turns are asked one after another, and conversations with calls of tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsd_core.config import RunConfig
from fsd_core.errors import UnfitTask
from fsd_core.models.conversation import ToolMessage
from fsd_core.tasks.base import Said
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import CheckedFile, check

WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lima", "days": 2}'}}


def checked(*rows: object, scorer: str | None = None, all_turns: bool = False) -> CheckedFile:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return check(data, scorer, all_turns=all_turns)


def task_of(*rows: object, **more: Any) -> CustomTask:
    file = checked(*rows, **more)
    assert file.problems == ()
    stored = CustomTask.of("chats", file)
    again = CustomTask(stored.view, lambda: stored.content)  # as it is read from the database
    assert again.all_examples() == stored.all_examples()
    return again


def chat(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


LONG = ("system", "Be brief."), ("user", "One"), ("assistant", "A"), ("user", "Two"), ("assistant", "B")


def test_turns_are_prompts_of_their_own() -> None:
    task = task_of({"id": "a", "category": "x", "turns": ["One", "Two", "Three"]}, {"prompt": "Alone"})
    assert [(e.id, e.prompt, e.turn, e.category) for e in task.all_examples()] == [
        ("a", "One", 0, "x"), ("a/2", "Two", 1, "x"), ("a/3", "Three", 2, "x"), ("chats-0001", "Alone", 0, ""),
    ]  # fmt: skip
    assert (task.size, task.view.prompts, task.scored) == (4, 4, False)
    third = task.asked(2, [Said("<think>Why?</think>First"), Said("Second")])
    assert third.model_input == (
        ("user", "One"), ("assistant", "First"), ("user", "Two"), ("assistant", "Second"), ("user", "Three"),
    )  # fmt: skip
    assert task.asked(1, [Said("cut off in a thought", thinking=True)]).messages[1] == ("assistant", "")
    with pytest.raises(UnfitTask, match="cannot be asked alone"):
        _ = task.all_examples()[1].model_input


def test_conversations_keep_their_answers_unless_the_file_says_otherwise() -> None:
    (kept,) = task_of(chat(*LONG, ("user", "Three"))).all_examples()
    assert kept.messages == (*LONG, ("user", "Three"))
    header = {"scorer": "none", "all_turns": True}
    for rows, more in (((chat(*LONG),), {"all_turns": True}), ((header, chat(*LONG)), {})):
        task = task_of(*rows, **more)
        first, second = task.all_examples()
        assert first.messages == (("system", "Be brief."), ("user", "One"))
        assert (second.prompt, second.turn) == ("Two", 1)
        assert task.asked(1, [Said("Own")]).messages == (*first.messages, ("assistant", "Own"), ("user", "Two"))
    assert checked(header, chat(*LONG)).notes == (
        "1 given answer between user turns is left out: those of the setting that is measured stand there.",
    )
    sharegpt = {"conversations": [{"from": "human", "value": "One"}, {"from": "gpt", "value": "A"},
                                  {"from": "human", "value": "Two"}]}  # fmt: skip
    batch = {"custom_id": "r", "body": chat(*LONG)}
    for row in (sharegpt, batch):
        assert [e.prompt for e in task_of(row, all_turns=True).all_examples()][1:] == ["Two"]
        assert len(task_of(row).all_examples()) == 1
    assert checked({"scorer": "none", "all_turns": 1}, {"prompt": "a"}).problems[0].sentence == (
        "Line 1: The field all_turns is neither true nor false: expected one of them."
    )


def test_turns_that_cannot_be_asked_are_told() -> None:
    told = checked({"turns": ["One", "Two"]}, scorer="number").problems[0].sentence
    assert "Line 1: It has several turns, and the scorer number reads one answer" in told
    assert "Its turn 1 is empty" in checked({"turns": ["One", " "]}).problems[0].sentence
    assert "asks the same as line 1" in checked(*[{"turns": ["One", "Two"]}] * 2).problems[0].sentence
    assert checked({"turns": ["One", "Two"]}, {"turns": ["One", "Other"]}, {"prompt": "One"}).problems == ()
    assert checked({"turns": ["One", "Two"], "reference": ["", "x"]}).notes == (
        "Fields that are not used: 'reference'.",
    )
    called = {"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "tool_calls": [CALL]},
                           {"role": "tool", "content": "dry"}, {"role": "user", "content": "Sure?"}]}  # fmt: skip
    assert "one after another" in checked(called, all_turns=True).problems[0].sentence


def test_a_run_never_begins_within_a_conversation() -> None:
    task = task_of({"turns": ["One", "Two"]}, {"turns": ["Three", "Four"]})
    assert list(task.examples_of(RunConfig(limit=3))) == [0, 1, 2]
    with pytest.raises(UnfitTask, match="goes on the conversation"):
        task.examples_of(RunConfig(first=1, limit=2))


def test_calls_of_tools_are_given_as_templates_expect_them() -> None:
    row = {
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "dry", "name": "weather", "tool_call_id": "c1"},
        ],
    }
    file = checked(row)
    assert (file.problems, file.notes) == ((), ())
    (example,) = task_of(row).all_examples()
    tools, asked, called, result = example.messages
    assert isinstance(tools, ToolMessage)
    assert tools.values == {"tools": [WEATHER]}
    assert asked == ("user", "Rain?")
    assert isinstance(called, ToolMessage)
    function = {"name": "weather", "arguments": {"city": "Lima", "days": 2}}
    assert (called.content, called.values) == (
        "",
        {"tool_calls": [{"id": "c1", "type": "function", "function": function}]},
    )
    assert isinstance(result, ToolMessage)
    assert result.values == {"name": "weather", "tool_call_id": "c1"}
    assert (
        example.prompt
        == 'Tools: weather\n\nUser: Rain?\n\nAssistant: weather({"city": "Lima", "days": 2})\n\nTool: dry'
    )
    as_text = task_of({"tools": json.dumps([WEATHER]), "prompt": "Rain?"}).all_examples()[0]
    assert as_text.messages == (tools, ("user", "Rain?"))
    in_body = {"custom_id": "r", "body": {key: row[key] for key in ("messages", "tools")}}
    assert task_of(in_body).all_examples()[0].messages == example.messages


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ({"function": {"name": "f", "arguments": "{"}}, "Message 2 has a call that is none"),
        ({"function": {"arguments": {}}}, "Message 2 has a call that is none"),
        ("f()", "Message 2 has a call that is none"),
        ({"function": {"name": "f", "arguments": {"a": "\0"}}}, "hold the character NUL"),
        ({"function": {"name": "f", "arguments": {"a": "\ud800"}}}, "half of a character"),
    ],
)
def test_calls_that_are_none_are_told(call: Any, told: str) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "content": "b"}]  # fmt: skip
    assert told in checked({"messages": messages}).problems[0].sentence
    assert "Tool 1 is no function" in checked({"prompt": "a", "tools": [{"name": "f"}]}).problems[0].sentence
    assert checked({"prompt": "a", "tools": "a hammer"}).notes == ("Fields that are not used: 'tools'.",)
