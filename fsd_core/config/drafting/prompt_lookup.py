"""Drafting by copying what followed the last n-gram's previous occurrence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from fsd_core.config.drafting.base import CopyingDrafter
from fsd_core.frozen import option


class PromptLookupDrafter(CopyingDrafter):
    """Copies what followed the last n-gram's previous occurrence. It needs no draft model.

    Saxena 2023, "Prompt Lookup Decoding".
    """

    title, word, has_successors = "Prompt lookup", "prompt lookup", True
    kind: Literal["prompt-lookup"] = "prompt-lookup"
    max_ngram: int = option(3, "Longest n-gram", "Longest n-gram that prompt-lookup searches for", ge=1, le=8)

    def label_parts(self) -> list[str]:
        is_default = self.max_ngram == type(self).model_fields["max_ngram"].default
        return [self.word if is_default else f"{self.word} {self.max_ngram}-gram"]

    def copied(self, text: Sequence[int]) -> Sequence[int]:
        places = continuations(text, self.max_ngram)
        return text[places[0] :] if places else ()

    def successors(self, text: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return what followed the last n-gram, by how often; of equally frequent tokens the latest first."""
        following = Counter(text[place] for place in continuations(text, self.max_ngram))
        return [(token, count / following.total()) for token, count in following.most_common()]


def continuations(text: Sequence[int], max_ngram: int) -> list[int]:
    """Return the indices after the earlier occurrences of the last n tokens, the latest first. n is the largest, up to
    ``max_ngram``, of which there are any."""
    tokens, longest, places = list(text), 1, list[int]()
    start = 0
    while True:
        try:
            start = tokens.index(tokens[-1], start, -1) + 1
        except ValueError:
            return places[::-1]
        length = 1
        while length < min(max_ngram, start) and tokens[start - 1 - length] == tokens[-1 - length]:
            length += 1
        if length > longest:
            longest, places = length, []
        if length == longest:
            places.append(start)
