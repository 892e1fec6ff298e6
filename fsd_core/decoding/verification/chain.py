"""Verification of a chain: every position at once, as if all before it had been accepted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.config import SamplingConfig
from fsd_core.decoding.proposal import DraftProposal, padded
from fsd_core.decoding.verification.base import Feed, probability_of
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.ops.graphed import Graphed
from fsd_core.ops.sampling import UniformStream, draw
from fsd_core.ops.scored_draft import ScoredDraft
from fsd_core.ops.transfer import to_device
from fsd_core.ops.warping import allowed, warp
from fsd_core.rules import Rule, residual


class ChainVerification:
    """Verifies one draft per position by an acceptance rule (Leviathan et al. 2023, algorithm 1, for any rule).

    A text takes 2·J + 1 uniforms for J judged positions: J for the acceptance tests, J for the ``random`` divergence,
    and one for the recovered or bonus token. The strict test judges as many positions as the proposal says.
    """

    def __init__(self, rule: Rule, sampling: SamplingConfig) -> None:
        self.judges_bonus, self.greedy_draft = rule.bonus_is_judged, rule.greedy_draft
        self._verified = Graphed("verification of a chain", partial(_verify, rule, sampling))

    def feed(self, uncached: Tensor, proposal: DraftProposal, cached: int) -> Feed:
        return Feed(torch.cat([uncached, proposal.tree.tokens[:, : proposal.fed]], 1), proposal.fed + 1)

    def verify(self, proposal: DraftProposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        tree, judged, device = proposal.tree, proposal.tree.size, logits.device
        taken = [stream.take(2 * count + 1) for stream, count in zip(uniforms, proposal.judged, strict=True)]
        tests = padded([u[:count] for u, count in zip(taken, proposal.judged, strict=True)])
        noise = padded([u[count : 2 * count] for u, count in zip(taken, proposal.judged, strict=True)])
        judged_lengths = lengths = None
        if min(proposal.judged) < judged:  # some texts drafted fewer tokens
            judged_lengths, lengths = (
                to_device(torch.tensor(each), device) for each in (proposal.judged, proposal.drafted)
            )
        strictly = _judged_strictly(proposal, judged, device)
        last = torch.stack([values[-1] for values in taken])
        count, emitted, probability, details = self._verified(
            tree.tokens, tree.warped, tree.raw, logits, tests, noise, last, judged_lengths, lengths, strictly
        )
        return RoundResult(tree.tokens[:, : proposal.fed], count, emitted, probability, details)


def _verify(
    rule: Rule,
    sampling: SamplingConfig,
    tokens: Tensor,
    warped: Tensor,
    drafted_raw: Tensor,
    logits: Tensor,
    tests: Tensor,
    noise: Tensor,
    last: Tensor,
    judged_lengths: Tensor | None,
    lengths: Tensor | None,
    strictly: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return the count, the emitted tokens, their probabilities and the details of a ``RoundResult``.

    tokens: int64 [B,J], drafted from warped [B,J,V]; drafted_raw: the same at temperature 1. logits: [B,F+1,V] of
    the target. tests, noise: [B,J]; last: [B]. judged_lengths, lengths: int64 [B], how many tokens of each text are
    judged and fed; ``None`` if all are. strictly: bool [B,J], where the strict test judges; ``None`` if nowhere.
    """
    judged, fed = tokens.shape[1], logits.shape[1] - 1
    target, raw = warp(logits, sampling), logits.softmax(-1)
    scored = ScoredDraft(
        tokens, target[:, :judged], warped, raw[:, :judged], drafted_raw,
        allowed(logits[:, :judged], sampling), logits[:, :judged], sampling.greedy, judged_lengths,
    )  # fmt: skip
    verdict = rule.judge(scored, tests, noise)
    accepted = verdict.accepted
    if strictly is not None:
        accepted = torch.where(strictly, verdict.strict, accepted)
    if judged_lengths is not None:
        accepted = accepted & (torch.arange(judged, device=accepted.device) < judged_lengths[:, None])
    count = accepted.long().cumprod(-1).sum(-1)  # [B]
    index = count.clamp_max(judged - 1)
    closing = scored.at(index)
    weights = rule.correction(closing, verdict.at(index))[:, 0]
    if strictly is not None:
        strict = residual(closing.target, closing.draft)[:, 0]
        weights = torch.where(strictly.gather(1, index[:, None]), strict, weights.to(strict.dtype))
    if lengths is not None and judged_lengths is not None:
        bonus = target[torch.arange(len(lengths), device=lengths.device), lengths]
        weights = torch.where(
            ((count == lengths) & (judged_lengths == lengths))[:, None], bonus.to(weights.dtype), weights
        )
    elif judged == fed:  # the bonus comes from the target
        weights = torch.where((count == fed)[:, None], target[:, fed].to(weights.dtype), weights)
    recovered = draw(weights, last)
    drafted = F.pad(tokens, (0, fed + 1 - judged))
    emitted = torch.where(torch.arange(fed + 1, device=count.device) < count[:, None], drafted, recovered[:, None])
    details = torch.stack(
        [
            verdict.strict.double(),
            verdict.divergence.double(),
            scored.of_token(scored.target_raw).double(),
            scored.of_token(scored.draft_raw).double(),
        ],
        1,
    )
    return count, emitted, probability_of(raw, emitted), details


def _judged_strictly(proposal: DraftProposal, judged: int, device: torch.device) -> Tensor | None:
    """Return which positions are judged by the strict test, whatever the rule, bool [B,J]; ``None`` if none is."""
    if not any(proposal.strict):
        return None
    return torch.arange(judged, device=device) < to_device(torch.tensor(proposal.strict), device)[:, None]
