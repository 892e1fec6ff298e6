"""Verification of a chain: every position at once, as if all before it had been accepted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.config import SamplingConfig
from fsd_core.decoding.proposal import DraftProposal, padded
from fsd_core.decoding.verification.base import Feed, probability_of
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.ops.sampling import UniformStream, draw
from fsd_core.ops.scored_draft import ScoredDraft
from fsd_core.ops.transfer import to_device
from fsd_core.ops.warping import allowed, warp
from fsd_core.rules import Rule, residual


class ChainVerification:
    """Of one draft per position, by an acceptance rule (Leviathan et al. 2023, algorithm 1, for any rule).

    A text takes 2·J + 1 uniforms for J judged positions: J of the acceptance tests, J of the ``random`` divergence, and
    one for the correction or bonus. The first ``strict_first`` tokens of an answer are judged by the strict test.
    """

    def __init__(self, rule: Rule, sampling: SamplingConfig, strict_first: int = 0) -> None:
        self._rule, self._sampling, self._strict_first = rule, sampling, strict_first
        self.judges_bonus, self.greedy_draft = rule.bonus_is_judged, rule.greedy_draft

    def feed(self, uncached: Tensor, proposal: DraftProposal, cached: int) -> Feed:
        return Feed(torch.cat([uncached, proposal.tree.tokens[:, : proposal.fed]], 1), proposal.fed + 1)

    def verify(self, proposal: DraftProposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        tree, fed, judged = proposal.tree, proposal.fed, proposal.tree.size
        target, raw = warp(logits, self._sampling), logits.softmax(-1)
        taken = [stream.take(2 * own + 1) for stream, own in zip(uniforms, proposal.judged, strict=True)]
        last = torch.stack([own[-1] for own in taken])
        rows = ScoredDraft(
            tree.tokens, target[:, :judged], tree.warped, raw[:, :judged], tree.raw,
            allowed(logits[:, :judged], self._sampling), logits[:, :judged], self._sampling.greedy,
            to_device(torch.tensor(proposal.judged), logits.device) if min(proposal.judged) < judged else None,
        )  # fmt: skip
        tests = padded([u[:own] for u, own in zip(taken, proposal.judged, strict=True)])
        noise = padded([u[own : 2 * own] for u, own in zip(taken, proposal.judged, strict=True)])
        verdict = self._rule.judge(rows, tests, noise)
        kept, ends, own_judged = verdict.accepted, fed, rows.lengths
        begins = self._judged_strictly(proposal, judged, kept.device)
        if begins is not None:
            kept = torch.where(begins, verdict.strict, kept)
        if own_judged is not None:  # some texts have drafted less
            ends = to_device(torch.tensor(proposal.own), kept.device)
            kept = kept & (torch.arange(judged, device=kept.device) < own_judged[:, None])
        count = kept.long().cumprod(-1).sum(-1)  # [B]
        at = count.clamp_max(judged - 1)
        row = rows.at(at)
        weights = self._rule.correction(row, verdict.at(at))[:, 0]
        if begins is not None:
            strict = residual(row.target, row.draft)[:, 0]
            weights = torch.where(begins.gather(1, at[:, None]), strict, weights.to(strict.dtype))
        if isinstance(ends, Tensor) and own_judged is not None:
            bonus = target[torch.arange(len(ends), device=ends.device), ends]
            weights = torch.where(((count == ends) & (own_judged == ends))[:, None], bonus.to(weights.dtype), weights)
        elif judged == fed:  # the bonus comes from the target
            weights = torch.where((count == fed)[:, None], target[:, fed].to(weights.dtype), weights)
        correction = draw(weights, last)
        drafted = F.pad(tree.tokens, (0, fed + 1 - judged))
        emitted = torch.where(torch.arange(fed + 1, device=count.device) < count[:, None], drafted, correction[:, None])
        details = torch.stack(
            [
                verdict.strict.double(),
                verdict.divergence.double(),
                rows.of_token(rows.target_raw).double(),
                rows.of_token(rows.draft_raw).double(),
            ],
            1,
        )
        return RoundResult(tree.tokens[:, :fed], count, emitted, probability_of(raw, emitted), details)

    def _judged_strictly(self, proposal: DraftProposal, judged: int, device: torch.device) -> Tensor | None:
        """Which positions belong to the beginning that is judged strictly, bool [B,J]; ``None`` where none does."""
        left = [self._strict_first - written for written in proposal.written]
        if max(left) <= 0:
            return None
        return torch.arange(judged, device=device) < to_device(torch.tensor(left), device)[:, None]
