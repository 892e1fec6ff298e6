"""Text that is shown token by token is the text of all tokens, whatever bytes a model writes."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel

from fsd_core.worker.token_builder import IncrementalText

WORDS = ("▁", "▁▁", "▁foo", "bar", "é", "\ufffd", "▁🙂", "</think>", "<0x0A>x")
DECODERS = {
    "llama-2": decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
    "gemma": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    "mistral": decoders.Metaspace(replacement="▁", prepend_scheme="first"),
    "gpt-2": decoders.ByteLevel(),
    "qwen": decoders.ByteLevel(),
}


def a_tokenizer(name: str) -> Tokenizer:
    """Every byte as a token, a few words, an end token, and for Qwen marks that are no special tokens."""
    if name in ("gpt-2", "qwen"):
        tokens = [*sorted(ByteLevel.alphabet()), "Ġfoo", "bar", "ĠðŁĻĤ", "ðŁ", "âĤ¬"]
        tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    else:
        tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
        vocabulary = {token: i for i, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = DECODERS[name]
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if name == "qwen":
        tokenizer.add_tokens(["<think>"])
    return tokenizer


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    text = IncrementalText(tokenizer)
    return "".join(text.add(token) for token in ids) + text.remaining_text()


@pytest.mark.parametrize("name", DECODERS)
def test_pieces_of_random_bytes_and_words_are_the_whole_text(name: str) -> None:
    tokenizer, rng = a_tokenizer(name), random.Random(0)
    euro = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "€🙂\n".encode()]
    for _ in range(1500):
        ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randrange(1, 14))]
        if None not in euro and rng.random() < 0.5:
            at = rng.randrange(len(ids) + 1)
            ids[at:at] = euro[: rng.randrange(1, len(euro) + 1)]
        assert shown(tokenizer, ids) == tokenizer.decode(ids, skip_special_tokens=True), ids


@pytest.mark.parametrize("name", DECODERS)
def test_words_are_shown_as_they_come(name: str) -> None:
    tokenizer = a_tokenizer(name)
    text, words = IncrementalText(tokenizer), [tokenizer.token_to_id(word) for word in ("bar", "</s>", "bar")]
    assert [text.add(word) for word in words] == ["bar", "", "bar"]
    assert text.remaining_text() == ""
