"""Base class of multi-draft verifiers. Each verifier's file holds its descriptions, its coupling and its rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from fsd_core.rules.base import SEVERAL, Rule, passes, residual
from fsd_core.theory.samplings import DraftSampling

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.theory.distributions import Vector


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
