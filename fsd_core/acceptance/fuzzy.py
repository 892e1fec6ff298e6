"""Fuzzy speculative decoding: a drafted token is kept where the two models hardly differ.

Holsman, Huang, Dhingra, "Fuzzy Speculative Decoding for a Tunable Accuracy-Runtime
Tradeoff", Findings of ACL 2025 (arXiv 2502.20704). The divergence is taken between
the raw distributions (temperature 1, no truncation), whatever is sampled from.

Both `fsd` and `fsd-reducible` write every token from one law that depends on its
prefix alone: q where D ≤ T, p elsewhere. The paper draws the bonus token from p
instead, which makes the output depend on where rounds happen to end, and keeps
T = ∞ from being the draft model; so here the token after a fully accepted draft is
judged like the others. `fsd-official` keeps the published behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fsd_core.acceptance.base import Verdict
from fsd_core.acceptance.speculative import passes, residual
from fsd_core.config import Fuzzy, FuzzyOfficial, FuzzyReducible
from fsd_core.ops.divergences import divergence
from fsd_core.ops.rows import Rows


def _near(divergences: Tensor, threshold: float | None) -> Tensor:
    """Where leniency applies. [B,R] → bool [B,R]; nowhere if the threshold is off."""
    return torch.zeros_like(divergences, dtype=torch.bool) if threshold is None else divergences <= threshold


@dataclass(frozen=True)
class FuzzyRule:
    """`fsd`: accept iff D ≤ T, whatever was drafted; else a fresh sample from p. Off: strict speculative decoding."""

    config: Fuzzy
    lossless: ClassVar[bool] = False
    judges_bonus: ClassVar[bool] = True
    greedy_draft: ClassVar[bool] = False

    def judge(self, rows: Rows, uniforms: Tensor, noise: Tensor) -> Verdict:
        d = divergence(self.config.divergence, rows.target_raw, rows.draft_raw, noise, self.config.divergence_top_k)
        strict = passes(rows.of_token(rows.target), rows.of_token(rows.draft), uniforms)
        return Verdict(strict if self.config.threshold is None else _near(d, self.config.threshold), strict, d)

    def correction(self, row: Rows, divergence: Tensor) -> Tensor:
        return residual(row.target, row.draft) if self.config.threshold is None else row.target


@dataclass(frozen=True)
class FuzzyReducibleRule:
    """`fsd-reducible`: speculative decoding against the verifier π = q where D ≤ T, and π = p elsewhere.

    Same output law as `fsd` when the draft is sampled from q, and acceptance is never lower:
    P(D≤T) + E[1{D>T}·(1−TV)]. With ``guard``, where D ≤ T a token outside the set G that the target's top-k/top-p
    leaves is not kept: π = q·1_G + (1−q(G))·p.
    """

    config: FuzzyReducible
    lossless: ClassVar[bool] = False
    judges_bonus: ClassVar[bool] = True
    greedy_draft: ClassVar[bool] = False

    def _verifier(self, rows: Rows, d: Tensor) -> Tensor:
        """π at each position. → [B,R,V]"""
        lenient = rows.draft
        if self.config.guard and rows.allowed is not None:
            kept = rows.draft * rows.allowed
            lenient = kept + (1 - kept.sum(-1, keepdim=True)).clamp_min(0) * rows.target
        return torch.where(_near(d, self.config.threshold)[..., None], lenient, rows.target)

    def judge(self, rows: Rows, uniforms: Tensor, noise: Tensor) -> Verdict:
        d = divergence(self.config.divergence, rows.target_raw, rows.draft_raw, noise, self.config.divergence_top_k)
        of_draft = rows.of_token(rows.draft)
        accepted = passes(rows.of_token(self._verifier(rows, d)), of_draft, uniforms)
        return Verdict(accepted, passes(rows.of_token(rows.target), of_draft, uniforms), d)

    def correction(self, row: Rows, divergence: Tensor) -> Tensor:
        return residual(self._verifier(row, divergence), row.draft)


@dataclass(frozen=True)
class FuzzyOfficialRule:
    """`fsd-official`: what the authors' published program computes, for reproducing its numbers.

    The draft is greedy whatever the sampling flags, D is `ag` on raw distributions, a rejected token is replaced by a
    fresh sample from the target, and the bonus comes from the target.
    """

    config: FuzzyOfficial
    lossless: ClassVar[bool] = False
    judges_bonus: ClassVar[bool] = False
    greedy_draft: ClassVar[bool] = True

    def judge(self, rows: Rows, uniforms: Tensor, noise: Tensor) -> Verdict:
        d = divergence("ag", rows.target_raw, rows.draft_raw, noise)
        strict = passes(rows.of_token(rows.target), rows.of_token(rows.draft), uniforms)
        return Verdict(_near(d, self.config.threshold), strict, d)

    def correction(self, row: Rows, divergence: Tensor) -> Tensor:
        return row.target
