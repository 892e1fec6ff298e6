"""From a user's prompt to the tokens that a model is fed."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from fsd_core.config import TemplateConfig
from fsd_core.errors import NotGiven, PromptTooLong, UnfitModel
from fsd_core.frozen import text_hash
from fsd_core.models.chat_messages import Message
from fsd_core.models.chat_template import render

_CHARACTERS_PER_TOKEN = 8
"""characters of a long prompt that are checked first, per token of the context"""
_SLACK = 256
"""tokens by which a prefix may exceed the whole text, since its end may merge with what follows"""


_DEFAULT = TemplateConfig()


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str | Sequence[Message],
    context: int | None = None,
    template: TemplateConfig = _DEFAULT,
) -> list[int]:
    """Return the token ids of a prompt: as a user message if the tokenizer has a chat template, otherwise unchanged. A
    conversation needs the template. ``template`` says how it is rendered. A template that does not know the role
    developer gets its message as one of system.

    Raises ``InvalidSetting`` for an empty prompt, for a conversation or arguments without a template, for arguments
    that the template does not read, and for a conversation that it refuses; ``ModelUnavailable`` for a template that
    cannot be rendered or leaves out the prompt; and ``PromptTooLong`` for a prompt far beyond ``context`` tokens,
    before all of it is tokenized.
    """
    text, special = render_prompt(tokenizer, prompt, template)
    if context is not None:
        _check_prefixes(tokenizer, text, context)
    return _ids(tokenizer, text, special)


def render_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: str | Sequence[Message], template: TemplateConfig = _DEFAULT
) -> tuple[str, bool]:
    """Return the text that a model reads, and whether the tokenizer adds its special tokens to it.

    Raises as :func:`encode_prompt` does, but for length.
    """
    if isinstance(prompt, str) and not prompt.strip():
        raise NotGiven("The prompt is empty: write at least one word.")
    special = not tokenizer.chat_template  # a template writes its special tokens itself
    if tokenizer.chat_template:
        text = render(tokenizer, [("user", prompt)] if isinstance(prompt, str) else prompt, template)
    elif template.arguments:
        raise UnfitModel(
            "The model has no chat template, so nothing reads the template arguments: leave them out, or choose a pair "
            "that has one."
        )
    elif isinstance(prompt, str):
        text = prompt
    else:
        raise UnfitModel(
            f"The model has no chat template, so it cannot be given a conversation of {len(prompt)} messages: choose a "
            "pair that has one, or write the task with prompts."
        )
    return text, special


def prompt_hash(ids: Sequence[int]) -> str:
    """Return 16 hex digits that tell a prompt, as it was rendered and tokenized, from every other one."""
    return text_hash(" ".join(map(str, ids)))


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
    ids = tokenizer(text, add_special_tokens=special, return_token_type_ids=False, verbose=False)["input_ids"]
    end = tokenizer.eos_token_id if special else None
    if special and ids[:1] == [tokenizer.bos_token_id] == ids[1:2]:
        ids = ids[1:]  # the prompt begins with the token already
    # Some tokenizers end each text, as training wants it. A prompt that has ended is not continued.
    return ids[:-1] if end is not None and ids[-1:] == [end] and not text.endswith(str(tokenizer.eos_token)) else ids
