"""EARS: the less sure the target is, the more lenient its test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, AcceptanceResult, Knob, Rule, passes, residual, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Ears(Rule):
    """`ears`: accept iff p(x)/q(x) ≥ u − tol·(1 − max p) (Sun et al. 2025, arXiv 2512.13194).

    A rejected token is resampled from norm((p−q)₊), as in strict decoding. As published, it may accept a token that
    top-k or top-p excludes if the target is unsure.
    """

    title, symbol, shapes = "EARS", "bowtie", (CHAIN,)
    explanation = "The strict test, eased in proportion to how unsure the target is of its likeliest token."
    note = "It can keep a token that top-k or top-p excludes."
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("tolerance", (0.1, 0.2, 0.5), strict=0.0)
    needs_distribution = True
    kind: Literal["ears"] = "ears"
    tolerance: float = option(
        0.2, "Tolerance", "How far the test is eased where the target is unsure; 0 is exact SD", plural="Tolerances",
        ge=0, le=1,
    )  # fmt: skip

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        eased = uniforms - self.tolerance * (1 - rows.target.amax(-1))
        accepted = passes(rows.of_token(rows.target), rows.of_token(rows.draft), eased)
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)
