"""A chat template has bounds in time and memory that it cannot leave, and is given tools and their calls whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from fsd_core.confined import ProcessEnded
from fsd_core.errors import ModelUnavailable, UnfitModel
from fsd_core.models import prompt
from fsd_core.models.conversation import TOOLS, ToolMessage
from fsd_core.models.prompt import ask_renderer, encode_prompt
from fsd_core.testing import toy_tokenizer
from tests.tools.sizes import PATIENCE

LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLED = (
    "{% set all = namespace(text='a' * 1000) %}{% for i in range(99999) %}{% set all.text = all.text ~ all.text %}"
    "{% endfor %}"
)


def render(template: str, content: str = "Hello", seconds: float = PATIENCE) -> dict[str, Any]:
    said = [{"role": "user", "content": content}]
    request = {"conversations": [said], "tools": None, "chat_template": template, "values": {}}
    return ask_renderer(request, seconds)


def is_rendered() -> None:
    assert render("<{{ messages[0].content }}>") == {"text": "<Hello>"}


@pytest.mark.parametrize("template", ["{{ 'a' * 10**10 }}", DOUBLED])
def test_memory_ends_and_the_next_template_is_rendered(template: str) -> None:
    """The first is folded when the template is compiled, before anything of it is rendered."""
    with pytest.raises(ProcessEnded, match="512 MB of memory"):
        render(template)
    is_rendered()


def test_time_ends_wherever_it_is_spent_and_the_next_template_is_rendered() -> None:
    for template in (LOOP, "{{ (7 ** 9999999) % 10 }}{% set x = 3 ** 99999999 %}"):  # the second within one operation
        with pytest.raises(ProcessEnded, match=r"it ran for 0\.2 s"):
            render(template, seconds=0.2)
    is_rendered()


def test_a_text_longer_than_any_context_is_refused_and_no_secret_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt._renderer, "longest", 1_000_000)
    monkeypatch.setenv("FSD_DATABASE_URL", "postgresql://fsd:secret@db/fsd")
    prompt._renderer.end()  # the next one is started with this bound
    try:
        assert render("{{ 'ä' * 600000 }}") == {"failed": "it writes more than 1,000,000 bytes"}
        is_rendered()
        running = prompt._renderer._running
        assert running is not None
        assert b"secret" not in Path(f"/proc/{running[0].pid}/environ").read_bytes()
    finally:
        prompt._renderer.end()


def test_what_is_nested_without_end_is_told() -> None:
    nested = "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"
    assert render(nested) == {"failed": "RecursionError"}
    assert ask_renderer({"names_of": nested}, PATIENCE) == {"failed": "RecursionError"}


def test_the_names_that_a_template_reads_are_asked_for_within_the_same_bounds() -> None:
    assert ask_renderer({"names_of": "{{ thinking }}{{ messages }}"}, PATIENCE) == {"names": ["messages", "thinking"]}


def test_the_process_dies_and_another_takes_its_place() -> None:
    is_rendered()
    running = prompt._renderer._running
    assert running is not None
    running[0].kill()
    running[0].wait()
    with pytest.raises(ProcessEnded, match="ended the process"):
        render("{{ messages }}")
    is_rendered()


def test_a_forked_process_has_its_own() -> None:
    """As on ZeroGPU, where a forked process renders prompts beside its parent."""
    is_rendered()
    parents = prompt._renderer._running
    assert parents is not None
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        status = 1
        try:
            is_rendered()
            running = prompt._renderer._running
            assert running is not None
            os.write(writer, str(running[0].pid).encode())
            prompt._renderer.end()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(writer)
    with os.fdopen(reader) as stream:
        assert stream.read() != str(parents[0].pid)
    is_rendered()
    assert prompt._renderer._running is parents


READS_TOOLS = (
    "{% if tools %}# Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{% if m.content %}{{ m.content }}{% endif %}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}"
    '<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}{% endif %}{% if m.role == 'tool' %}({{ m.name }}, {{ m.tool_call_id }}){% endif %}\n{% endfor %}"
)
READS_NO_TOOLS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Says it."}}
FUNCTION = {"name": "weather", "arguments": {"city": "São Paulo", "days": 2, "hourly": True}}
CALLED = {"tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]}
RESULT = {"name": "weather", "tool_call_id": "c1"}
CONVERSATION = (
    ToolMessage(TOOLS, "", json.dumps({"tools": [WEATHER]})),
    ("user", "Rain?"),
    ToolMessage("assistant", "", json.dumps(CALLED)),
    ToolMessage("tool", "dry", json.dumps(RESULT)),
)


def tokenizer_with(template: str) -> PreTrainedTokenizerBase:
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def test_the_template_gets_what_transformers_would_give_it() -> None:
    tokenizer = tokenizer_with(READS_TOOLS)
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": "", **CALLED},
        {"role": "tool", "content": "dry", **RESULT},
    ]
    plain = tokenizer.apply_chat_template(messages, tools=[WEATHER], tokenize=False)
    assert tokenizer.decode(encode_prompt(tokenizer, CONVERSATION)) == plain
    assert "São Paulo" in plain
    assert "(weather, c1)" in plain


@pytest.mark.parametrize(
    ("template", "conversation", "lost"),
    [
        (READS_NO_TOOLS, CONVERSATION, "the tools"),
        (READS_NO_TOOLS, CONVERSATION[1:], "the tool_calls of message 2"),
        (READS_TOOLS.replace("c.function.arguments | tojson", "'...'"), CONVERSATION, "the tool_calls of message 3"),
        # The name stands there by chance.
        (READS_NO_TOOLS, (CONVERSATION[0], ("user", "What is the weather?")), "the tools"),
    ],
)
def test_a_template_that_loses_tools_is_refused(template: str, conversation: Any, lost: str) -> None:
    with pytest.raises(UnfitModel, match="model would not see them"):
        encode_prompt(tokenizer_with(template), conversation)


def test_a_template_that_loses_an_earlier_answer_is_refused() -> None:
    only_users = "{% for m in messages if m.role != 'assistant' %}{{ m.content }}\n{% endfor %}"
    asked = ("user", "One"), ("assistant", "<think>Hm.</think>First"), ("user", "Two")
    with pytest.raises(ModelUnavailable, match="assistant"):
        encode_prompt(tokenizer_with(only_users), asked)
    without_thoughts = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}\n{% endfor %}"  # as Qwen3's does
    tokenizer = tokenizer_with(without_thoughts)
    assert tokenizer.decode(encode_prompt(tokenizer, asked)) == "One\nFirst\nTwo\n"
