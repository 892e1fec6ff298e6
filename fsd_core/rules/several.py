"""Several drafts per position: multi-draft verifiers and beams.

Verifiers that test at most one draft. Another draft is accepted if it equals the written token.

SpecHub = Sun et al. 2024; greedy drafts = Hu et al. 2025 (arXiv 2502.18779).

Recursive rejection sampling tests each draft in turn against the residual of p.

Miao et al. 2023 (SpecInfer); without replacement Jeon et al. 2024 and Yang et al. 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from fsd_core.errors import Contradiction
from fsd_core.frozen import option
from fsd_core.rules.base import BEAMS, SEVERAL, Rule, passes, residual
from fsd_core.theory import DraftSampling

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.theory import Vector


@dataclass(frozen=True, slots=True)
class Drafts:
    """Positions with their drafted tokens. R positions, n drafts.

    tokens: int64 [R,n] in sampling order. valid: bool [R,n], which drafts exist. target, draft: p and q, [R,V]. q is
    the distribution of the first draft. If all drafts but the last are certain (``spec-hub``, ``greedy-optimal``), q is
    that of the last: the draft's distribution without the certain tokens.
    """

    tokens: Tensor
    valid: Tensor
    target: Tensor
    draft: Tensor

    @property
    def count(self) -> int:
        return self.tokens.shape[1]

    def none_selected(self) -> Tensor:
        """Return −1 at every position: int64 [R]"""
        return self.tokens.new_full((len(self.tokens),), -1)


class CouplingResult(NamedTuple):
    """A verifier's result for the drafts of R positions.

    selected: int64 [R], the drafted token that is written, −1 for none. residual: [R,V], weights from which the token
    is sampled if no draft is selected: non-negative, with a positive sum. That token may equal a draft as well.
    """

    selected: Tensor
    residual: Tensor


class Verifier(Rule):
    """A lossless verifier of several drafts per position.

    It couples the target's distribution p with the joint distribution of the n drafts, so that the token has the
    distribution p whatever was drafted. Its module imports neither torch nor numpy, because the pages import it.
    """

    lossless, shapes = True, (SEVERAL,)
    note = (
        "Meant for sampling: at temperature 0 the text is that of SD, with more to check. More drafts pay off where a "
        "forward over many tokens costs little more than one over a few."
    )
    sampling: ClassVar[DraftSampling] = "with_replacement"
    """how its drafts are sampled"""
    optimal: ClassVar[bool] = False
    """whether no other verifier accepts such drafts more often"""

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        """Choose the draft that is written, if any. ``uniforms``: float64 [R,n] in [0,1)."""
        self.refuse()

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return the probability that the written token is one of ``count`` drafts. p, q: float64 [V].

        ``samples``: number of paths to sample if the exact value cannot be computed.
        """
        raise NotImplementedError(f"{cls.__name__} says how often it accepts in a method 'rate'")


def of_token(probabilities: Tensor, token: Tensor) -> Tensor:
    """Return the probability of a token at each position. [R,V], int64 [R] → [R]"""
    return probabilities.gather(1, token[:, None])[:, 0]


def judge_one(at: Tensor, drafts: Drafts, uniforms: Tensor, valid: Tensor) -> CouplingResult:
    """Apply speculative decoding to the draft of index ``at`` (int64 [R]), where it is ``valid`` (bool [R,n])."""
    p, q = drafts.target.double(), drafts.draft.double()
    x, is_valid = of_token(drafts.tokens, at), of_token(valid, at)
    accepted = passes(of_token(p, x), of_token(q, x), uniforms[:, 0]) & is_valid
    return CouplingResult(x.where(accepted, drafts.none_selected()), residual(p, q).where(is_valid[:, None], p))


def drafts_ratio(target: Tensor, draft: Tensor, count: Tensor) -> Tensor:
    """Return ρ of several positions by bisection, float64 [R]; see :func:`ratio`. count: number of drafts, int64 [R].

    Any ρ that is large enough is lossless. This one exceeds the best by at most n/2²⁴.
    """
    p, q = target.double(), draft.double()
    low, high = p.new_ones(len(p)), count.double().clamp_min(1)
    for _ in range(24):
        middle = (low + high) / 2
        overlap = (p / middle[:, None]).minimum(q).sum(-1)
        too_small = 1 - (1 - overlap) ** count > middle * overlap
        low, high = middle.where(too_small, low), high.where(too_small, middle)
    return high


def ratio(p: Vector, q: Vector, count: int) -> float:
    """Return ρ in [1,n]: the root of 1 − (1 − β)^n = ρβ, with β(ρ) = Σ min(p/ρ, q)."""
    from fsd_core.theory import once_in

    def left_over(ratio: float) -> float:
        overlap = (p / ratio).clip(max=q).sum()
        return float(once_in(overlap, count)) - ratio * overlap

    if count == 1 or left_over(1.0) <= 0:
        return 1.0
    low, high = 1.0, float(count)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if left_over(middle) > 0 else (low, middle)
    return high


class KSeq(Verifier):
    """Tests each draft against the same lowered p."""

    title, long_title = "K-SEQ", "K-SEQ · several drafts, one test"
    explanation = "Gives every draft the same test: the target's probability over the draft's, lowered by one factor."
    kind: Literal["k-seq"] = "k-seq"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        """Accept each draft with min(1, p/(ρq)); else sample from (p − min(p/ρ, q)·a/β)₊, a = 1 − (1−β)^n."""
        p, q = drafts.target.double(), drafts.draft.double()
        count = drafts.valid.sum(1)
        ratio = drafts_ratio(p, q, count)
        selected = drafts.none_selected()
        for i in range(drafts.count):
            x = drafts.tokens[:, i]
            accepted = passes(of_token(p, x) / ratio, of_token(q, x), uniforms[:, i]) & (selected < 0)
            selected = x.where(accepted & drafts.valid[:, i], selected)
        overlap = (p / ratio[:, None]).minimum(q)
        beta = overlap.sum(-1, keepdim=True)
        remainder = residual(p, overlap * (1 - (1 - beta) ** count[:, None]) / beta.clamp_min(1e-300))
        return CouplingResult(selected, remainder)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return ρβ(ρ)."""
        rho = ratio(p, q, count)
        return rho * (p / rho).clip(max=q).sum()


class NaiveSampling(Verifier):
    """Writes a sample of p and accepts a draft that equals it."""

    title, long_title = "NSS", "NSS · several drafts, the target's sample"
    explanation = "Samples from the target, and keeps a draft that happens to equal the sample."
    kind: Literal["nss"] = "nss"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return CouplingResult(drafts.none_selected(), drafts.target)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return Σ p (1 − (1 − q)^n): the chance that a sample from p is among the drafts."""
        from fsd_core.theory import once_in

        return (p * once_in(q, count)).sum()


class FirstDraft(Verifier):
    """Speculative decoding on the first draft. The recovered token may equal another draft."""

    title, long_title = "Naive", "Naive · several drafts, the first judged"
    explanation = "SD on the first draft. If it is rejected, the recovered token may be another of the drafts."
    kind: Literal["naive"] = "naive"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return judge_one(drafts.valid.long().argmax(1), drafts, uniforms, drafts.valid)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return Σ min(p, q) + Σ (p − q)₊ (1 − (1 − q)^{n−1}): the residual may hit another draft."""
        from fsd_core.theory import once_in

        return p.clip(max=q).sum() + ((p - q).clip(0) * once_in(q, count - 1)).sum()


class _LastJudged(Verifier):
    """Speculative decoding on the last draft, the only random one. The recovered token may equal another draft."""

    sampling = "greedy"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        sampled = drafts.valid & (drafts.draft.gather(1, drafts.tokens) > 0)  # q is 0 on the certain drafts
        return judge_one(sampled.long().argmax(1), drafts, uniforms, sampled)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return Σ_S p + Σ_{x∉S} min(p, q'), with S the certain drafts and q' the distribution of the last."""
        from fsd_core.theory import greedy_acceptance

        return greedy_acceptance(p, q, count)


class GreedyOptimal(_LastJudged):
    """The optimal verifier for greedy drafts."""

    title, optimal = "Greedy, optimal", True
    long_title = "Greedy, optimal · likeliest drafts and one sampled"
    explanation = "Drafts the likeliest tokens and a sampled one. No other verifier accepts such drafts more often."
    kind: Literal["greedy-optimal"] = "greedy-optimal"


class SpecHub(_LastJudged):
    """The draft's likeliest token as a hub, and one sampled token: the optimal verifier for two greedy drafts."""

    title, long_title, drafts = "SpecHub", "SpecHub · two drafts", 2
    explanation = "Drafts the likeliest token and a sampled one. No other verifier accepts two such drafts more often."
    kind: Literal["spec-hub"] = "spec-hub"


def _recursive(drafts: Drafts, uniforms: Tensor, *, replaced: bool) -> CouplingResult:
    """Accept x_i with min(1, p_i/q_i). On rejection p ← norm((p−q)₊), and without replacement q(x_i) ← 0."""
    p, q = drafts.target.double(), drafts.draft.double()
    selected = drafts.none_selected()
    for i in range(drafts.count):
        x, valid = drafts.tokens[:, i], drafts.valid[:, i]
        accepted = passes(of_token(p, x), of_token(q, x), uniforms[:, i]) & (selected < 0) & valid
        selected = x.where(accepted, selected)
        p = _normalized(residual(p, q)).where(valid[:, None], p)
        if not replaced:
            q = _normalized(q.scatter(1, x[:, None], 0)).where(valid[:, None], q)
    return CouplingResult(selected, p)


def _normalized(weights: Tensor) -> Tensor:
    """Return the weights divided by their sum; all zero if that is zero. [R,V]"""
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)


class RecursiveRejection(Verifier):
    """Tests each draft in turn against the residual of p."""

    title, long_title = "RRS", "RRS · several drafts in turn"
    explanation = "Tests each draft in turn. After a rejection, the next one is tested against the target's residual."
    kind: Literal["rrs"] = "rrs"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return _recursive(drafts, uniforms, replaced=True)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return 1 − Π_i (1 − Σ min(p_i, q)), p_1 = p, p_{i+1} = norm((p_i − q)₊)."""
        rejected = 1.0
        for _ in range(count):
            remainder = (p - q).clip(0)
            missed = remainder.sum()
            rejected *= missed
            if missed <= 0:
                break
            p = remainder / missed
        return 1 - rejected


class RecursiveRejectionWithout(Verifier):
    """RRS for drafts that are all different."""

    title, sampling = "RRS without replacement", "without_replacement"
    long_title = "RRS without replacement · several different drafts"
    explanation = "As RRS, with drafts that all begin with different tokens."
    kind: Literal["rrs-without-replacement"] = "rrs-without-replacement"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return _recursive(drafts, uniforms, replaced=False)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return the rate, sampled if V^(n−1) exceeds ``MOST_PATHS``; see :mod:`fsd_core.theory`."""
        from fsd_core.theory import without_replacement

        return without_replacement(p, q, count, sampled=samples)


class BeamSampling(Rule):
    """The target alone writes W beams. A layer's beams are W independent draws, with replacement, from the joint law

        P(b, v) = norm(exp(L_b) · p(v | b)),   L ← L_b + ln p(v | b)

    over beams b and tokens v. A beam that wrote an end token has weight 0 from then on. The answer is the beam, ended
    or not, with the largest mean log-likelihood under the raw target.
    """

    title, baseline, shapes, writes_beams = "Beam sampling", True, (), True
    explanation = "The large model writes several beams and keeps the one that it finds likeliest per token."
    note = "Not the target's sampling distribution: likely texts become likelier."
    symbol, colour = "star-triangle-up", "#9d174d"
    kind: Literal["beam-sampling"] = "beam-sampling"
    beams: int = option(4, "Beams", "Beams that beam sampling writes", ge=1, le=16)

    def label_parts(self, knob: str) -> list[str]:
        return [f"{self.beams} beams"]


class SpeculativeBeams(Rule):
    """Speculative beam decoding of dynamic width (Qin et al. 2025, arXiv 2409.16560), exact for beam sampling.

    The draft model drafts M beams a layer by its own joint law. The target judges them layer by layer against its own
    (:mod:`fsd_core.ops.distributions`). A layer's width is the largest that drafts fill with at least the chance
    ``confidence``, between ``least`` and ``most``. Given what was written before, a layer of width W is W draws of beam
    sampling; given all widths of a text it is not, because later widths follow from the beams. ``least`` = ``most`` is
    beam sampling of that width.
    """

    title, long_title, shapes, writes_beams = "DSBD", "DSBD · speculative beams", (BEAMS,), True
    exact_for = "beam-sampling"
    explanation = (
        "Drafts several beams and keeps as many as the target confirms with confidence. Layer by layer, given "
        "what was written before, they are exactly beam sampling's draws."
    )
    note = (
        "Compare it with beam sampling, not with the target's own samples. On a CPU only a width that adapts made it "
        "faster than beam sampling."
    )
    symbol, colour = "star-triangle-down", "#be185d"
    kind: Literal["dsbd"] = "dsbd"
    confidence: float = option(
        0.9, "Confidence", "Chance with which drafts must fill a layer's beams", gt=0, le=1
    )  # fmt: skip
    least: int = option(1, "Fewest beams", "Fewest beams of a layer", name="least_width", ge=1, le=16)
    most: int = option(
        0, "Most beams", "Most beams of a layer; 0 is as many as are drafted", name="most_width", ge=0, le=16
    )

    def widest(self, drafts: int) -> int:
        """Return the most beams of a layer. ``drafts``: M."""
        return self.most or drafts

    def check_widths(self, drafts: int) -> None:
        """Raise ``InvalidSetting`` for widths that no layer can have with ``drafts`` drafts."""
        if self.least > self.widest(drafts):
            raise Contradiction(
                f"A layer has at least {self.least} and at most {self.widest(drafts)} beams: give a least width that "
                "is not above the most, which is the number of drafts unless you give one."
            )
        if self.least > drafts:
            raise Contradiction(
                f"{drafts} drafts cannot fill {self.least} beams, so no layer could pass: draft at least {self.least}, "
                "or lower the least width."
            )

    def label_parts(self, knob: str) -> list[str]:
        most = f" to {self.most}" if self.most not in (0, self.least) else ""
        fixed = self.most == self.least
        widths = f"width {self.least}{most}" if fixed or most or self.least != 1 else ""
        return [f"confidence {self.confidence:g}" if not fixed else "", widths]
