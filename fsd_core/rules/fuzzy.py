"""Fuzzy speculative decoding: a drafted token is accepted where the two models hardly differ.

Holsman, Huang, Dhingra, "Fuzzy Speculative Decoding for a Tunable Accuracy-Runtime Tradeoff", Findings of ACL 2025
(arXiv 2502.20704). The divergence is between the raw distributions (temperature 1, no truncation), whatever the
sampling settings.

The paper samples the token after a fully accepted draft from p. The output then depends on where rounds happen to end,
and T = ∞ is not the draft model. `fsd` follows the paper. With `judge_bonus` it treats that token like `fsd-reducible`
(:mod:`fsd_core.rules.reducible`). `fsd-official` follows the authors' program.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from fsd_core.errors import OutOfRange
from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, AcceptanceResult, Knob, Rule, residual, strictly
from fsd_core.rules.divergence_choice import OVER_TOP_K, TOP_K, DivergenceName, divergence_upper_bound

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft

JS_GRID = (0.02, 0.05, 0.1, 0.2, 0.4)


def _check_threshold(threshold: float | None, divergence: str) -> None:
    if threshold is None:
        return
    bound = divergence_upper_bound(divergence)
    expected = f"a number from 0 to {bound:.4g}" if math.isfinite(bound) else "a number of at least 0"
    if math.isnan(threshold) or threshold < 0:
        raise OutOfRange(f"The threshold {threshold} cannot be used: expected {expected}, or 'off' for exact SD.")
    if threshold > bound * (1 + 1e-12):
        raise OutOfRange(
            f"The threshold {threshold:g} is beyond the range of the divergence '{divergence}': expected {expected}. "
            f"At {bound:.4g} every draft token is already accepted."
        )


def near(divergences: Tensor, threshold: float | None) -> Tensor:
    """Return where the divergence is within the threshold. [B,R] → bool [B,R]; nowhere if the threshold is off."""
    return divergences <= (-1.0 if threshold is None else threshold)


class Thresholded(Rule):
    """Accept where ``divergence`` <= ``threshold`` (nats for the entropies); ``None`` is off: exact SD."""

    knob = Knob("threshold", JS_GRID)
    divergence: DivergenceName = option("js", "Divergence", "How far the two models are apart", plural="Divergences")
    threshold: float | None = option(
        0.1, "Threshold", "Largest divergence forgiven; off is exact SD", plural="Thresholds"
    )
    divergence_top_k: int = option(
        50, "Divergence over top", "The k of the top-k divergences", needs={"divergence": OVER_TOP_K}, ge=1
    )

    @model_validator(mode="after")
    def _in_range(self):
        _check_threshold(self.threshold, self.divergence)
        return self

    def label_parts(self, knob: str) -> list[str]:
        name = self.divergence
        if name in OVER_TOP_K and self.divergence_top_k != type(self).model_fields["divergence_top_k"].default:
            name = f"top-{self.divergence_top_k}-{name.removeprefix(TOP_K)}"
        return [f"{name} {knob}".strip()]


class Fuzzy(Thresholded):
    """`fsd`: accept any drafted token iff D ≤ T; else a fresh sample from p. Off: strict speculative decoding."""

    title, long_title, symbol = "FSD", "FSD, as published", "triangle-up"
    explanation = "Keeps a drafted token if the divergence is at most the threshold, whichever token it is."
    note = "It can keep a token that top-k or top-p excludes. FSD reducible guards against that."
    kind: Literal["fsd"] = "fsd"
    judge_bonus: bool = option(
        False,
        "Judge the bonus",
        "Draft and judge the token after a fully accepted draft too; published is that the target writes it",
        needs={"topology": (CHAIN,)},
        before=True,
    )

    @property
    def bonus_is_judged(self) -> bool:
        return self.judge_bonus

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        d = rows.divergence(self.divergence, noise, self.divergence_top_k)
        strict = strictly(rows, uniforms)
        return AcceptanceResult(strict if self.threshold is None else near(d, self.threshold), strict, d)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft) if self.threshold is None else row.target

    def label_parts(self, knob: str) -> list[str]:
        return super().label_parts(knob) + ([] if self.judge_bonus else ["target's bonus"])


class FuzzyOfficial(Rule):
    """`fsd-official`: the authors' published program, for reproducing its numbers.

    The draft is greedy whatever the sampling settings, D is `ag` on raw distributions, a rejected token is replaced by
    a fresh sample from the target, and the bonus comes from the target. Even at temperature 0 these tokens are sampled,
    from the raw target at temperature 1 (`torch.multinomial` of the unwarped logits in `fsd_utils.py`).
    """

    title, long_title, symbol = "FSD official", "FSD official · the authors' program", "cross"
    explanation = "Greedy draft and the divergence ag on raw distributions, to reproduce the published numbers."
    knob = Knob("threshold", JS_GRID, is_off=False)
    greedy_draft = True
    divergence: ClassVar[DivergenceName] = "ag"
    kind: Literal["fsd-official"] = "fsd-official"
    threshold: float = option(0.4, "Threshold", "Largest divergence forgiven; off is exact SD", plural="Thresholds")
    sample_target: bool = option(
        True,
        "Sample at temperature 0",
        "At temperature 0 the target's tokens are drawn at temperature 1, as published; without it the likeliest",
        before=False,
    )

    @property
    def samples_target(self) -> bool:
        return self.sample_target

    @model_validator(mode="after")
    def _in_range(self):
        _check_threshold(self.threshold, self.divergence)
        return self

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        d = rows.divergence(self.divergence, noise)
        strict = strictly(rows, uniforms)
        return AcceptanceResult(near(d, self.threshold), strict, d)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target

    def label_parts(self, knob: str) -> list[str]:
        return [f"{self.divergence} {knob}".strip(), *(["target sampled"] if self.sample_target else [])]
