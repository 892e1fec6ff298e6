"""Distributions over tokens: warped, sampled, compared and scored.

From logits to the sampled distribution: temperature, then top-k, then top-p, then min-p.

The order and the treatment of ties match transformers' logits processors, so that
the same settings have the same meaning.

Divergences between the target's distribution p and the draft's q at one position.

Formulas (natural logarithms; m = (p+q)/2):

======================  ==========================  =================
``kl``                  KL(q‖p) = Σ q·log(q/p)      0 … ∞
``reverse-kl``          KL(p‖q)                     0 … ∞
``js``                  ½KL(p‖m) + ½KL(q‖m)         0 … ln 2
``tv``                  ½Σ|p−q|                     0 … 1
``ag``                  ½KL(m‖p) + ½KL(m‖q)         0 … ∞
``top-k-…``             over the target's top k     as above
                        plus one "rest" bucket
``random``              a uniform in place of D     0 … 1
======================  ==========================  =================

``js`` is Lin 1991. ``ag`` (arithmetic-geometric) is Taneja 1995; the program
published with "Fuzzy Speculative Decoding" (Findings of ACL 2025) computes it
under the name of JS. Infinite values are kept: they mean "never accept".

The distribution of mentored decoding: among all π with KL(p‖π) ≤ D, one that overlaps most with q.

With ρ = log(q/p), π(v) = p(v)·exp(clamp(ρ(v), β, α)) for the α ≥ 0 ≥ β at which π sums to one and KL(p‖π), which is
−Σ p·clamp(ρ, β, α), equals D (Tran-Thien 2023; his a is e^−α, his b is e^−β).

Both bounds follow from the mass c that α cuts off and β hands out. A token v is cut or raised iff c exceeds its own
c(v), which is Σ (q − p·e^ρ(v))₊ for ρ(v) > 0, and Σ (p·e^ρ(v) − q)₊ otherwise. So if tokens are sorted by c(v), the
cut and raised ones come first, and all sums over them are cumulative sums. Let P and Q be the sums of p and q over the
cut tokens, P' and Q' those over the raised ones. Then e^α = (Q − c)/P and e^β = (Q' + c)/P'. The divergence falls as c
and β rise and is convex in β, so Newton's method finds D between two neighbours.

The layers of beams: the joint law over beams and tokens, and which drafts of a layer become beams.

Beam sampling draws a layer's W beams independently, with replacement, from the joint law. Drafts drawn from another law
q are tested in turn, and what they leave empty is sampled, so that the W ordered beams still are independent samples of
p: the first by recursive rejection, and after each acceptance anew. That holds because drafts are drawn with
replacement, and because the width is fixed before they are looked at: a layer that fails is filled to the same width.
After Qin et al. 2025 (arXiv 2409.16560), whose program does neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import log2

import torch
from torch import Tensor
from torch.special import xlogy

from fsd_core.config import SamplingConfig
from fsd_core.ops.kernels import to_device
from fsd_core.rules.base import passes, residual

_BELOW_ONE = 1 - 2.0**-40


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return tokens drawn by inverting the cumulative sum. The weights need not sum to one.

    ``weights``: [..., V], not negative, not all zero. ``uniforms``: [...] float64 in [0, 1). Returns int64 [...].
    Sums are float64: float32 would lose the tail of a vocabulary of 150,000.
    """
    cumulative = weights.double().cumsum(-1)
    height = uniforms.double()[..., None] * _BELOW_ONE * cumulative[..., -1:]
    return torch.searchsorted(cumulative, height, right=True).squeeze(-1).clamp_max(weights.shape[-1] - 1)


def draw_several(weights: Tensor, uniforms: Tensor, sampling: str) -> Tensor:
    """Return several tokens of one distribution, in the order of drawing. weights: [R,V]; uniforms: [R,n] → int64 [R,n]

    ``sampling``: ``with_replacement``; ``without_replacement``, each from what remains; ``greedy``, the likeliest n − 1
    and one drawn from the rest. If the distribution has fewer tokens, the missing ones are −1.
    """
    count = uniforms.shape[1]
    if sampling == "with_replacement":
        return draw(weights[:, None].expand(-1, count, -1), uniforms)
    if sampling == "greedy":
        last = _draw_or_none(greedy_distribution(weights, count), uniforms[:, -1])
        return torch.cat([likeliest(weights, count - 1), last[:, None]], 1)
    remaining, tokens = weights.double(), []
    for i in range(count):
        tokens.append(_draw_or_none(remaining, uniforms[:, i]))
        remaining = remaining.scatter(1, tokens[-1][:, None].clamp_min(0), 0)
    return torch.stack(tokens, 1)


def _draw_or_none(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return tokens as :func:`draw` does, and −1 where all weights are zero."""
    return torch.where(weights.sum(-1) > 0, draw(weights, uniforms), -1)


def likeliest(weights: Tensor, count: int) -> Tensor:
    """Return the tokens of the ``count`` largest weights, largest first, −1 for a zero weight. [R,V] → int64 [R,n]"""
    tokens = _largest(weights, count)
    return torch.where(weights.gather(1, tokens) > 0, tokens, -1)


def _largest(weights: Tensor, count: int) -> Tensor:
    """Return the tokens of the ``count`` largest weights, largest first. Among equal weights the first tokens win, as
    in ``fsd_core.theory``; ``topk`` does not define which it takes. [R,V] → int64 [R,n]"""
    if count == 0:
        return weights.new_zeros(len(weights), 0, dtype=torch.int64)
    threshold = weights.topk(count, -1).values[:, -1:]
    above, equal = weights > threshold, weights == threshold
    taken = above | (equal & (equal.cumsum(-1) <= count - above.sum(-1, keepdim=True)))
    indices = torch.arange(weights.shape[1], device=weights.device).expand_as(weights)
    tokens = indices.masked_fill(~taken, weights.shape[1]).topk(count, -1, largest=False).values
    return tokens.gather(1, weights.gather(1, tokens).argsort(dim=-1, descending=True, stable=True))


def greedy_distribution(weights: Tensor, count: int) -> Tensor:
    """Return the distribution of the last of ``count`` greedy drafts. It lacks the ``count`` − 1 likeliest tokens,
    and is all zero if nothing remains. [R,V] → [R,V]"""
    rest = weights.scatter(1, _largest(weights, count - 1), 0)
    return rest / rest.sum(-1, keepdim=True).clamp_min(1e-30)


class UniformStream:
    """Uniforms in [0, 1) from one seed, the same on every device: drawn on the CPU, in blocks.

    ``take(*shape)`` returns float64 [*shape]. The sequence of values depends only on the seed, not on the shapes taken.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu", block: int = 4096) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._device, self._block, self._index = torch.device(device), block, 0
        self._values = torch.empty(0, dtype=torch.float64, device=device)

    def take(self, *shape: int) -> Tensor:
        count = 1
        for size in shape:
            count *= size
        if self._index + count > self._values.numel():
            fresh = torch.rand(max(self._block, count), generator=self._generator, dtype=torch.float64)
            self._values = torch.cat([self._values[self._index :], to_device(fresh, self._device)])
            self._index = 0
        self._index += count
        return self._values[self._index - count : self._index].view(shape)


def restrict(logits: Tensor, top_k: int, top_p: float, min_p: float = 0.0) -> Tensor:
    """Set logits to −inf outside the top k, then outside the nucleus of mass ``top_p``, then for tokens less likely
    than ``min_p`` times the likeliest. [..., V] → [..., V]"""
    if 0 < top_k < logits.shape[-1]:
        kth = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    if top_p < 1:
        ascending, order = logits.sort(dim=-1)
        removed = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
        removed[..., -1] = False
        logits = logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -torch.inf)
    if min_p > 0:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < min_p * p.amax(-1, keepdim=True), -torch.inf)
    return logits


def one_hot(tokens: Tensor, vocabulary: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return distributions with probability 1 on each token. [...] → [..., V]"""
    return torch.zeros(*tokens.shape, vocabulary, dtype=dtype, device=tokens.device).scatter_(-1, tokens[..., None], 1)


def warp(logits: Tensor, sampling: SamplingConfig) -> Tensor:
    """Return the sampled distribution, one-hot on the likeliest token when greedy. [..., V] → [..., V]"""
    if sampling.greedy:
        return one_hot(logits.argmax(-1), logits.shape[-1], logits.dtype)
    return _restricted(logits, sampling).softmax(-1)


def allowed(logits: Tensor, sampling: SamplingConfig) -> Tensor | None:
    """Return which tokens survive the target's top-k, top-p and min-p; ``None`` if all do. [..., V] → bool [..., V]

    At temperature 0 only one token would survive. The restriction then applies at temperature 1, so that it bounds
    leniency instead of forbidding it.
    """
    return _restricted(logits, sampling) > -torch.inf if sampling.cut else None


def _restricted(logits: Tensor, sampling: SamplingConfig) -> Tensor:
    """Return the restricted logits; temperature 0 counts as 1."""
    return restrict(logits / (sampling.temperature or 1.0), sampling.top_k, sampling.top_p, sampling.min_p)


def _relative_entropy(a: Tensor, b: Tensor) -> Tensor:
    """Return KL(a‖b) = Σ a·log(a/b) over the last axis. a=0 adds 0, b=0<a makes it infinite. [..., V] → [...]"""
    return (xlogy(a, a) - xlogy(a, b)).sum(-1).clamp_min(0)


def entropy(p: Tensor) -> Tensor:
    """Return the entropy in nats. [..., V] → [...]"""
    return -p.xlogy(p).sum(-1)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(q‖p), infinite if the draft may write a token that the target cannot. [..., V], [..., V] → [...]"""
    return _relative_entropy(q, p)


def reverse_kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(p‖q), infinite if the target may write a token that the draft cannot. [..., V], [..., V] → [...]"""
    return _relative_entropy(p, q)


def js(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence, at most ln 2. [..., V], [..., V] → [...]"""
    smallest = torch.finfo(p.dtype).tiny  # in place of 0, so that its logarithm is finite and its term vanishes
    middle = ((p + q) / 2).clamp_min_(smallest).log_()
    p_terms, q_terms = (x.clamp_min(smallest).log_().sub_(middle).mul_(x) for x in (p, q))
    return (p_terms.add_(q_terms).sum(-1) / 2).clamp_(0, math.log(2))


def tv(p: Tensor, q: Tensor) -> Tensor:
    """Return the total variation. Lossless speculative decoding accepts with 1 − tv. [..., V], [..., V] → [...]"""
    return ((p - q).abs().sum(-1) / 2).clamp_max(1)


def ag(p: Tensor, q: Tensor) -> Tensor:
    """Return the arithmetic-geometric divergence, infinite if only one of p and q is 0. [..., V], [..., V] → [...]"""
    middle = (p + q) / 2
    return (_relative_entropy(middle, p) + _relative_entropy(middle, q)) / 2


_FULL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": kl,
    "reverse-kl": reverse_kl,
    "js": js,
    "tv": tv,
    "ag": ag,
}


def _coarsen(p: Tensor, q: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return both over the target's k likeliest tokens and one bucket for the rest. [..., V] → [..., k+1]"""
    k = min(k, p.shape[-1])
    top_p, index = p.topk(k, dim=-1)
    top_q = q.gather(-1, index)
    # Summed, not subtracted from one: the difference would round a small rest to zero, and its divergence to infinity.
    rest_p = p.scatter(-1, index, 0).sum(-1, keepdim=True)
    rest_q = q.scatter(-1, index, 0).sum(-1, keepdim=True)
    return torch.cat([top_p, rest_p], -1), torch.cat([top_q, rest_q], -1)


def divergence(name: str, p: Tensor, q: Tensor, uniforms: Tensor, top_k: int = 50) -> Tensor:
    """Return the divergence called ``name`` at each position.

    ``p``, ``q``: [..., V] probabilities of target and draft. ``uniforms``: [...] in [0, 1), used only by
    ``random``. ``top_k``: number of tokens outside the rest bucket of the ``top-k-`` divergences. Returns [...].
    Raises ``KeyError`` for a name outside ``config.DIVERGENCES``.
    """
    if name == "random":
        return uniforms.to(p.dtype)
    if name.startswith("top-k-"):
        return _FULL[name.removeprefix("top-k-")](*_coarsen(p, q, top_k))
    return _FULL[name](p, q)


MAX_UNGROUPED = 256
"""the largest vocabulary in which every token is a group of its own"""
_HALF, _WIDE = 64, 4
"""groups on either side of ρ = 0 in a larger vocabulary, each (|ρ| + ``_WIDE``)²/(``_WIDE``·``_HALF``) wide"""
_LEAST, _LARGEST = 1e-30, 1e25
"""the smallest e^β and the largest e^α"""
_STEPS = 4


def mentored(p: Tensor, q: Tensor, budget: float) -> Tensor:
    """Return π at each position. p, q: [...,V] distributions; ``budget``: D > 0 in nats. → [...,V]

    In a vocabulary beyond ``MAX_UNGROUPED``, tokens of nearly the same ρ form a group and are cut or raised together. π
    is still a distribution within the budget. A little of the budget may stay unused if cutting one more group would
    save more than remains to be saved.
    """
    p, q, shape = p.reshape(-1, p.shape[-1]), q.reshape(-1, q.shape[-1]), p.shape
    ratio = (q / p).log_().nan_to_num_(0.0)  # ρ, with the largest number for infinity
    if shape[-1] <= MAX_UNGROUPED:
        group, groups = ratio.argsort(-1).argsort(-1), shape[-1]
    else:
        scaled = ratio / ratio.abs().add_(_WIDE)  # ±1 if only one of the models writes the token
        group, groups = scaled.mul_(_HALF).long().add_(_HALF), 2 * _HALF + 1
    parts = torch.stack([p, q, p * ratio]).double()
    sums = parts.new_zeros(3, len(p), groups).scatter_add_(2, group.expand(3, -1, -1), parts)
    p_factor, q_factor = (share.to(p.dtype).gather(1, group) for share in _factors(sums, budget))
    return q_factor.mul_(q).addcmul_(p_factor, p).view(shape)


def _factors(sums: Tensor, budget: float) -> tuple[Tensor, Tensor]:
    """Return π's multiples of p and of q in each group: e^α and 0, e^β and 0, or 0 and 1.

    sums: of p, q and p·ρ of each group, by rising ρ, float64 [3,N,G] → [N,G] each
    """
    p, q, spared = sums
    spared = spared.clamp_min(-1e6)  # beyond any budget
    near = spared.sum(-1, keepdim=True) >= -budget  # π = q
    excluded = q.sub(p, alpha=_LARGEST).clamp_min(0).sum(-1, keepdim=True)  # π excludes what p excludes
    both = torch.stack([p.add(q, alpha=_LEAST), q.add(p, alpha=_LEAST)]).add_(1e-200)  # 1 : 1 for an empty group
    ratio = both[1] / both[0]
    over = ratio > 1
    beyond_p, beyond_q = torch.where(over, both.flip(-1).cumsum(-1).flip(-1), both.cumsum(-1))
    thresholds = beyond_q.addcmul(ratio, beyond_p, value=-1).abs()  # c(v)

    sorted_thresholds, order = thresholds.sort(-1)
    cut = both * over
    changed = torch.cat([cut, both - cut, spared[None]]).gather(2, order.expand(5, -1, -1)).cumsum(-1)
    cut_p, cut_q, raised_p, raised_q = changed[:4].clamp_min(_LEAST)  # P, Q, P', Q' of the first 1, 2 … G groups
    rest = changed[4, :, -1:] - changed[4]  # Σ p·ρ of the others
    left = sorted_thresholds.maximum(excluded)
    right = torch.cat([left[:, 1:], (cut_q - cut_p)[:, -1:]], 1)  # the last is the c at which π = p
    alpha = ((cut_q - right) / cut_p).clamp_min(1).log()
    high = ((raised_q + right) / raised_p).log()
    fits = (rest.addcmul(cut_p, alpha).addcmul(raised_p, high) >= -budget) & (right > left)
    fits[:, -1] = True  # always true, except for rounding
    index = fits.byte().argmax(-1, keepdim=True)
    steps = torch.stack([cut_p, cut_q, raised_p, raised_q, rest, sorted_thresholds, left, high])
    # [N,1] each
    cut_p, cut_q, raised_p, raised_q, rest, last, left, high = steps.gather(2, index.expand(8, -1, -1)).unbind()

    low = ((raised_q + left) / raised_p).log()
    raised, total, level = raised_p / cut_p, (cut_q + raised_q) / cut_p, (rest + budget) / cut_p
    steep = raised * (1 + 1e-12)  # the slope is zero at α = β = 0
    beta = low
    for _ in range(_STEPS + max(0, round(-log2(budget) / 2))):  # near π = p a step halves the distance
        handed = raised * beta.exp()
        upper = (total - handed).clamp_min(1)
        excess = (upper.log() + level).addcmul(raised, beta)
        beta = beta.addcdiv(excess, steep.addcdiv(handed, upper, value=-1), value=-1).clamp(low, high)
    lower = beta.exp()
    upper = total.addcmul(raised, lower, value=-1).clamp(1, _LARGEST)
    bound = (thresholds <= last) & ~near
    return torch.where(over, upper, lower) * bound, ~bound


@dataclass(frozen=True, slots=True)
class DraftDistribution:
    """The draft's next-token distribution at one position; a copied token is a point mass.

    ``warped``: [B, V], sampled by the drafter. ``raw``: [B, V], plain softmax at temperature 1.
    """

    warped: Tensor
    raw: Tensor


@dataclass(frozen=True, slots=True)
class ScoredDraft:
    """Target and draft distributions at R positions, and the token drafted at each.

    tokens [B,R] int64; target, draft: [B,R,V] warped; target_raw, draft_raw: [B,R,V] raw; allowed: bool [B,R,V] or
    ``None``: the tokens that the target's top-k and top-p leave. The drafted tokens were drawn from ``draft``, which
    is a point mass if they were not sampled.
    """

    tokens: Tensor
    target: Tensor
    draft: Tensor
    target_raw: Tensor
    draft_raw: Tensor
    allowed: Tensor | None = None
    logits: Tensor | None = None
    """of the target, [B,R,V]; ``None`` if unavailable"""
    greedy: bool = False
    """whether the temperature is 0, so that ``target`` is a point mass"""
    lengths: Tensor | None = None
    """number of positions that belong to each text, int64 [B]; ``None`` if all do"""
    undrawn: Tensor | None = None
    """the draft's warped distribution, [B,R,V], if ``draft`` is a point mass for lack of sampling, as on a tree"""

    @property
    def graded_target(self) -> Tensor:
        """p for rules that rate other tokens: the warped one, or at temperature 0 the raw one. [B,R,V]"""
        return self.target_raw if self.greedy else self.target

    @property
    def draft_distribution(self) -> Tensor:
        """q, warped, whether or not the tokens were drawn from it. [B,R,V]"""
        return self.draft if self.undrawn is None else self.undrawn

    def of_token(self, probabilities: Tensor) -> Tensor:
        """Return the probability of each drafted token. [B,R,V] → [B,R]"""
        return probabilities.gather(-1, self.tokens[..., None]).squeeze(-1)

    def divergence(self, name: str, noise: Tensor, top_k: int = 50) -> Tensor:
        """Return the raw distributions' divergence at each position, [B,R]."""
        return divergence(name, self.target_raw, self.draft_raw, noise, top_k)

    @property
    def graded_entropy(self) -> Tensor:
        """Entropy of :attr:`graded_target` at each position, in nats. [B,R]"""
        return entropy(self.graded_target)

    @property
    def raw_entropies(self) -> tuple[Tensor, Tensor]:
        """Entropies of the raw target and draft distributions, in nats. [B,R] each"""
        return entropy(self.target_raw), entropy(self.draft_raw)

    @property
    def variation(self) -> Tensor:
        """Total variation of the two warped distributions. [B,R]"""
        return (self.target - self.draft_distribution).abs().sum(-1) / 2

    def mentored(self, budget: float) -> Tensor:
        """Return what overlaps most with the draft's distribution within ``budget`` nats of the target's, [B,R,V]."""
        return mentored(self.target, self.draft, budget)

    def at(self, position: Tensor) -> ScoredDraft:
        """Return one position of each row of the batch. ``position``: int64 [B] → ScoredDraft with R = 1."""
        batch = torch.arange(position.shape[0], device=position.device)

        def pick(x: Tensor) -> Tensor:
            return x[batch, position][:, None]

        def pick_known(x: Tensor | None) -> Tensor | None:
            return None if x is None else pick(x)

        return ScoredDraft(
            pick(self.tokens), pick(self.target), pick(self.draft), pick(self.target_raw), pick(self.draft_raw),
            pick_known(self.allowed), pick_known(self.logits), self.greedy, undrawn=pick_known(self.undrawn),
        )  # fmt: skip


def joint_law(log_weights: Tensor, rows: Tensor) -> Tensor:
    """Return norm(exp(L_b) · p(v | b)) over the pairs (b, v), in the order b·V + v.

    log_weights: float64 [B], −inf for a beam of weight 0, not all −inf. rows: [B,V]. Returns float64 [B·V].
    """
    law = (log_weights - log_weights.max()).exp()[:, None] * rows.double()
    return (law / law.sum()).flatten()


@dataclass(frozen=True, slots=True)
class JudgedLayer:
    """The beams of a layer, for T trials. W: the largest width."""

    atoms: Tensor
    """int64 [T,W] in order, accepted drafts first; −1 behind a trial's own width"""
    drafts: Tensor
    """int64 [T,W], the index of the draft that was accepted; −1 for a sampled atom"""
    accepted: Tensor
    """int64 [T]; a layer passes if it is the width"""


def judge_layer(p: Tensor, q: Tensor, drafts: Tensor, widths: Tensor, tests: Tensor, fills: Tensor) -> JudgedLayer:
    """Test each draft x in turn while beams are missing: accept iff u·q(x) < cur(x).

    cur is p at first and after an acceptance, and norm((cur − q)₊) after a rejection. What drafts leave empty is filled
    with one sample of cur and then samples of p. p, q: float64 [T,A]. drafts: int64 [T,M], drawn from q with
    replacement. widths: int64 [T], fixed before. tests: float64 [T,M] and fills: float64 [T,W], in [0, 1).
    """
    trials, most = fills.shape
    row = torch.arange(trials, device=p.device)
    atoms, origins = drafts.new_full((trials, most + 1), -1), drafts.new_full((trials, most + 1), -1)
    accepted, current = widths.new_zeros(trials), p
    for i in range(drafts.shape[1]):
        x, is_open = drafts[:, i], accepted < widths
        kept = passes(current[row, x], q[row, x], tests[:, i]) & is_open
        slot = accepted.where(kept, most)  # the last column takes what is not kept
        atoms[row, slot], origins[row, slot] = x, i
        accepted = accepted + kept
        left = residual(current, q)
        left = left / left.sum(-1, keepdim=True)
        current = p.where(kept[:, None], left.where(is_open[:, None], current))
    for slot in range(int(accepted.min()), most):
        weights = current.where((accepted == slot)[:, None], p)
        is_filled = (slot >= accepted) & (slot < widths)
        atoms[:, slot] = draw(weights, fills[:, slot]).where(is_filled, atoms[:, slot])
    return JudgedLayer(atoms[:, :most], origins[:, :most], accepted)
