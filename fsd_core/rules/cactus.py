"""Cactus raises the drafted token's probability as far as a divergence budget allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, AcceptanceResult, Knob, Rule, passes, residual, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Cactus(Rule):
    """`cactus`: accept iff u ≤ h/q(x) with h = min(1, p(x) + √(2δ·p(x)·(1−p(x)))) (Hao, Mou 2026, arXiv 2604.04987).

    h is p(x) raised until the divergence from p is about δ. A rejected token is resampled from p with p(x) set to h and
    the others scaled by (1−h)/(1−p(x)), minus q. This depends on x, so the output has no distribution of the general
    form.
    """

    title, symbol, shapes = "Cactus", "asterisk-open", (CHAIN,)
    explanation = "Raises the target's probability of the drafted token as far as a budget allows, then tests strictly."
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("cactus_budget", (0.1, 0.25, 1.0, 10.0), strict=0.0)
    needs_distribution = True
    kind: Literal["cactus"] = "cactus"
    cactus_budget: float = option(
        0.25, "Cactus budget", "The divergence δ that raises a drafted token; 0 is exact SD", plural="Cactus budgets",
        ge=0, allow_inf_nan=False,
    )  # fmt: skip

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        accepted = passes(self._raised(rows), rows.of_token(rows.draft), uniforms)
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def _raised(self, rows: ScoredDraft) -> Tensor:
        """Return h, [B,R]."""
        p = rows.of_token(rows.target)
        return (p + (2 * self.cactus_budget * p * (1 - p).clamp_min(0)).sqrt()).clamp_max(1)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        raised, p = self._raised(row)[..., None], row.of_token(row.target)[..., None]
        scaled = row.target * ((1 - raised) / (1 - p).clamp_min(1e-30))
        return residual(scaled.scatter(-1, row.tokens[..., None], raised), row.draft)

    def label_parts(self, knob: str) -> list[str]:
        return [f"δ {knob.removeprefix('≤ ')}".strip()]
