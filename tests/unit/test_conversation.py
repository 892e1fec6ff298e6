"""Conversations of several turns, with what a model thinks and which tools it calls."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fsd_core.config import RunConfig
from fsd_core.errors import UnfitTask
from fsd_core.models.conversation import MARKS, ToolMessage, is_mark, opens_thought, split_thoughts
from fsd_core.tasks.base import Said
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import CheckedFile, check
from fsd_core.tasks.custom.scorers import SCORERS

FORMS = [json.loads(line) for line in Path("tests/forms/thoughts.jsonl").read_text(encoding="utf-8").splitlines()]
"""what texts of families say outside of their thoughts, and why"""


def custom_task(scorer: str, reference: str | None) -> CustomTask:
    line = {"prompt": "Which?", "reference": reference} if reference else {"prompt": "Which?"}
    return CustomTask.of("which", check(json.dumps(line).encode(), scorer))


HARMONY = (
    "<|channel|>analysis<|message|>Is it A? No.<|end|><|start|>assistant<|channel|>commentary<|message|>A?<|end|>"
    "<|start|>assistant<|channel|>final<|message|>B<|return|>"
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("B", "B"),
        ("", ""),
        ("<think>\nA? No.\n</think>\n\nB", "B"),
        ("<think>\n\n</think>\n\nB", "B"),
        ("A? No.\n</think>\n\nB", "B"),  # begun in the prompt
        ("B <think>no, A</think>, or C", "B , or C"),
        ("<think>a</think>B\nor</think>\nC", "C"),  # it went on thinking
        ("<think>a </thinking> b</think>C", "C"),
        (HARMONY, "B"),
        (HARMONY.replace("<|return|>", ""), "B"),
        ("analysisIs it A? No.assistantfinalB", "B"),
        ("analysis Is it A? No. assistantfinal B", " B"),
        ("analysisA?assistantcommentaryNo.assistantfinalB", "B"),
        ("analysis of the data: B", "analysis of the data: B"),
        ("Analysis: B", "Analysis: B"),
        *((f"{begin}A?{end}\nB", "B") for begin, end in MARKS),
    ],
)
def test_the_answer_is_what_stands_outside_of_thoughts(text: str, answer: str) -> None:
    found = split_thoughts(text)
    assert (found.answer, found.is_open) == (answer, False)
    assert all(0 <= start < end <= len(text) for start, end in found.thoughts)
    assert bool(found.thoughts) == (text != answer)


@pytest.mark.parametrize("form", FORMS, ids=[form["text"][:50] for form in FORMS])
def test_a_thought_of_another_family_is_no_answer(form: dict[str, Any]) -> None:
    found = split_thoughts(form["text"], thinking=form["thinking"])
    assert (found.answer, found.is_open) == (form["answer"], form["is_open"]), form["why"]


@pytest.mark.parametrize(
    "name", ["<think:opensource>", "<think:6124c78e>", "<|channel>thought", "<REASONING_SCRATCHPAD>"]
)
def test_a_prompt_may_open_the_thought_of_another_family(name: str) -> None:
    assert opens_thought(f"<|assistant|>{name}\n")
    assert not opens_thought(f"<|assistant|>{name}\n", marks=(("<plan>", "</plan>"),))


def test_marks_of_a_task_of_its_own_are_the_only_ones() -> None:
    text = "<think:a>A?</think:a><plan>C?</plan>B"
    assert split_thoughts(text, marks=(("<plan>", "</plan>"),)).answer == "<think:a>A?</think:a>B"


def test_a_token_that_is_a_mark_stays_in_texts() -> None:
    assert all(map(is_mark, ("<|channel>", "<channel|>", "<|inner_suffix|>", "</think:6124c78e>", "<think>")))
    assert not any(map(is_mark, ("<|im_end|>", "</s>", "<turn|>", "think")))


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("<think>\nIt is B", False),
        ("It is B", True),
        ("", True),
        ("<think>It is B", True),
        ("C <think>or B", False),
        ("<|channel|>analysis<|message|>It is B", False),
        ("<|channel|>analysis<|message|>It is B<|end|><|start|>assistant", False),
        ("analysisIt is B", False),
    ],
)
def test_a_thought_that_never_ends_has_no_answer_behind_it(text: str, thinking: bool) -> None:
    found = split_thoughts(text, thinking=thinking)
    assert found.is_open
    assert "B" not in found.answer


def test_a_thought_begun_in_the_prompt_may_end_in_the_text() -> None:
    assert split_thoughts("A?</think>\nB", thinking=True) == ("B", ((0, 10),), False)
    assert opens_thought("<|im_start|>assistant\n<think>\n")
    assert not opens_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not opens_thought("What does <think> mean?")


@pytest.mark.parametrize(
    "piece",
    [
        "<think>",
        "</think>",
        "<|channel|>",
        "<|channel|>a",
        "<|channel|>final<|message|>",
        "analysis ",
        "assistant ",
        "<think:a>",
        "<thinkthink",
        "Here is my response:",
        "a" * 19 + "think",
    ],
)
def test_any_text_is_split_in_linear_time(piece: str) -> None:
    def seconds(count: int) -> float:
        best = 1e9
        for _ in range(3):
            began = time.process_time()
            split_thoughts("analysis" * (piece[0] == "a") + piece * count + "x" * count)
            best = min(best, time.process_time() - began)
        return best

    assert seconds(40_000) < 40 * max(seconds(4_000), 1e-3)  # a square would be a hundred times as much


@pytest.mark.parametrize(
    ("scorer", "reference", "right", "thought"),
    [
        ("number", "18", "#### 18", "\\boxed{20}? No, 18."),
        ("choice", "B", "B", "Option A is a stone. No."),
        ("exact", "Paris", "Paris", "Lyon"),
        ("contains", "Paris", "It is Paris.", "Lyon, or Nice?"),
        ("regex", "^Par.s$", "Paris", "Lyon"),
    ],
)
def test_no_scorer_reads_a_thought(scorer: str, reference: str, right: str, thought: str) -> None:
    task = custom_task(scorer, reference)
    example = task.all_examples()[0]
    assert task.score(f"<think>{thought}</think>\n\n{right}", example, "eos") == task.score(right, example, "eos")
    assert task.score(f"<think>{thought}</think>\n\n{right}", example, "eos").outcome == "correct"
    assert task.score(f"<think>{right}</think>\n\nI do not know.", example, "eos").outcome == "wrong"
    for stop_reason in ("eos", "length"):
        assert task.score(f"<think>{right}\n", example, stop_reason).outcome == "truncated"
        assert task.score(f"{right}\n", example, stop_reason, thinking=True).outcome == "truncated"


def test_a_fidelity_task_stays_unscored() -> None:
    task = custom_task("none", None)
    assert task.score("<think>B", task.all_examples()[0], "length").outcome == "unscored"
    assert set(SCORERS) == {"number", "choice", "exact", "contains", "regex", "none"}


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think>b</think>\n\nC",
        "<think>a<think>b</think>c</think>\nC",
        "<think>a</think><think>b</think>C",
        "</think>\n<think>\nB\n</think>C",
    ],
)
def test_thoughts_that_are_closed_twice_or_nested_leave_the_last_answer(text: str) -> None:
    split = split_thoughts(text)
    assert (split.answer.strip(), split.is_open) == ("C", False)


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
        "Fields that are not used: 'reference' (1 line).",
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
    assert "Tool 1 is no function" in checked({"prompt": "a", "tools": [{"title": "f"}]}).problems[0].sentence
    assert checked({"prompt": "a", "tools": "a hammer"}).notes == ("Fields that are not used: 'tools' (1 line).",)
