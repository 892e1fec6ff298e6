"""Drafting by copying what followed the longest matches of the text's end, as far as they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fsd_core.config.drafting.base import CopyingDrafter
from fsd_core.config.drafting.run_memory import Memory, memory_option
from fsd_core.frozen import option

END_OF_TEXT = -1
"""stands behind each earlier answer; no token"""
_MOST_PLACES = 32
"""occurrences of a match that are looked at, the latest"""


class Matched(NamedTuple):
    """A match of the text's end, and what it proposes."""

    expected: float
    """accepted tokens, if the text goes on as the occurrences did"""
    draft: list[int]
    text: list[int]
    """earlier answers and the text itself"""
    places: list[int]
    """where its occurrences go on, the latest first"""
    most: int
    """tokens that it may propose"""


class SuffixDrafter(CopyingDrafter):
    """Copies what most often followed the longest matches of the text's end, in the prompt and in the answer so far.

    Suffix decoding (Oliaro et al. 2024, "SuffixDecoding", arXiv 2411.04975), on one text: a match of p tokens proposes
    up to ``factor`` · p tokens, each the most frequent behind those before it, as long as the share of the occurrences
    that go on like this is at least ``least``. The sum of these shares is the number of tokens that would be accepted
    if the text went on as its occurrences did; the match with the largest sum is taken. With the memory ``run`` the
    latest earlier answers of the run are looked through like the text. What is drafted then depends on the order of the
    prompts, so it is for texts that do not depend on the draft: at temperature 0, with a lossless rule.

    A search tree branches where a chain takes the most frequent token, in the match that a chain would copy.
    """

    has_successors = True
    title, word, implementation = "Suffix", "suffix", "fsd_core.drafters.suffix_proposer:SuffixProposer"
    kind: Literal["suffix"] = "suffix"
    longest: int = option(
        24, "Longest match", "Longest end of the text that the drafter 'suffix' looks for", name="longest_match",
        ge=1, le=64,
    )  # fmt: skip
    factor: float = option(
        2.0, "Tokens per matched token", "Tokens drafted per matched token", name="match_factor", ge=0.25, le=8
    )
    least: float = option(
        0.1, "Least share", "Least share of occurrences that go on as drafted", name="least_share", ge=0, le=1
    )
    memory: Memory = memory_option()

    @property
    def learns_from_run(self) -> bool:
        return self.memory == "run"

    def copied(self, text: Sequence[int]) -> Sequence[int]:
        return self.continued(text)

    def continued(self, text: Sequence[int], answers: Sequence[int] = ()) -> Sequence[int]:
        """Return the proposed continuation of a text. ``answers``: earlier answers, ``END_OF_TEXT`` behind each."""
        return self.matched(text, answers).draft

    def matched(self, text: Sequence[int], answers: Sequence[int] = ()) -> Matched:
        """Return the match whose draft is expected to keep most tokens; one without places if nothing matches."""
        text = [*answers, *text]
        matches = common_suffixes(text)
        matching = [place for place in range(len(text) - 1, 0, -1) if matches[place] and text[place] != END_OF_TEXT]
        best = Matched(0.0, [], text, [], 0)
        looked_at: list[int] = []
        for length in range(min(max(matches), self.longest), 0, -1):
            places = [place for place in matching if matches[place] >= length][:_MOST_PLACES]
            if places == looked_at:  # a shorter match in the same places proposes no more
                continue
            looked_at, most = places, int(self.factor * length)
            expected, draft = self._likeliest(text, places, most)
            if expected > best.expected:  # of equal ones the longer match, which came first
                best = Matched(expected, draft, text, places, most)
        return best

    def successors_in(self, matched: Matched, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return the tokens that followed a match and the tokens of ``path``, each with its share of the returned ones.

        Of all occurrences of the match, at least the share ``least`` went on with the path and the token. The most
        frequent token comes first, of equally frequent ones the latest.
        """
        if len(path) >= matched.most:
            return ()
        way, step = list(path), len(path)
        written = matched.text + way
        following = Counter(written[place + step] for place in matched.places if written[place : place + step] == way)
        del following[END_OF_TEXT]
        kept = [(token, count) for token, count in following.most_common() if count >= self.least * len(matched.places)]
        total = sum(count for _, count in kept)
        return [(token, count / total) for token, count in kept]

    def _likeliest(self, text: Sequence[int], places: list[int], most: int) -> tuple[float, list[int]]:
        """Return the expected number of accepted tokens and the tokens. ``places``: where occurrences go on, the latest
        first. One that reaches the end of the text goes on with the draft, so that what repeats itself goes on."""
        occurrences, tokens, expected, written = len(places), [], 0.0, list(text)
        while len(tokens) < most:
            step = len(tokens)
            # Of equally frequent tokens the latest.
            following = [token for place in places if (token := written[place + step]) != END_OF_TEXT]
            if not following:
                break
            token, count = Counter(following).most_common(1)[0]
            if count < self.least * occurrences:
                break
            places = [place for place in places if written[place + step] == token]
            tokens.append(token)
            written.append(token)
            expected += count / occurrences
        return expected, tokens


def common_suffixes(text: Sequence[int]) -> list[int]:
    """Return for each place how many tokens before it are the last tokens of the text; 0 at place 0.

    The Z-function of the reversed text (Gusfield 1997), in linear time.
    """
    backwards, size = list(text)[::-1], len(text)
    common, left, right = [0] * size, 0, 0
    for i in range(1, size):
        length = min(right - i, common[i - left]) if i < right else 0
        while i + length < size and backwards[length] == backwards[i + length]:
            length += 1
        common[i] = length
        if i + length > right:
            left, right = i, i + length
    return [0, *common[:0:-1]]
