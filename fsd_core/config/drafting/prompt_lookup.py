"""Drafting by copying what followed the last n-gram's previous occurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fsd_core.config.drafting.base import CopyingDrafter
from fsd_core.frozen import option


class PromptLookupDrafter(CopyingDrafter):
    """Copies what followed the last n-gram's previous occurrence. It needs no draft model.

    Saxena 2023, "Prompt Lookup Decoding".
    """

    title, word = "Prompt lookup", "prompt lookup"
    kind: Literal["prompt-lookup"] = "prompt-lookup"
    max_ngram: int = option(3, "Longest n-gram", "Longest n-gram that prompt-lookup searches for", ge=1, le=8)

    def label_parts(self) -> list[str]:
        is_default = self.max_ngram == type(self).model_fields["max_ngram"].default
        return [self.word if is_default else f"{self.word} {self.max_ngram}-gram"]

    def copied(self, text: Sequence[int]) -> Sequence[int]:
        start = find_continuation(text, self.max_ngram)
        return () if start is None else text[start:]


def find_continuation(history: Sequence[int], max_ngram: int) -> int | None:
    """Return the index after the latest earlier occurrence of the last n tokens, longest n first; or ``None``."""
    end = len(history)
    for n in range(min(max_ngram, end - 1), 0, -1):
        last = list(history[end - n :])
        for start in range(end - n - 1, -1, -1):
            if list(history[start : start + n]) == last:
                return start + n
    return None
