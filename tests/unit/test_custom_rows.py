"""Rows of people's own files: what their fields hold, and which conversation they ask."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsd_core.tasks.base import Messages
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import CheckedFile, check
from fsd_core.tasks.custom.rows import FieldNames
from fsd_core.tasks.custom.scorers import get_scorer

CHAT = (("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Why?"))


def shape_lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def checked(*rows: object, scorer: str | None = None, **names: str) -> CheckedFile:
    return check(shape_lines(*rows), scorer, FieldNames(**names))


def shape_problems(*rows: object, scorer: str | None = None, **names: str) -> list[str]:
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
    assert shape_problems({"n": 1, "m": 2}) == [
        "Line 1: It has neither prompt nor messages. Name the field that is asked with --prompt-field, one of 'n', 'm'."
    ]
    told = "Line 1: It has no field 'qustion': expected one of 'question', 'answer'."
    assert shape_problems(row, prompt="qustion") == [told]
    assert shape_problems(row, row, row, prompt="qustion") == [f"{told} So it is with 2 other lines: 2, 3."]
    (sentence,) = shape_problems(row, {"prompt": "a"}, row)
    assert sentence.startswith("Line 1: It has neither prompt nor messages.")
    assert sentence.endswith(" So it is with 1 other line: 3.")
    assert shape_problems(row, scorer="exact", prompt="question", reference="x")[0].startswith(
        "Line 1: It has no field 'x'"
    )
    assert "and 59,990 more" in shape_problems({f"f{i}": 1 for i in range(60_000)})[0]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("promt", "prompt"), ("Prompts", "prompt"), ("message", "messages"), ("conversation", "conversations")],
)
def test_a_misspelt_prompt_is_told(wrong: str, right: str) -> None:
    assert shape_problems({"prompt": "fine"}, {wrong: "a", "x": 1})[0].endswith(f", or rename '{wrong}' to {right}.")


def test_fields_that_are_not_read_are_told() -> None:
    file = checked({"prompt": "a", "source": "web", "empty": None}, {"prompt": "b", "level": 3, "scorer": "exact"})
    assert file.problems == ()
    assert file.notes == (
        "Fields that are not used: 'scorer' (1 line; a first line of its own names the scorer), 'source' (1 line), "
        "'level' (1 line).",
    )
    assert checked({"prompt": "a", "refrence": 5, "ID": "x", "a": 1}).notes == (
        "Fields that are not used: 'ID' (1 line; is it id?), 'refrence' (1 line; is it reference?), 'a' (1 line).",
    )
    right = {"prompt": "a", "reference": "b", "preference": "c", "\x1b[31m": 1}
    assert checked(right, scorer="exact").notes == (
        "Fields that are not used: '\\x1b[31m' (1 line), 'preference' (1 line).",
    )
    many = checked({"prompt": "a"} | {f"f{i:05}": 1 for i in range(60_000)} | {"refrence": 1})
    assert many.notes[0].endswith("'f00008' (1 line), 'f00009' (1 line) and 59,991 more.")
    assert shape_problems({"prompt": "a", "refrence": 5}, scorer="number")[0].startswith("Line 1: It has no reference")


def test_content_in_parts_is_a_text_if_all_parts_are() -> None:
    parts = [{"type": "text", "text": "What"}, {"type": "text", "text": "is it?"}]
    assert asked(chat(("user", parts))) == "What\nis it?"
    image = [*parts, {"type": "image_url", "image_url": {"url": "a.png"}}]
    for content, kind in ((image, "image_url"), (["a"], "None"), ([{"type": "text"}], "text")):
        assert shape_problems(chat(("user", content))) == [
            f"Line 1: Message 1 has a part of type '{kind}': expected text, calls or results of tools."
        ]
    assert "Its message 1 is empty" in shape_problems(chat(("user", [])))[0]
    said = [{"type": "input_text", "text": "Why?"}], [{"type": "output_text", "text": "So."}]
    assert asked(chat(("user", said[0]), ("assistant", said[1]), ("user", "Oh?")))[:2] == (
        ("user", "Why?"),
        ("assistant", "So."),
    )


def test_lines_with_a_part_that_is_not_read_are_one_problem_of_each_type() -> None:
    rows = [
        chat(("user", [{"type": kind}, {"type": "text", "text": f"What is {n}?"}]))
        for n, kind in enumerate(["image", "document", "image", "image"])
    ]
    told = "has a part of type '{}': expected text, calls or results of tools."
    assert shape_problems({"prompt": "fine"}, *rows, scorer="none") == [
        f"Line 2: Message 1 {told.format('image')} So it is with 2 other lines: 4, 5.",
        f"Line 3: Message 1 {told.format('document')}",
    ]


def test_chats_of_sharegpt_are_conversations() -> None:
    turns = ("system", "Be brief."), ("human", "Hi"), ("gpt", "Yes?"), ("human", "Why?")
    assert asked(sharegpt(*turns)) == CHAT
    assert asked({"chat": sharegpt(*turns)["conversations"]}, prompt="chat") == CHAT
    assert "The role of message 1 is not known" in shape_problems(sharegpt(("alien", "a")))[0]


@pytest.mark.parametrize(
    "turns", [sharegpt(("human", "2 + 3?"), ("gpt", "5")), chat(("user", "2 + 3?"), ("assistant", "5"))]
)
def test_the_answer_at_the_end_is_the_reference_where_one_is_needed(turns: dict[str, Any]) -> None:
    plain, scored, given = (
        checked(row, scorer=scorer)
        for row, scorer in ((turns, None), (turns, "number"), (turns | {"reference": 6}, "number"))
    )
    assert [file.lines[0].model_input for file in (plain, scored, given)] == ["2 + 3?"] * 3
    assert [file.lines[0].reference for file in (plain, scored, given)] == ["5", "5", "6"]
    left_out = "1 conversation ended with an answer, which is not asked: it is left out."
    assert (checked(turns, scorer="none").notes, given.notes) == ((left_out,), (left_out,))
    assert (plain.scorer, plain.lines) == ("number", scored.lines)
    assert all(file.notes[-1].endswith("it is the reference where there is no other.") for file in (plain, scored))


def test_batches_for_an_openai_server_are_read() -> None:
    body = {"model": "m", "max_tokens": 5} | chat(*CHAT)
    file = checked({"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": body})
    (line,) = file.lines
    assert (line.id, line.model_input) == ("request-1", CHAT)
    assert file.notes == (
        "Fields that are not used: 'max_tokens' (1 line), 'method' (1 line), 'model' (1 line), 'url' (1 line).",
    )
    assert asked({"custom_id": "a", "body": {"prompt": "Why?"}}) == "Why?"
    assert asked({"custom_id": "a", "body": {"input": "Why?"}}) == "Why?"
    assert "one of 'custom_id', 'model'." in shape_problems({"custom_id": "a", "body": {"model": "m"}})[0]
    assert asked({"custom_id": "a", "body": "Why?"}) == asked({"id": "a", "body": "Why?"}, prompt="body") == "Why?"


def test_developers_and_tools_speak_in_conversations() -> None:
    turns = ("developer", "Be brief."), ("user", "Rain?"), ("assistant", "weather()"), ("tool", '{"rain": 1}')
    assert asked(chat(*turns)) == turns
    assert asked(chat(*turns, ("tool", "dry"), ("assistant", "Yes."), ("user", "Sure?")))[-1] == ("user", "Sure?")
    again = check(checked(chat(*turns)).content.encode())
    assert (again.problems, again.lines[0].model_input) == ((), turns)
    row = {"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": None},
                        {"role": "tool", "content": "1"}]}  # fmt: skip
    assert shape_problems(row) == ["Line 1: Message 2 has no content: expected a text."]
    row["messages"][1] = {"role": "assistant", "content": "weather()", "name": "x"}
    assert checked(row).notes == ("Fields that are not used: 'messages.name' (1 line).",)


def test_a_file_names_the_marks_of_thoughts_and_the_categories_of_its_lines() -> None:
    rows = [
        {"scorer": "exact", "thought_marks": [["<plan>", "</plan>"]]},
        {"prompt": "One", "reference": "a", "category": "short"},
        {"prompt": "Two", "reference": "b"},
    ]
    file = check(shape_lines(*rows))
    assert (file.problems, file.notes) == ((), ())
    task = CustomTask.of("x", file)
    again = CustomTask(task.view, lambda: task.content)
    for read in (task, again):
        first, second = read.all_examples()
        assert (first.category, second.category) == ("short", "")
        assert read.score("<plan>b? No.</plan>\na", first, "eos").outcome == "correct"
        assert read.score("<plan>a", first, "length").outcome == "truncated"
        assert read.score("<think>b</think>a", first, "eos").outcome == "wrong"  # no mark of this task's model
    plain = CustomTask.of("x", check(shape_lines({"scorer": "exact"}, rows[2])))
    assert plain.view.version != CustomTask.of("x", check(shape_lines(rows[0], rows[2]))).view.version
    assert plain.score("<think>a</think>b", plain.all_examples()[0], "eos").outcome == "correct"


@pytest.mark.parametrize("marks", ["<plan>", [["<plan>"]], [["", "</plan>"]], [[1, 2]], [["a", "b"]] * 11, {"a": "b"}])
def test_marks_that_cannot_be_used_are_told(marks: object) -> None:
    (first, *_) = shape_problems({"scorer": "none", "thought_marks": marks}, {"prompt": "One"})
    assert "Line 1: The thought_marks cannot be used" in first


@pytest.mark.parametrize("category", [7, "a\nb", "x" * 101, ["a"]])
def test_categories_that_cannot_be_used_are_told(category: object) -> None:
    (first,) = shape_problems({"prompt": "One", "category": category})
    assert "Line 1: Its category cannot be used" in first


def guess_lines(*rows: dict[str, Any]) -> bytes:
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
    data = guess_lines(
        row, row | {key: f"{value} again?" for key, value in row.items() if key == (names.prompt or "prompt")}
    )
    file = check(guess_lines(row))
    taken = {own: name for name, own in file.fields}
    assert (file.problems, file.scorer) == ((), scorer or "none")
    assert (taken.get("prompt"), taken.get("reference")) == (
        names.prompt or next(k for k in row if k in ("prompt", "messages")),
        names.reference or ("reference" if "reference" in row else None),
    )
    assert (check(data).fields, check(data).scorer) == (file.fields, file.scorer)


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
    assert (check(file).scorer, check(file).problems) == (scorer, ())
    assert get_scorer(scorer).read(reference) == read


@pytest.mark.parametrize("reference", ["There were 3 apples and 4 pears in 1999.", "Call 555-0199 at 8 pm, then wait."])
def test_a_text_with_numbers_and_no_answer_is_no_number(reference: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        get_scorer("number").read(reference)


def test_one_reference_that_is_no_number_makes_them_texts() -> None:
    file = check(guess_lines({"question": "a", "answer": 7}, {"question": "b", "answer": "seven"}))
    assert file.scorer == "contains"
    assert file.notes[0].endswith("Scorer: Contains, since every reference is short.")


def test_what_the_file_says_itself_is_not_guessed() -> None:
    file = check(guess_lines({"scorer": "exact"}, {"question": "a", "answer": 7}))
    assert (file.scorer, file.notes) == ("exact", ("Prompt: question. Reference: answer.",))


@pytest.mark.parametrize(
    "data", [b"", b"no json", b"[1, 2]", b'{"n": 1}', b"\xff\xfe", guess_lines({"a": "x"}, {"b": "y"})]
)
def test_nothing_is_guessed_of_what_cannot_be_read(data: bytes) -> None:
    assert check(data).problems
    assert all(own != "prompt" for _, own in check(data).fields)


ALPACA = [{"instruction": "Add the numbers.", "input": f"{n} + 1", "output": str(n + 1)} for n in (2, 3)]
DOLLY = [
    {"instruction": "Who won?", "context": "Ada won in May.", "response": "Ada", "category": "closed_qa"},
    {"instruction": "Name a colour.", "context": "", "response": "Red", "category": "open_qa"},
]


def test_what_stands_beside_an_instruction_belongs_to_the_prompt() -> None:
    file = checked(*ALPACA)
    assert [line.model_input for line in file.lines] == ["Add the numbers.\n\n2 + 1", "Add the numbers.\n\n3 + 1"]
    assert (file.problems, file.scorer, file.lines[0].reference) == ((), "number", "3")
    assert file.fields == (("instruction", "prompt"), ("input", "context"), ("output", "reference"))
    file = checked(*DOLLY)
    assert [line.model_input for line in file.lines] == ["Who won?\n\nAda won in May.", "Name a colour."]
    assert (file.lines[0].category, file.scorer) == ("closed_qa", "contains")
    named = checked(*ALPACA, scorer="number", prompt="instruction", reference="output")
    assert named.lines == checked(*ALPACA).lines
    assert asked({"prompt": "Read: Ada won. Who?", "context": "Ada won."}) == "Read: Ada won. Who?"
    assert asked({"input": "Why?", "output": "So."}) == "Why?"
    assert asked({"question": "Is it?", "passage": "It is."}) == "Is it?\n\nIt is."
    ends = {"ctx": "He goes", "endings": ["up", "down"], "label": "1"}
    assert (asked(ends), checked(ends).lines[0].reference) == ("He goes\nA. up\nB. down\nAnswer:", "B")
    rows = [{"title": city, "paragraphs": [{"text": "x"}]} for city in ("Rome", "Ulm")]
    assert "one of 'title', 'paragraphs'." in shape_problems(*rows)[0]


def test_a_system_beside_a_conversation_belongs_to_the_prompt() -> None:
    talk = sharegpt(("human", "Hi"), ("gpt", "Yes?"), ("human", "Why?"))
    blocks = [{"type": "text", "text": "Be brief."}]
    anthropic = {"model": "m", "system": blocks, "messages": chat(*CHAT[1:])["messages"]}
    assert asked({"system": "Be brief."} | talk) == CHAT
    assert asked({key: value for key, value in anthropic.items() if key != "model"}) == CHAT
    assert asked({"custom_id": "a", "params": anthropic}) == CHAT
    assert asked({"system_prompt": "Be brief.", "question": "Why?"}) == (CHAT[0], ("user", "Why?"))
    within = checked({"system": "Else."} | chat(*CHAT))
    assert (within.lines[0].model_input, within.notes) == (CHAT, ("Fields that are not used: 'system' (1 line).",))


def test_calls_and_observations_of_sharegpt_are_roles() -> None:
    call = json.dumps({"name": "rain", "arguments": {"in": "Ulm"}})
    tools = json.dumps([{"name": "rain", "description": "d", "parameters": {}}])
    turns = ("human", "Rain?"), ("function_call", call), ("observation", "dry"), ("gpt", "No.")
    file = checked(sharegpt(*turns) | {"tools": tools}, scorer="contains")
    (first, *rest) = file.lines[0].model_input
    assert file.problems == ()
    assert first[2] == json.dumps({"tools": [{"type": "function", "function": json.loads(tools)[0]}]})
    assert [message[:2] for message in rest] == [("user", "Rain?"), ("assistant", ""), ("tool", "dry")]
    assert json.loads(rest[1][2])["tool_calls"][0]["function"] == json.loads(call)
    assert file.lines[0].reference == "No."
    plain = chat(("user", "a"), ("function_call", "rain()"), ("function", "dry"))
    assert asked(plain) == (("user", "a"), ("assistant", "rain()"), ("tool", "dry"))


def test_calls_and_results_of_anthropic_are_those_of_openai() -> None:
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "rain", "input": {"in": city}} for n, city in enumerate("UB")]
    results = [
        {"type": "tool_result", "tool_use_id": "t0", "content": "dry"},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "wet"}], "is_error": True},
    ]
    then = {"type": "text", "text": "And now?"}
    turns = ("user", "Rain?"), ("assistant", [{"type": "text", "text": "I look."}, *uses]), ("user", [*results, then])
    file = checked(chat(*turns, ("assistant", [{"type": "text", "text": "Both."}])))
    calls = [
        {"id": f"t{n}", "type": "function", "function": {"name": "rain", "arguments": {"in": city}}}
        for n, city in enumerate("UB")
    ]
    theirs = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "t0", "content": "dry"},
        {"role": "tool", "tool_call_id": "t1", "content": "wet"},
        {"role": "user", "content": "And now?"},
    ]
    assert (file.problems, file.lines[0].reference) == ((), "Both.")
    assert file.lines[0].model_input == asked({"messages": theirs})
    assert "Fields that are not used: 'messages.is_error' (1 line)." in file.notes
    alone = chat(("user", "Rain?"), ("assistant", uses[:1]), ("user", results[:1]))
    assert [message[:2] for message in asked(alone)] == [("user", "Rain?"), ("assistant", ""), ("tool", "dry")]
    image = {"type": "tool_result", "tool_use_id": "t0", "content": [{"type": "image"}]}
    (sentence,) = shape_problems(chat(turns[0], ("assistant", uses[:1]), ("user", [image])))
    assert "has a part of type 'image'" in sentence


def test_a_call_of_a_function_as_it_once_was_is_a_call() -> None:
    call = {"name": "rain", "arguments": '{"in": "Ulm"}'}
    talk = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "rain", "content": "dry"},
    ]
    tools, _, called, result = asked({"messages": talk, "functions": [{"name": "rain", "parameters": {}}]})
    assert json.loads(tools[2])["tools"][0]["function"]["name"] == "rain"
    assert json.loads(called[2])["tool_calls"][0]["function"] == {"name": "rain", "arguments": {"in": "Ulm"}}
    assert result == ("tool", "dry", '{"name": "rain"}')


def test_what_an_object_asks_is_asked_and_its_outputs_are_the_reference() -> None:
    """As in datasets of LangSmith, in rows of the hub, and in preferences."""
    plain = [{"id": f"{n}", "inputs": {"question": f"{n} + 1?"}, "outputs": {"answer": n + 1}} for n in (2, 3)]
    packed = [{name: json.dumps(value) for name, value in row.items()} for row in plain]
    for rows in (plain, packed, [{"row_idx": 1, "row": row["inputs"] | row["outputs"]} for row in plain]):
        file = checked(*rows)
        assert (file.problems, file.scorer) == ((), "number")
        assert [(line.model_input, line.reference) for line in file.lines] == [("2 + 1?", "3"), ("3 + 1?", "4")]
    label = {"inputs": {"ticket": "My invoice is wrong."}, "outputs": {"category": "billing"}}
    assert [(line.model_input, line.reference) for line in checked(label).lines] == [
        ("My invoice is wrong.", "billing")
    ]
    assert checked(label, prompt="ticket", category="category").lines[0].category == "billing"
    talk = {"inputs": chat(("user", "2 + 3?")), "outputs": chat(("assistant", "5"))}
    assert (asked(talk), checked(talk).lines[0].reference) == ("2 + 3?", "5")
    assert asked({"input": chat(*CHAT), "preferred_output": [{"role": "assistant", "content": "So."}]}) == CHAT
    evals = {"input": chat(*CHAT)["messages"], "ideal": "So."}
    assert (asked(evals), checked(evals).lines[0].reference) == (CHAT, "So.")
    within = {"question": "Why?", "params": {"text": "no", "answer": 3}}
    assert (asked(within), checked(within).lines[0].reference) == ("Why?", None)


@pytest.mark.parametrize(
    ("names", "answers", "right"),
    [
        ("ABCD", ["B", "d"], "BD"),
        (["option_a", "option_b", "option_c", "option_d"], ["Paris", "Bonn"], "BD"),
        (["Option 1", "Option 2", "Option 3", "Option 4"], ["2", "4"], "BD"),
        (["opa", "opb", "opc", "opd"], [1, 3], "BD"),
    ],
)
def test_columns_of_one_choice_each_are_choices(names: Any, answers: list[Any], right: str) -> None:
    given = dict(zip(names, ["Rome", "Paris", "Ulm", "Bonn"], strict=True))
    rows = [{"Question": f"Which {n}?", **given, "Correct Answer": answer} for n, answer in enumerate(answers)]
    file = checked(*rows)
    assert (file.problems, file.scorer) == ((), "choice")
    assert [example.reference for example in CustomTask.of("x", file).all_examples()] == [*right]
    assert file.lines[0].model_input == "Which 0?\nA. Rome\nB. Paris\nC. Ulm\nD. Bonn\nAnswer:"
    named = checked(*rows, prompt=names[0], scorer="none")
    assert named.lines == () or named.lines[0].model_input == "Rome"


def test_columns_that_are_no_choices_stay_fields() -> None:
    for fields in ({"A": "x", "B": "y"}, {"a": 1, "b": 2, "c": 3}, {"B": "x", "C": "y", "D": "z"}):
        assert asked({"question": "Why?", **fields}) == "Why?"
    numbers = [{"question": f"{n}?", "A": 1, "B": 2, "C": 3, "answer": n} for n in (1, 3)]
    assert [line.reference for line in checked(*numbers).lines] == ["A", "C"]
    few = {"question": "Why?", "A": "x", "B": "y", "C": "z", "D": None, "answer": "C"}
    assert asked(few) == "Why?\nA. x\nB. y\nC. z\nAnswer:"


@pytest.mark.parametrize(
    ("choices", "answers"),
    [
        (["Rome", "Paris", "Ulm"], [1, 0]),
        (["Rome", "Paris", "Ulm"], ["1", "0"]),
        (["Rome", "Paris", "Ulm"], ["B", "a"]),
        (["Rome", "Paris", "Ulm"], ["Paris", "Rome"]),
        ('["Rome", "Paris", "Ulm"]', ["Paris", "Rome"]),
        ({"text": ["Rome", "Paris", "Ulm"], "label": ["1", "2", "3"]}, ["2", "1"]),
        ([{"label": "x", "text": "Rome"}, {"label": "y", "text": "Paris"}, {"label": "z", "text": "Ulm"}], ["y", "x"]),
        ({"A": "Rome", "B": "Paris", "C": "Ulm"}, ["B", "A"]),
    ],
)
def test_choices_are_asked_as_letters_and_the_answer_is_one(choices: Any, answers: list[Any]) -> None:
    rows = [{"question": f"Which {i}?", "choices": choices, "answer": answer} for i, answer in enumerate(answers)]
    file = checked(*rows)
    assert (file.problems, file.scorer) == ((), "choice")
    examples = CustomTask.of("x", file).all_examples()
    assert [example.reference for example in examples] == ["B", "A"]
    assert examples[0].prompt == "Which 0?\nA. Rome\nB. Paris\nC. Ulm\nAnswer:"


def test_numbers_that_are_choices_are_texts() -> None:
    rows = [{"question": f"{n} + 1?", "choices": [1, 2, 3], "answer": n + 1} for n in (0, 1)]
    assert [line.reference for line in checked(*rows).lines] == ["A", "B"]
    listed = {"prompt": "Which?\nA) Rome\nB) Paris", "choices": ["Rome", "Paris"], "reference": 1}
    assert (asked(listed), checked(listed).lines[0].reference) == (listed["prompt"], "B")
    for strange in ({"label": 5, "text": ["x"]}, [], [None], "Rome, Paris", ["x"] * 14):
        file = checked({"question": "Which?", "choices": strange, "answer": "x"})
        assert (file.problems, file.lines[0].model_input) == ((), "Which?")


def test_what_a_person_says_that_fields_hold_wins() -> None:
    row = {"question": "a", "answer": "b", "context": "c", "id": "d", "title": "e"}
    taken = dict(checked(row).fields)
    assert taken == {"question": "prompt", "answer": "reference", "context": "context", "id": "id", "title": ""}
    file = checked(row, prompt="title", reference="id", id=None, context=None, choices=None, category="answer")
    (line,) = file.lines
    assert (line.model_input, line.reference, line.id, line.category) == ("e", "d", None, "b")
    assert dict(file.fields) == {
        "question": "",
        "answer": "category",
        "context": "",
        "id": "reference",
        "title": "prompt",
    }
