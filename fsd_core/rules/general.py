"""The general form of a lossy rule: every token is written from one distribution π of the models' p and q.

Accept x iff u ≤ π(x)/q(x), else sample from norm((π−q)₊). Treat the token after a fully accepted draft the same way.
Every token of a text then has the distribution π, for any draft length (Leviathan et al. 2023 with π in place of p).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsd_core.rules.base import AcceptanceResult, Rule, Truncation, passes, residual, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


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
