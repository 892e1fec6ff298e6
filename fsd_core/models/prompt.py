"""From a user's prompt to the tokens that a model is fed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from fsd_core.errors import InvalidSetting, ModelUnavailable, PromptTooLong

TEMPLATE_SECONDS = 5.0
_LONGEST_REFUSAL = 200
_CHARACTERS_PER_TOKEN = 8
"""characters of a long prompt that are checked first, per token of the context"""
_SLACK = 256
"""tokens by which a prefix may exceed the whole text, since its end may merge with what follows"""


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: str | Sequence[tuple[str, str]], context: int | None = None
) -> list[int]:
    """Return the token ids of a prompt: as a user message if the tokenizer has a chat template, otherwise unchanged. A
    conversation, (role, content) of each message, needs the template. A template that does not know the role developer
    gets its message as one of system.

    Raises ``InvalidSetting`` for an empty prompt, for a conversation without a template, and for one that the template
    refuses; ``ModelUnavailable`` for a template that cannot be rendered or leaves out the prompt; and
    ``PromptTooLong`` for a prompt far beyond ``context`` tokens, before all of it is tokenized.
    """
    if isinstance(prompt, str) and not prompt.strip():
        raise InvalidSetting("The prompt is empty: write at least one word.")
    special = not tokenizer.chat_template  # a template writes its special tokens itself
    if tokenizer.chat_template:
        text = _render(tokenizer, [("user", prompt)] if isinstance(prompt, str) else prompt)
    elif isinstance(prompt, str):
        text = prompt
    else:
        raise InvalidSetting(
            f"The model has no chat template, so it cannot be given a conversation of {len(prompt)} messages: choose a "
            "pair that has one, or write the task with prompts."
        )
    if context is not None:
        _check_prefixes(tokenizer, text, context)
    return _ids(tokenizer, text, special)


def _check_prefixes(tokenizer: PreTrainedTokenizerBase, text: str, context: int) -> None:
    """Raise ``PromptTooLong`` if a prefix of the text, doubled until it is the whole, is already too long."""
    length = _CHARACTERS_PER_TOKEN * context
    while length < len(text):
        if len(_ids(tokenizer, text[:length])) > context + _SLACK:
            raise PromptTooLong(
                f"The prompt has {len(text):,} characters. Its first {length:,} alone exceed the model's context of "
                f"{context} tokens: shorten it."
            )
        length *= 2


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, special: bool = False) -> list[int]:
    return tokenizer(text, add_special_tokens=special, return_token_type_ids=False, verbose=False)["input_ids"]


def _render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[tuple[str, str]]) -> str:
    """Render messages in the tokenizer's chat template. It came with the model, so it may be broken or never end."""
    if any(role == "developer" for role, _ in messages):
        with suppress(InvalidSetting, ModelUnavailable):
            return _render_whole(tokenizer, messages, ("developer", "user", "tool"))
        messages = [("system" if role == "developer" else role, content) for role, content in messages]
    return _render_whole(tokenizer, messages, ("user", "tool"))


def _render_whole(tokenizer: PreTrainedTokenizerBase, messages: Sequence[tuple[str, str]], whole: Sequence[str]) -> str:
    """Render messages, of which the text of the roles ``whole`` has to be there."""
    missing = ""
    for as_parts in (False, True):  # templates of multimodal models may read lists of parts alone
        text = _rendered(tokenizer, messages, as_parts)
        if not (missing := _missing_role(text, messages, whole)):
            return text
    raise ModelUnavailable(
        f"The chat template of the model leaves out what the {missing} says, so different prompts would become the "
        "same: restore it from where it came, or choose another pair."
    )


def _missing_role(text: str, messages: Sequence[tuple[str, str]], whole: Sequence[str]) -> str:
    """Return the first role in ``whole`` that a rendered conversation lacks a message of, or an empty text.

    Templates may change a message's spaces, or quote it as JSON.
    """
    compact = _compact(text)

    def holds(content: str) -> bool:
        return _compact(content) in compact or _compact(json.dumps(content, ensure_ascii=False)[1:-1]) in compact

    return next((role for role, content in messages if role in whole and not holds(content)), "")


def _compact(text: str) -> str:
    return "".join(text.split())


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: Sequence[tuple[str, str]], as_parts: bool) -> str:
    conversation = [
        {"role": role, "content": [{"type": "text", "text": content}] if as_parts else content}
        for role, content in messages
    ]
    try:
        with _time_limit(TEMPLATE_SECONDS):
            return str(tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # Jinja and the code that a template calls raise any exception
        if type(error) is TemplateError:  # by the template's own raise_exception
            raise InvalidSetting(
                f"The chat template of the model refuses this conversation: {str(error)[:_LONGEST_REFUSAL]!r}. Change "
                "the conversation, or choose another pair."
            ) from error
        reason = f"it ran for {TEMPLATE_SECONDS:g} s" if isinstance(error, TimeoutError) else type(error).__name__
        raise ModelUnavailable(
            f"The chat template of the model cannot be used ({reason}): restore it from where it came, or choose "
            "another pair."
        ) from error


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TimeoutError`` in the Python code that the block calls, once its time is up."""
    deadline, previous_trace = time.monotonic() + seconds, sys.gettrace()

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > deadline:
            raise TimeoutError
        return watch

    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(previous_trace)
