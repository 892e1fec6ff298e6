"""Lossless speculative decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.rules.base import AcceptanceResult, Rule, residual, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Speculative(Rule):
    """Accept x with probability min(1, p(x)/q(x)), else sample from norm((p−q)₊). The bonus comes from p.

    Leviathan et al. 2023, Chen et al. 2023. Emitted tokens are distributed exactly as the target's samples. With greedy
    decoding they equal the target's, token for token. Acceptance at one position: Σ min(p,q).
    """

    title, long_title, lossless = "SD", "Speculative decoding (SD)", True
    explanation = "Keeps drafted tokens as far as the target agrees. The text has exactly the target's distribution."
    symbol, colour = "diamond", "#3b82f6"
    kind: Literal["speculative"] = "speculative"

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        accepted = strictly(rows, uniforms)
        return AcceptanceResult(accepted, accepted, rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)
