"""SGLang's two acceptance thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import AcceptanceResult, Knob, Rule, residual, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class ThresholdAccept(Rule):
    """`threshold-accept`: accept x iff u < p(x)/t_acc, or p(x) ≥ t_single.

    SGLang's `--speculative-accept-threshold-acc` and `-single`. As in SGLang, the draft proposes its likeliest tokens,
    so q = 1 on x. A rejected token is resampled from p without x. At 1 and 1 it is strict decoding of such drafts.
    """

    title, symbol = "Threshold accept", "square-cross"
    explanation = (
        "Keeps the draft's likeliest token with a raised probability, and always where the target gives it enough."
    )
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("threshold_acc", (0.9, 0.7, 0.5, 0.3), strict=1.0, rising=False)
    greedy_draft = True
    kind: Literal["threshold-accept"] = "threshold-accept"
    threshold_acc: float = option(
        0.7, "Accept threshold", "Divides the target's probability of a drafted token; 1 is exact SD",
        plural="Accept thresholds", gt=0, le=1,
    )  # fmt: skip
    threshold_single: float = option(
        1.0, "Threshold single", "A drafted token of at least this probability is always kept; 1 is never", gt=0, le=1
    )

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        p = rows.of_token(rows.target)
        accepted = (uniforms * self.threshold_acc < p) | (p >= self.threshold_single)
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)

    def label_parts(self, knob: str) -> list[str]:
        single = [] if self.threshold_single == 1 else [f"single {self.threshold_single:g}"]
        return [f"acc {knob.removeprefix('≤ ')}".strip(), *single]
