"""Verification of vLLM's flattened drafts by an acceptance rule of ``fsd_core``.

N drafted tokens of B requests stand behind one another. The rule sees each as a batch row of one position, [N,1,V], so
its arithmetic is the one that FSD Lab's own loop runs (``fsd_core.decoding.verification``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fsd_core.ops.distributions import ScoredDraft, draw, one_hot
from fsd_core.rules import Rule

NO_TOKEN = -1
"""vLLM's mark for a place in the output, or in a draft, without a token"""


@dataclass(frozen=True)
class FlatDrafts:
    """What vLLM's rejection step knows.

    tokens: int [N], −1 for padding. counts: drafted tokens of each request. logits: [N,V], the target's, after
    penalties and forbidden tokens, before temperature, top-k and top-p.
    draft: [N,V], q at the request's temperature without top-k and top-p; ``None`` for copied tokens. bonus: int [B], a
    token from the target after the whole draft. temperatures: [B], 0 is greedy. cut: bool [B], whether top-k or top-p
    narrows the request.
    """

    tokens: Tensor
    counts: Sequence[int]
    logits: Tensor
    draft: Tensor | None
    bonus: Tensor
    temperatures: Tensor
    cut: Tensor


@dataclass(frozen=True)
class Verified:
    """output: int32 [B,S+1], accepted tokens and the one after them, then −1. accepted: int64 [B]."""

    output: Tensor
    accepted: Tensor


def verify(
    rule: Rule,
    drafts: FlatDrafts,
    longest: int,
    uniforms: Callable[[], Tensor],
    restrict: Callable[[Tensor], Tensor],
) -> Verified:
    """Judge the drafts and return what vLLM writes.

    ``longest``: the longest draft, S. ``uniforms``: returns [N] in [0,1) from the requests' own generators.
    ``restrict``: applies the requests' top-k and top-p to logits that were divided by the temperature, [N,V] → [N,V].

    With a rule that judges the bonus, the token after a fully accepted draft is left out: the next round drafts and
    judges it. The number of drafted tokens is then one more than the draft length of the same setting in FSD Lab.
    """
    device, N = drafts.tokens.device, len(drafts.tokens)
    counts = torch.tensor(drafts.counts, device=device)
    request = torch.arange(len(counts), device=device).repeat_interleave(counts, output_size=N)
    temperature = drafts.temperatures[request]
    padding = drafts.tokens < 0
    tokens = drafts.tokens.long().clamp_min(0)
    scored = _scored(drafts, tokens, temperature, drafts.cut[request], restrict)
    tests, noise, last = uniforms().double(), uniforms().double(), uniforms().double()
    greedy = temperature == 0
    accepted = torch.zeros(N, dtype=torch.bool, device=device)
    weights = torch.empty_like(scored.target[:, 0])
    for is_greedy in (False, True):
        rows = (greedy == is_greedy).nonzero()[:, 0]
        if len(rows):
            part = replace(_rows(scored, rows), greedy=is_greedy)
            result = rule.judge(part, tests[rows, None], noise[rows, None])
            accepted[rows] = result.accepted[:, 0]
            weights[rows] = rule.correction(part, result)[:, 0].to(weights.dtype)
    forbidden = drafts.logits.gather(1, tokens[:, None])[:, 0] == -torch.inf
    accepted &= ~(padding | forbidden)
    weights = torch.where((padding | forbidden)[:, None], scored.target[:, 0], weights)
    ends = counts.cumsum(0)
    places = torch.arange(longest + 1, device=device)
    index = ((ends - counts)[:, None] + places).clamp_max(N - 1)
    inside = places < counts[:, None]
    number = (accepted[index] & inside).long().cumprod(1).sum(1)
    closing = index.gather(1, number[:, None])[:, 0]  # the rejected token of each request; any where none was
    recovered = draw(weights[closing], last[closing])
    output = torch.where(places < number[:, None], tokens[index], NO_TOKEN)
    has_bonus = (number == counts) & ((counts == 0) | (not rule.bonus_is_judged))
    closed = torch.where(number < counts, recovered, drafts.bonus.long().where(has_bonus, NO_TOKEN))
    return Verified(torch.where(places == number[:, None], closed[:, None], output).int(), number)


def _scored(
    drafts: FlatDrafts, tokens: Tensor, temperature: Tensor, cut: Tensor, restrict: Callable[[Tensor], Tensor]
) -> ScoredDraft:
    """Return what the rule sees, [N,1,V] each. Greedy rows sample the likeliest token of either model."""
    V, greedy = drafts.logits.shape[-1], (temperature == 0)[:, None]
    certain, divisor = one_hot(tokens, V), torch.where(greedy, 1.0, temperature[:, None])
    sampled = restrict(drafts.logits / divisor).softmax(-1)  # vLLM's own is wrong on CPUs, see docs/engines.md
    target = torch.where(greedy, one_hot(drafts.logits.argmax(-1), V), sampled)
    if drafts.draft is None:
        draft = draft_raw = certain
    else:
        tempered = drafts.draft.float()
        raw = tempered.pow(divisor)
        draft_raw = raw / raw.sum(-1, keepdim=True)
        narrowed = restrict(tempered.log()).softmax(-1)
        draft = torch.where(greedy, certain, torch.where(cut[:, None], narrowed, tempered))
    allowed = (sampled > 0) | ~cut[:, None] | greedy
    return ScoredDraft(
        tokens[:, None], target[:, None], draft[:, None], drafts.logits.softmax(-1)[:, None], draft_raw[:, None],
        allowed[:, None] if bool(cut.any()) else None, drafts.logits[:, None],
    )  # fmt: skip


def _rows(scored: ScoredDraft, rows: Tensor) -> ScoredDraft:
    """Return some batch rows."""
    fields = ("tokens", "target", "draft", "target_raw", "draft_raw", "allowed", "logits")
    picked = {name: getattr(scored, name) for name in fields}
    return ScoredDraft(**{name: None if value is None else value[rows] for name, value in picked.items()})
