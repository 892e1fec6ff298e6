"""From what a user writes to the tokens a model is fed."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from fsd_core.errors import InvalidSetting


def encode_prompt(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a prompt: as a user's message where the tokenizer has a chat template, as it stands elsewhere.

    Raises ``InvalidSetting`` for an empty one.
    """
    if not text.strip():
        raise InvalidSetting("The prompt is empty: write at least one word.")
    special = not tokenizer.chat_template  # a template writes its special tokens itself
    if tokenizer.chat_template:
        message = [{"role": "user", "content": text}]
        text = str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
    return tokenizer(text, add_special_tokens=special, return_token_type_ids=False, verbose=False)["input_ids"]
