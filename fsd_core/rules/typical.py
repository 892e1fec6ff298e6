"""Typical acceptance: a token is accepted if it is likely enough, given how unsure the target is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import AcceptanceResult, Knob, Rule, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Typical(Rule):
    """`typical`: accept x iff p(x) > min(ε, δ·e^(−H(p))); else a sample of p (Medusa, Cai et al. 2024, arXiv
    2401.10774).

    p is the sampled distribution, at temperature 0 the raw one. The draft's probabilities are ignored, so copied tokens
    are judged as well. No value of ε makes it strict decoding.
    """

    title, symbol = "Typical", "hourglass"
    explanation = "Keeps a drafted token that the target finds likely enough, the less likely the more unsure it is."
    knob = Knob("posterior_threshold", (0.5, 0.3, 0.09, 0.03), is_off=False, rising=False)
    kind: Literal["typical"] = "typical"
    posterior_threshold: float = option(
        0.09, "Posterior threshold", "The ε of typical acceptance: the probability that always suffices",
        plural="Posterior thresholds", gt=0, le=1,
    )  # fmt: skip
    posterior_alpha: float = option(
        0.3, "Posterior alpha", "The δ of typical acceptance: what suffices falls by this and the entropy", gt=0, le=1
    )

    @property
    def truncation(self) -> None:
        """``None``: no sampling option cuts off by entropy."""

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        p = rows.graded_target
        enough = (self.posterior_alpha * (-rows.graded_entropy).exp()).clamp_max(self.posterior_threshold)
        return AcceptanceResult(rows.of_token(p) > enough, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target

    def label_parts(self, knob: str) -> list[str]:
        return [f"ε {knob.removeprefix('≤ ')}".strip(), f"δ {self.posterior_alpha:g}"]
