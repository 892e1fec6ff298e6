"""Weights of tri-grams, learned while a text is written."""

from __future__ import annotations

from collections.abc import Sequence

from fsd_core.config.drafting.trigram import TrigramDrafter
from fsd_core.models.trigrams import TrigramCounts

Pair = tuple[int, int]
_MOST_PAIRS = 100_000
"""learned pairs that are kept, those learned last"""


class TrigramTable:
    """Which tokens may follow two others, and with which weights; see :class:`TrigramDrafter`."""

    def __init__(self, settings: TrigramDrafter, counts: TrigramCounts | None = None) -> None:
        """``counts``: of training texts, which it begins with."""
        self._settings, self._counts = settings, counts
        self._learned: dict[Pair, dict[int, float]] = {}  # the pair learned last at the end

    def learn(self, tokens: Sequence[int]) -> None:
        """Add the tri-grams of ``tokens``, each as often as it occurs."""
        step, cap = self._settings.step, self._settings.cap
        if not step:
            return
        for first, second, token in zip(tokens, tokens[1:], tokens[2:], strict=False):
            following = self._learned.pop((first, second), {})
            following[token] = min(cap, following.get(token, 0.0) + step)
            self._learned[first, second] = following
        while len(self._learned) > _MOST_PAIRS:
            del self._learned[next(iter(self._learned))]

    def weights(self, pair: Pair) -> dict[int, float]:
        """Return the weights of the tokens that may follow a pair."""
        weights = {} if self._counts is None else self._counts.following(pair)
        for token, weight in self._learned.get(pair, {}).items():
            weights[token] = min(self._settings.cap, weights.get(token, 0.0) + weight)
        return weights

    def successors(self, pair: Pair) -> list[tuple[int, float]]:
        """Return the heaviest successors of a pair with their probabilities, the likeliest first."""
        heaviest = sorted(self.weights(pair).items(), key=lambda item: (-item[1], item[0]))[
            : self._settings.most_successors
        ]
        total = sum(weight for _, weight in heaviest)
        return [(token, weight / total) for token, weight in heaviest]

    def forget(self) -> None:
        """Drop what was learned."""
        self._learned.clear()
