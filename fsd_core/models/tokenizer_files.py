"""Tokens of a model's folder, read without its tokenizer. No torch: the pages read this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_LARGEST = 100_000_000
"""bytes; larger tokenizers are compared when they are loaded"""


def differing_tokens(first: Path, second: Path) -> int | None:
    """Return how many ids that both tokenizers have mean different tokens; ``None`` if one cannot be read here.

    One may have more tokens than the other.
    """
    tables = _tokens(first), _tokens(second)
    if tables[0] is None or tables[1] is None:
        return None
    return sum(tables[1].get(index, token) != token for index, token in tables[0].items())


def _tokens(folder: Path) -> dict[int, str] | None:
    """Return the tokens by id."""
    file = folder / "tokenizer.json"
    try:
        if file.stat().st_size > _LARGEST:
            return None
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((t, i) for i, (t, _) in enumerate(vocabulary))
        tokens = {int(index): str(token) for token, index in pairs}
        return tokens | {int(added["id"]): str(added["content"]) for added in content.get("added_tokens", [])}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
