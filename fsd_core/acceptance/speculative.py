"""Lossless speculative decoding, and the accept/residual arithmetic that other rules build on."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fsd_core.acceptance.base import Verdict
from fsd_core.ops.divergences import js
from fsd_core.ops.rows import Rows


def passes(verifier_of_token: Tensor, draft_of_token: Tensor, uniforms: Tensor) -> Tensor:
    """Whether u < π(x)/q(x), written without a division. [B,R] each → bool [B,R]

    Probability min(1, π(x)/q(x)): u lies in [0,1), so π ≥ q > 0 always passes and π = 0 never does.
    """
    return uniforms * draft_of_token < verifier_of_token  # float64, as the uniforms are


def residual(verifier: Tensor, draft: Tensor) -> Tensor:
    """(π−q)₊, or π itself where rounding leaves nothing of it. [B,R,V], [B,R,V] → [B,R,V]"""
    rest = (verifier - draft).clamp_min(0)
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, verifier)


class SpeculativeRule:
    """Accept x with probability min(1, p(x)/q(x)), else draw from norm((p−q)₊); bonus from p.

    Leviathan et al. 2023, Chen et al. 2023. Emitted tokens are distributed exactly as the target's samples; greedily
    they are the target's, token for token. Acceptance at one position: Σ min(p,q).
    """

    lossless: ClassVar[bool] = True
    judges_bonus: ClassVar[bool] = False
    greedy_draft: ClassVar[bool] = False

    def judge(self, rows: Rows, uniforms: Tensor, noise: Tensor) -> Verdict:
        accepted = passes(rows.of_token(rows.target), rows.of_token(rows.draft), uniforms)
        return Verdict(accepted, accepted, js(rows.target_raw, rows.draft_raw))

    def correction(self, row: Rows, divergence: Tensor) -> Tensor:
        return residual(row.target, row.draft)
