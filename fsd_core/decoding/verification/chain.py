"""Verification of a chain: every position at once, as if all before it had been accepted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.config import SamplingConfig
from fsd_core.decoding.proposal import Proposal, padded
from fsd_core.decoding.verification.base import Feed, probability_of
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.ops.sampling import UniformStream, draw
from fsd_core.ops.scored_draft import ScoredDraft
from fsd_core.ops.transfer import to_device
from fsd_core.ops.warping import allowed, warp
from fsd_core.rules import Rule


class ChainVerification:
    """Of one draft per position, by an acceptance rule (Leviathan et al. 2023, algorithm 1, for any rule).

    A text takes 2·J + 1 uniforms for J judged positions: J of the acceptance tests, J of the ``random`` divergence, and
    one for the correction or bonus.
    """

    def __init__(self, rule: Rule, sampling: SamplingConfig) -> None:
        self._rule, self._sampling = rule, sampling
        self.judges_bonus, self.greedy_draft = rule.bonus_is_judged, rule.greedy_draft

    def feed(self, uncached: Tensor, proposal: Proposal, cached: int) -> Feed:
        return Feed(torch.cat([uncached, proposal.tree.tokens[:, : proposal.fed]], 1), proposal.fed + 1)

    def verify(self, proposal: Proposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        tree, fed, judged = proposal.tree, proposal.fed, proposal.tree.size
        target, raw = warp(logits, self._sampling), logits.softmax(-1)
        taken = [stream.take(2 * own + 1) for stream, own in zip(uniforms, proposal.judged, strict=True)]
        last = torch.stack([own[-1] for own in taken])
        rows = ScoredDraft(
            tree.tokens, target[:, :judged], tree.warped, raw[:, :judged], tree.raw,
            allowed(logits[:, :judged], self._sampling),
        )  # fmt: skip
        tests = padded([u[:own] for u, own in zip(taken, proposal.judged, strict=True)])
        noise = padded([u[own : 2 * own] for u, own in zip(taken, proposal.judged, strict=True)])
        verdict = self._rule.judge(rows, tests, noise)
        kept, ends = verdict.accepted, fed
        if min(proposal.judged) < judged:  # some texts have drafted less
            own_judged, ends = (to_device(torch.tensor(own), kept.device) for own in (proposal.judged, proposal.own))
            kept = kept & (torch.arange(judged, device=kept.device) < own_judged[:, None])
        count = kept.long().cumprod(-1).sum(-1)  # [B]
        at = count.clamp_max(judged - 1)
        weights = self._rule.correction(rows.at(at), verdict.divergence.gather(1, at[:, None]))[:, 0]
        if isinstance(ends, Tensor):
            bonus = target[torch.arange(len(ends), device=ends.device), ends]
            weights = torch.where(((count == ends) & (own_judged == ends))[:, None], bonus, weights)
        elif judged == fed:  # the bonus comes from the target
            weights = torch.where((count == fed)[:, None], target[:, fed], weights)
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
