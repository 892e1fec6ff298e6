"""The acceptance of a text's recent rounds, and the draft length that pays best at it."""

from __future__ import annotations

from dataclasses import dataclass

_KEPT = 0.9
"""weight of a round against the one after it"""


@dataclass(frozen=True, slots=True)
class RecentAcceptance:
    """Accepted and judged drafted tokens of a text, each round weighing 0.9 of the next: S ← 0.9 S + accepted,
    N ← 0.9 N + judged.

    A text begins as if 4 of 5 tokens had been accepted. The tokens behind a rejected one were not judged.
    """

    accepted: float = 4.0
    judged: float = 5.0

    def after(self, accepted: int, drafted: int) -> RecentAcceptance:
        """Return it after a round that accepted the first ``accepted`` of ``drafted`` tokens."""
        judged = min(accepted + 1, drafted)
        return RecentAcceptance(_KEPT * self.accepted + accepted, _KEPT * self.judged + judged)

    def best_length(self, longest: int, cost: float) -> int:
        """Return the draft length γ of 1 to ``longest`` with the most expected tokens per target forward's time:

        γ = argmax (1 + α + … + α^γ) / (1 + c·γ), with α = S/N (Leviathan et al. 2023, theorem 3.8). Of equal ones the
        shortest. ``cost``: c, the time to draft a token, in target forwards.

        This is a bandit whose arms are the lengths. Every arm drafts the first token, so each round tells of all arms,
        and none has to be tried for its own sake.
        """
        rate = self.accepted / self.judged
        best, tokens, power, best_value = 1, 1.0, 1.0, 0.0
        for length in range(1, longest + 1):
            power *= rate
            tokens += power
            value = tokens / (1 + cost * length)
            if value > best_value:
                best, best_value = length, value
        return best
