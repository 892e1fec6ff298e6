"""Prompts become tokens quickly, or are refused quickly: whatever their length, and whatever template came along."""

from __future__ import annotations

import time

import pytest
from transformers import PreTrainedTokenizerBase

from fsd_core.errors import InvalidSetting, ModelUnavailable, PromptTooLong
from fsd_core.models import prompt
from fsd_core.models.model_pairs import ASSETS
from fsd_core.models.prompt import encode_prompt
from fsd_core.models.vocabularies import load_tokenizer

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    return load_tokenizer(ASSETS / "bundled" / "target")


@pytest.mark.parametrize("text", ["Eva has 3 apples. " * 600_000, "a" * 10_000_000, "a " * 5_000_000], ids=len)
def test_ten_megabytes_are_refused_at_once(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    begun = time.monotonic()
    with pytest.raises(PromptTooLong, match="shorten it"):
        encode_prompt(tokenizer, text, context=512)
    with pytest.raises(InvalidSetting, match="empty"):
        encode_prompt(tokenizer, " " * 10_000_000, context=512)
    assert time.monotonic() - begun < 2


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
        ("{{ raise_exception('no user here') }}", "TemplateError"),
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
    begun = time.monotonic()
    with pytest.raises(ModelUnavailable, match=r"it ran for 0\.5 s"):
        encode_prompt(tokenizer, "Hello")
    assert time.monotonic() - begun < 2
    tokenizer.chat_template = "<{{ messages[0]['content'] }}>"  # and nothing of it stays
    assert tokenizer.decode(encode_prompt(tokenizer, "Hello")).strip() == "<Hello>"
