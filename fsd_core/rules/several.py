"""What a verifier of several drafts per position is; each has a file with its words, its coupling and its rate."""

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
    """Positions with what was drafted there. R positions, n drafts.

    tokens: int64 [R,n] in the order in which they were drawn. valid: bool [R,n], which of them there are. target,
    draft: p and q, [R,V]; q is the distribution of the first draft, or, where all others are certain (``spec-hub``,
    ``greedy-optimal``), of the last: the draft's distribution without them.
    """

    tokens: Tensor
    valid: Tensor
    target: Tensor
    draft: Tensor

    @property
    def count(self) -> int:
        return self.tokens.shape[1]

    def none_chosen(self) -> Tensor:
        """−1 at every position: int64 [R]"""
        return self.tokens.new_full((len(self.tokens),), -1)


class CouplingResult(NamedTuple):
    """What a verifier makes of the drafts of R positions.

    chosen: int64 [R], the token of the draft that is written, −1 for none. rest: [R,V], weights from which the token is
    drawn where no draft is chosen: not negative, with a positive sum. That token may be one of the drafts as well.
    """

    chosen: Tensor
    rest: Tensor


class Verifier(Rule):
    """A lossless verifier of several drafts per position.

    It is a coupling of the target's distribution p with the joint distribution of the n drafts, so that the token is
    distributed as p whatever was drafted. Both methods import neither torch nor numpy, because the pages import them.
    """

    lossless, shapes = True, (SEVERAL,)
    note = (
        "Meant for sampling: at temperature 0 the text is that of SD, with more to check. More drafts pay off where a "
        "forward over many tokens costs little more than one over a few."
    )
    sampling: ClassVar[DraftSampling] = "with_replacement"
    """how its drafts are drawn"""
    optimal: ClassVar[bool] = False
    """whether no verifier accepts drafts of its kind more often"""

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        """The draft that is written, if any. ``uniforms``: float64 [R,n] in [0,1)."""
        self.refuse()

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """The chance that the token written is one of ``count`` drafts. p, q: float64 [V].

        ``samples``: how many are taken where it cannot be computed.
        """
        raise NotImplementedError(f"{cls.__name__} says how often it accepts in a method 'rate'")


def of_token(probabilities: Tensor, token: Tensor) -> Tensor:
    """The probability of a token at each position. [R,V], int64 [R] → [R]"""
    return probabilities.gather(1, token[:, None])[:, 0]


def judge_one(at: Tensor, drafts: Drafts, uniforms: Tensor, valid: Tensor) -> CouplingResult:
    """Speculative decoding on the draft of index ``at`` (int64 [R]), where it is ``valid`` (bool [R,n])."""
    p, q = drafts.target.double(), drafts.draft.double()
    x, there = of_token(drafts.tokens, at), of_token(valid, at)
    accepted = passes(of_token(p, x), of_token(q, x), uniforms[:, 0]) & there
    return CouplingResult(x.where(accepted, drafts.none_chosen()), residual(p, q).where(there[:, None], p))
