"""Marks of thoughts are found in a model's own chat template: what it leaves out of earlier answers is thought."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from fsd_core.models import prompt
from fsd_core.models.conversation import MARKS, THOUGHT_MARKS, kept_marks, read_marks, split_thoughts
from fsd_core.models.prompt import load_tokenizer, template_marks
from fsd_core.tasks import get_task
from fsd_core.testing import toy_tokenizer
from tests.tools.sizes import PATIENCE

QWEN = """{%- set ns = namespace(last=messages|length - 1) %}{%- for message in messages %}
{%- set content = message.content %}
{%- if message.role == 'assistant' and '</think>' in content %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
BETWEEN = """{% for m in messages %}{% set c = m.content %}{% if m.role == 'assistant' and 'OPEN' in c %}
{%- set c = c.split('OPEN')[0] + c.split('CLOSE')[-1] %}{% endif %}<|{{ m.role }}|>{{ c }}{% endfor %}<|assistant|>"""
PLAIN = "{% for m in messages %}<tool_call>{{ m.role }}</tool_call>{{ m.content }}<|end|><|start|>{% endfor %}"


def between(begin: str, end: str) -> str:
    return BETWEEN.replace("OPEN", begin).replace("CLOSE", end)


@pytest.fixture(autouse=True)
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "TEMPLATE_SECONDS", PATIENCE)


def of(template: str | None) -> PreTrainedTokenizerFast:
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("template", "marks"),
    [
        (QWEN, (("<think>", "</think>"),)),  # the begin mark stands in prompts alone
        (between("<ponder>", "</ponder>"), (("<ponder>", "</ponder>"),)),
        (between("[MUSE]", "[/MUSE]"), (("[MUSE]", "[/MUSE]"),)),
        (between("<|begin_of_muse|>", "<|end_of_muse|>"), (("<|begin_of_muse|>", "<|end_of_muse|>"),)),
        (between("<|muse>", "<muse|>"), (("<|muse>", "<muse|>"),)),
        (PLAIN, ()),
        ("{{ messages[0]['content'] }}", ()),
        ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}<a></a>", ()),
        ("{{ raise_exception('No.') }}<a></a>", ()),
        ("{{ messages[0].content </a> ", ()),
        (None, ()),
    ],
)
def test_what_a_template_leaves_out_of_earlier_answers_is_thought(
    template: str | None, marks: tuple[tuple[str, str], ...]
) -> None:
    assert template_marks(of(template)) == marks
    assert read_marks(kept_marks(marks).get(THOUGHT_MARKS)) == marks


def test_a_template_that_never_ends_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "TEMPLATE_SECONDS", 0.5)
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    assert template_marks(of(f"<a></a>{loop}")) == ()


@pytest.mark.parametrize("text", [None, "", "<a>", "<a> … ", "; ; …", 5, "<a> … </a>; … b"])
def test_what_is_stored_otherwise_is_no_mark(text: object) -> None:
    assert read_marks(text) == ((("<a>", "</a>"),) if text == "<a> … </a>; … b" else ())


def test_a_task_reads_the_marks_of_the_model_before_those_of_families() -> None:
    task, marks = get_task("arithmetic"), (("[MUSE]", "[/MUSE]"),)
    example = task.all_examples()[0]
    own = task.of_model(kept_marks(marks))
    text = f"[MUSE]It is\n#### 1\n[/MUSE]#### {example.reference}"
    assert split_thoughts(text, marks=own.thought_marks).answer == f"#### {example.reference}"
    assert own.score("[MUSE]It is\n#### 1", example, "eos").outcome == "truncated"
    assert task.score("[MUSE]It is\n#### 1", example, "eos").outcome == "wrong"  # the one of other models stays
    assert own.score("<think:a>#### 1", example, "eos").outcome == "truncated"
    assert task.thought_marks is MARKS


def test_a_mark_that_is_a_special_token_stays_in_texts(tmp_path: Path) -> None:
    tokenizer = of(between("<|muse_start|>", "<|muse_end|>"))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|muse_start|>", "<|muse_end|>", "<|other|>"]})
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    ids = loaded("<|muse_start|>A<|muse_end|><|other|>B", add_special_tokens=False)["input_ids"]
    assert loaded.decode(ids, skip_special_tokens=True) == "<|muse_start|>A<|muse_end|>B"
