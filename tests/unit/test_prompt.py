"""Prompts become tokens quickly or are refused quickly, whatever template came along and whatever it marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from fsd_core.config import TemplateConfig
from fsd_core.config.decoding_config import GIVEN
from fsd_core.errors import Malformed, ModelUnavailable, NotGiven, PromptTooLong, UnfitModel
from fsd_core.models import prompt
from fsd_core.models.conversation import MARKS, THOUGHT_MARKS, kept_marks, read_marks, split_thoughts
from fsd_core.models.model_pairs import ASSETS
from fsd_core.models.prompt import encode_prompt, load_tokenizer, prompt_hash, template_marks
from fsd_core.tasks import get_task
from fsd_core.testing import toy_tokenizer
from tests.tools.sizes import PATIENCE

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    return load_tokenizer(ASSETS / "bundled" / "target")


@pytest.fixture(autouse=True)
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template may take its time, but for the one that never ends."""
    monkeypatch.setattr(prompt, "TEMPLATE_SECONDS", PATIENCE)


@pytest.mark.parametrize("text", ["Eva has 3 apples. " * 600_000, "a" * 10_000_000, "a " * 5_000_000], ids=len)
def test_ten_megabytes_are_refused_at_once(
    tokenizer: PreTrainedTokenizerBase, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is after a beginning of them: what takes time is to make tokens of a text."""
    read, ids = [], prompt._ids
    monkeypatch.setattr(prompt, "_ids", lambda tokenizer, text, *more: read.append(len(text)) or ids(tokenizer, text))
    with pytest.raises(PromptTooLong, match="shorten it"):
        encode_prompt(tokenizer, text, context=512)
    assert 0 < sum(read) < 100_000
    read.clear()
    with pytest.raises(NotGiven):
        encode_prompt(tokenizer, " " * 10_000_000, context=512)
    assert read == []


def test_what_may_fit_is_read_whole(tokenizer: PreTrainedTokenizerBase) -> None:
    for text in ("Eva has 3 apples.", "Eva has 3 apples. " * 200):
        assert encode_prompt(tokenizer, text, context=512) == tokenizer(text)["input_ids"]


def test_a_long_text_of_few_tokens_fits(tokenizer: PreTrainedTokenizerBase) -> None:
    longest = max((t for t in tokenizer.get_vocab() if t.isascii() and t.isalpha()), key=len)
    text = longest * 200
    assert len(text) > 8 * 100
    ids = encode_prompt(tokenizer, text)
    assert encode_prompt(tokenizer, text, context=100) == ids  # not far enough beyond to be refused unread


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ messages[0]['content'] }", "TemplateSyntaxError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ nothing.at.all }}", "UndefinedError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ messages[0]['content'].encode('utf-99') }}", "LookupError"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_told(
    tokenizer: PreTrainedTokenizerBase, template: str, told: str
) -> None:
    tokenizer.chat_template = template
    with pytest.raises(ModelUnavailable, match=rf"chat template .* cannot be used \({told}\)"):
        encode_prompt(tokenizer, "Hello")


def test_a_template_that_never_ends_is_ended(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt, "TEMPLATE_SECONDS", 0.5)
    tokenizer.chat_template = ENDLESS
    with pytest.raises(ModelUnavailable, match=r"it ran for 0\.5 s"):
        encode_prompt(tokenizer, "Hello")
    monkeypatch.setattr(prompt, "TEMPLATE_SECONDS", PATIENCE)
    tokenizer.chat_template = "<{{ messages[0]['content'] }}>"  # and nothing of it stays
    assert tokenizer.decode(encode_prompt(tokenizer, "Hello")).strip() == "<Hello>"


def test_a_template_that_refuses_is_quoted(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{{ messages[0]['content'] }}"
    )
    assert encode_prompt(tokenizer, "Hello") == encode_prompt(tokenizer, [("user", "Hello")])
    with pytest.raises(UnfitModel, match="refuses this conversation: 'System role not supported'"):
        encode_prompt(tokenizer, [("system", "Be brief."), ("user", "Hello")])


def test_a_template_that_reads_parts_gets_parts(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = (
        "{% for part in messages[0]['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
        "{% endfor %}"
    )
    assert encode_prompt(tokenizer, " Hello ") != encode_prompt(tokenizer, "Good bye")
    tokenizer.chat_template = "{{ messages[0]['content'] | trim | replace('\n', ' ') }}"
    assert encode_prompt(tokenizer, " Hello\nyou ") == encode_prompt(tokenizer, "Hello you")


def test_a_template_that_loses_the_prompt_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = "Question: {{ messages[0]['question'] }}"
    with pytest.raises(ModelUnavailable, match="user"):
        encode_prompt(tokenizer, "Hello")


def test_the_day_of_a_template_is_given_and_not_today(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = (
        "  {% macro today() %}{{ strftime_now('%d %B %Y') }}{% endmacro %}\n"
        "Today is {{ today() }}. {{ messages[0]['content'] }}"
    )
    dated = TemplateConfig(date="2024-07-26")
    assert tokenizer.decode(encode_prompt(tokenizer, "Hello")).strip() == "Today is 01 January 2025. Hello"
    assert "26 July 2024" in tokenizer.decode(encode_prompt(tokenizer, "Hello", template=dated))
    assert prompt_hash(encode_prompt(tokenizer, "Hello")) != prompt_hash(
        encode_prompt(tokenizer, "Hello", template=dated)
    )


def test_arguments_reach_the_template(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = (
        "{{ messages[0]['content'] }}{% generation %}{% endgeneration %}"
        "{% if enable_thinking is defined and enable_thinking is false %} [quick]{% endif %}"
    )
    quick = TemplateConfig(arguments='{"enable_thinking": false}')
    assert tokenizer.decode(encode_prompt(tokenizer, "Hello", template=quick)).strip() == "Hello [quick]"
    assert "[quick]" not in tokenizer.decode(encode_prompt(tokenizer, "Hello"))


def test_arguments_that_nothing_reads_are_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    slow = TemplateConfig(arguments='{"enable_thinkin": false}')
    tokenizer.chat_template = "{{ messages[0]['content'] }}{{ enable_thinking }}"
    with pytest.raises(UnfitModel, match="enable_thinking"):
        encode_prompt(tokenizer, "Hello", template=slow)
    tokenizer.chat_template = None
    with pytest.raises(UnfitModel, match="has no chat template"):
        encode_prompt(tokenizer, "Hello", template=slow)


def test_what_may_be_given_and_what_is_offered_are_one_list(tokenizer: PreTrainedTokenizerBase) -> None:
    """``date_string`` would change the day that a template is told: it is not offered, because it is refused."""
    names = " ".join(f"{{{{ {name} }}}}" for name in (*GIVEN, "enable_thinking"))
    tokenizer.chat_template = "{{ messages[0]['content'] }}" + names
    with pytest.raises(UnfitModel, match="enable_thinking"):
        encode_prompt(tokenizer, "Hello", template=TemplateConfig(arguments='{"other": 1}'))
    for name in GIVEN:
        with pytest.raises(Malformed, match=f"'{name}' cannot be given"):
            TemplateConfig.checked(arguments=f'{{"{name}": 1}}')


def test_arguments_of_a_pair_fill_what_a_setting_leaves_out() -> None:
    pair = '{"effort": "low", "enable_thinking": false}'
    assert TemplateConfig().filled(pair).values == {"effort": "low", "enable_thinking": False}
    setting = TemplateConfig(arguments='{"enable_thinking": true}', date="2025-03-01")
    assert setting.filled(pair).values == {"effort": "low", "enable_thinking": True}
    assert setting.filled(pair).date == "2025-03-01"
    assert setting.filled("") is setting


@pytest.mark.parametrize("values", [{"arguments": "no"}, {"arguments": '{"messages": 1}'}, {"arguments": '{"a": []}'}])
def test_arguments_that_cannot_be_given_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(Malformed):
        TemplateConfig.checked(**values)


def test_a_date_is_a_day() -> None:
    with pytest.raises(Malformed, match="today"):
        TemplateConfig.checked(date="today")


CHAT_ML = "{% for m in messages %}{% if m.role in KNOWN %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
DEVELOPED = [("developer", "Be brief."), ("user", "Hello")]


@pytest.mark.parametrize(
    ("template", "role"),
    [
        (CHAT_ML.replace("KNOWN", "['developer', 'user']"), "developer"),
        (CHAT_ML.replace("KNOWN", "['system', 'user']"), "system"),  # leaves the message out
        (
            "{% for m in messages %}{% if m.role == 'developer' %}{{ raise_exception('Unknown role') }}{% endif %}"
            "<{{ m.role }}>{{ m.content }}{% endfor %}",
            "system",
        ),
        (
            "{% for m in messages %}<{{ {'system': 'system', 'user': 'user'}[m.role].upper() }}>{{ m.content }}"
            "{% endfor %}",
            "system",
        ),
    ],
)
def test_a_developer_is_the_system_where_the_template_does_not_know_it(
    tokenizer: PreTrainedTokenizerBase, template: str, role: str
) -> None:
    tokenizer.chat_template = template
    assert encode_prompt(tokenizer, DEVELOPED) == encode_prompt(tokenizer, [(role, "Be brief."), ("user", "Hello")])


def test_a_template_that_refuses_a_developer_even_as_the_system_is_quoted(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = (
        "{% if messages[0]['role'] != 'user' %}{{ raise_exception('Not supported: ' + messages[0]['role']) }}"
        "{% endif %}{{ messages[0]['content'] }}"
    )
    with pytest.raises(UnfitModel, match="Not supported: system"):
        encode_prompt(tokenizer, DEVELOPED)


def test_what_a_tool_says_is_not_left_out(tokenizer: PreTrainedTokenizerBase) -> None:
    turns = [("user", "Rain?"), ("assistant", "weather()"), ("tool", '{"rain": "a\n b"}')]
    tokenizer.chat_template = CHAT_ML.replace("KNOWN", "['user', 'assistant']")
    with pytest.raises(ModelUnavailable, match="tool"):
        encode_prompt(tokenizer, turns)
    for quoted in ("m.content", "m.content | tojson"):
        tokenizer.chat_template = "{% for m in messages %}{{ QUOTED }}{% endfor %}".replace("QUOTED", quoted)
        other = [*turns[:-1], ("tool", "dry")]
        assert encode_prompt(tokenizer, turns) != encode_prompt(tokenizer, other)


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
