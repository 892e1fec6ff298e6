"""Fuzzy speculative decoding: a drafted token is accepted where the two models hardly differ.

The general form of a lossy rule: every token is written from one distribution π of the models' p and q.

Accept x iff u ≤ π(x)/q(x), else sample from norm((π−q)₊). Treat the token after a fully accepted draft the same way.
Every token of a text then has the distribution π, for any draft length (Leviathan et al. 2023 with π in place of p).

Holsman, Huang, Dhingra, "Fuzzy Speculative Decoding for a Tunable Accuracy-Runtime Tradeoff", Findings of ACL 2025
(arXiv 2502.20704). The divergence is between the raw distributions (temperature 1, no truncation), whatever the
sampling settings.

The paper samples the token after a fully accepted draft from p. The output then depends on where rounds happen to end,
and T = ∞ is not the draft model. `fsd` follows the paper. With `judge_bonus` it treats that token like `fsd-reducible`.
`fsd-official` follows the authors' program.

Fuzzy speculative decoding in the general form: each token's distribution depends on its prefix only.

Where D ≤ T it is lenient: q, or as much of it as a guard allows. Elsewhere it is p.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from fsd_core.errors import OutOfRange
from fsd_core.frozen import option
from fsd_core.rules.base import (
    CHAIN,
    OVER_TOP_K,
    TOP_K,
    AcceptanceResult,
    DivergenceName,
    Knob,
    Rule,
    Truncation,
    divergence_upper_bound,
    passes,
    residual,
    strictly,
)

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.distributions import ScoredDraft


class GeneralForm(Rule):
    """A rule defined by its distribution π, which a subclass returns from :meth:`distribution`."""

    judges_bonus = True

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        """Return π at each position. ``divergence``: the result of :meth:`measured`, [B,R] → [B,R,V]"""
        self.refuse()

    def measured(self, rows: ScoredDraft, noise: Tensor) -> Tensor:
        """Return the recorded divergence, which π may depend on: Jensen-Shannon. ``noise``: [B,R] → [B,R]"""
        return rows.divergence("js", noise)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        d = self.measured(rows, noise)
        distribution = self.distribution(rows, d)
        accepted = passes(rows.of_token(distribution), rows.of_token(rows.draft), uniforms)
        return AcceptanceResult(accepted, strictly(rows, uniforms), d, distribution=distribution)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        distribution = result.distribution
        return residual(self.distribution(row, result.divergence) if distribution is None else distribution, row.draft)


def within(rows: ScoredDraft, kept: Tensor) -> Tensor:
    """Return q on a set of tokens A, and p for q's mass outside it: q·1_A + (1 − q(A))·p. bool [B,R,V] → [B,R,V]"""
    inside = rows.draft * kept
    return inside + (1 - inside.sum(-1, keepdim=True)).clamp_min(0) * rows.target


def head_truncation(width: float | None) -> Truncation:
    """Return the head set as min-p, p(v) ≥ (1 − width)·max p of the sampled p; nothing if the width is off."""
    return Truncation() if width is None else Truncation(min_p=round(1 - width, 12))


def head(rows: ScoredDraft, width: float) -> Tensor:
    """Return the target's likeliest tokens, p(v) ≥ (1 − width)·max p, if sampling allows them. → bool [B,R,V]"""
    p = rows.graded_target
    likely = p >= (1 - width) * p.amax(-1, keepdim=True)
    return likely if rows.allowed is None else likely & rows.allowed


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


class Reducible(GeneralForm, Thresholded):
    """π is a lenient distribution where D ≤ T, and p elsewhere."""

    def lenient(self, rows: ScoredDraft) -> Tensor:
        """Return π where D ≤ T, [B,R,V]."""
        self.refuse()

    def measured(self, rows: ScoredDraft, noise: Tensor) -> Tensor:
        return rows.divergence(self.divergence, noise, self.divergence_top_k)

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        return self.lenient(rows).where(near(divergence, self.threshold)[..., None], rows.target)


class FuzzyReducible(Reducible):
    """`fsd-reducible`: speculative decoding against the verifier π = q where D ≤ T, and π = p elsewhere.

    If the draft is sampled from q, it has the output distribution of `fsd` with a judged bonus. Its acceptance is never
    lower: P(D≤T) + E[1{D>T}·(1−TV)]. Let G be the set of tokens that the target's top-k and top-p keep. With ``guard``,
    a token outside G is not accepted where D ≤ T: π = q·1_G + (1−q(G))·p.
    """

    title = "FSD reducible"
    explanation = (
        "Writes from the draft where the two models differ by at most the threshold, and is exact SD elsewhere. Same "
        "output distribution as FSD that judges its bonus, and never a lower acceptance rate."
    )
    kind: Literal["fsd-reducible"] = "fsd-reducible"
    guard: bool = option(True, "Guard", "Be lenient only with tokens that the target's top-k and top-p keep")

    def lenient(self, rows: ScoredDraft) -> Tensor:
        return within(rows, rows.allowed) if self.guard and rows.allowed is not None else rows.draft

    def label_parts(self, knob: str) -> list[str]:
        return super().label_parts(knob) + ([] if self.guard else ["no guard"])


class FuzzyHead(Reducible):
    """`fsd-head`: the divergence gates the position, and the target's head set gates the token.

    Where D ≤ T, π = q·1_A + (1−q(A))·p with A = {v: p(v) ≥ (1 − width)·max p}, and π = p elsewhere: `fsd-reducible`
    with A in place of the guard's G. Our own rule, unpublished.
    """

    title, symbol = "FSD head", "triangle-right"
    explanation = (
        "Writes from the draft where the two models differ by at most the threshold, as far as its tokens are among "
        "the target's likeliest; exact SD elsewhere."
    )
    knob = Knob("threshold", JS_GRID, monotone=False)
    kind: Literal["fsd-head"] = "fsd-head"
    token_width: float = option(
        0.2, "Token width", "How far below the likeliest token's probability a kept token may be, as a share of it",
        ge=0, le=1,
    )  # fmt: skip

    @property
    def truncation(self) -> Truncation:
        return head_truncation(self.token_width)

    def lenient(self, rows: ScoredDraft) -> Tensor:
        return within(rows, head(rows, self.token_width))

    def label_parts(self, knob: str) -> list[str]:
        return [*super().label_parts(knob), f"width {self.token_width:g}"]
