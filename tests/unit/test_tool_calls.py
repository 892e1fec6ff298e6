"""Tools and calls of tools reach the chat template as transformers expects them, or are refused: none is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from fsd_core.errors import ModelUnavailable, UnfitModel
from fsd_core.models.conversation import TOOLS, ToolMessage
from fsd_core.models.prompt import encode_prompt
from fsd_core.testing import toy_tokenizer

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
