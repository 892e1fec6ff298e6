"""Tokens of a tokenizer's file, read without the tokenizer. No torch: the pages read this."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd_core.models.json_files import LARGEST_TOKENIZER
from fsd_core.models.thoughts import is_mark

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"


def tokenizer_folder(model: Path, adapter: Path | None) -> Path:
    """Return the folder of the tokenizer and the chat template in force: an adapter's, if it brings its own."""
    return adapter if adapter is not None and (adapter / "tokenizer_config.json").is_file() else model


def with_marks(tokenizer: Tokenizer, marks: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """Return a tokenizer whose texts hold the marks of thoughts also where its file calls them special tokens: those of
    families, and ``marks``, which the model's own template shows.

    Otherwise a thought cannot be told from the answer behind it. The ids of a text stay the same.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    held = {token.content for token in added if is_mark(token.content)} | {mark for pair in marks for mark in pair}
    if not any(token.special and token.content in held for token in added):
        return tokenizer
    content = json.loads(tokenizer.to_str())
    for token in content["added_tokens"]:
        token["special"] = token["special"] and token["content"] not in held
    return type(tokenizer).from_str(json.dumps(content))


def differing_tokens(first: Path, second: Path) -> int | None:
    """Return how many ids that the tokenizers of two files have mean different tokens; ``None`` if one cannot be read.

    One may have more tokens than the other.
    """
    try:
        stamps = [(stat.st_mtime_ns, stat.st_size) for stat in (first.stat(), second.stat())]
    except OSError:
        return None
    return _differing(first, second, *stamps)


@lru_cache(maxsize=64)
def _differing(first: Path, second: Path, *stamps: tuple[int, int]) -> int | None:
    """See :func:`differing_tokens`. A list of pairs asks at every poll, so files are read again when ``stamps``, their
    times and sizes, have changed."""
    if any(size > LARGEST_TOKENIZER for _, size in stamps):
        return None
    tables = _tokens(first), _tokens(second)
    if tables[0] is None or tables[1] is None:
        return None
    return sum(tables[1].get(index, token) != token for index, token in tables[0].items())


def _tokens(file: Path) -> dict[int, str] | None:
    """Return the tokens of a tokenizer by id."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((t, i) for i, (t, _) in enumerate(vocabulary))
        tokens = {int(index): str(token) for token, index in pairs}
        return tokens | {int(added["id"]): str(added["content"]) for added in content.get("added_tokens", [])}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
