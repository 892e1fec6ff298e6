"""A rule for timing the loop with untrained models, such as random weights of a real shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fsd_core.rules.base import AcceptanceResult, Rule

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Synthetic(Rule):
    """Accept with a fixed probability, whatever was drafted; else a sample from p. The text is meaningless.

    With probability a, a round writes (1 − a^(γ+1)) / (1 − a) tokens on average (Leviathan et al. 2023, equation 1).
    """

    title, timing_only = "Synthetic", True
    explanation = "Keeps a drafted token with a set probability, whatever the models say: to time the loop alone."
    kind: Literal["synthetic"] = "synthetic"
    probability: float = Field(default=0.8, ge=0, le=1)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        accepted, of_token = uniforms < self.probability, rows.of_token(rows.target)
        return AcceptanceResult(accepted, accepted, of_token.new_zeros(of_token.shape))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target
