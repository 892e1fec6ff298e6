"""Fuzzy speculative decoding in the general form: each token's distribution depends on its prefix only.

Where D ≤ T it is lenient: q, or as much of it as a guard allows. Elsewhere it is p. D and T are those of
:mod:`fsd_core.rules.fuzzy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import Knob, Truncation
from fsd_core.rules.fuzzy import JS_GRID, Thresholded, near
from fsd_core.rules.general import GeneralForm, head, head_truncation, within

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Reducible(GeneralForm, Thresholded):
    """π is a lenient distribution where D ≤ T, and p elsewhere."""

    def lenient(self, rows: ScoredDraft) -> Tensor:
        """Return π where D ≤ T, [B,R,V]."""
        self.refuse()

    def measured(self, rows: ScoredDraft, noise: Tensor) -> Tensor:
        return rows.divergence(self.divergence, noise, self.divergence_top_k)

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        return self.lenient(rows).where(near(divergence, self.threshold)[..., None], rows.target)


class FuzzyReducible(Reducible):
    """`fsd-reducible`: speculative decoding against the verifier π = q where D ≤ T, and π = p elsewhere.

    If the draft is sampled from q, it has the output distribution of `fsd` with a judged bonus. Its acceptance is never
    lower: P(D≤T) + E[1{D>T}·(1−TV)]. Let G be the set of tokens that the target's top-k and top-p keep. With ``guard``,
    a token outside G is not accepted where D ≤ T: π = q·1_G + (1−q(G))·p.
    """

    title = "FSD reducible"
    explanation = (
        "Writes from the draft where the two models differ by at most the threshold, and is exact SD elsewhere. Same "
        "output distribution as FSD that judges its bonus, and never a lower acceptance rate."
    )
    kind: Literal["fsd-reducible"] = "fsd-reducible"
    guard: bool = option(True, "Guard", "Be lenient only with tokens that the target's top-k and top-p keep")

    def lenient(self, rows: ScoredDraft) -> Tensor:
        return within(rows, rows.allowed) if self.guard and rows.allowed is not None else rows.draft

    def label_parts(self, knob: str) -> list[str]:
        return super().label_parts(knob) + ([] if self.guard else ["no guard"])


class FuzzyHead(Reducible):
    """`fsd-head`: the divergence gates the position, and the target's head set gates the token.

    Where D ≤ T, π = q·1_A + (1−q(A))·p with A = {v: p(v) ≥ (1 − width)·max p}, and π = p elsewhere: `fsd-reducible`
    with A in place of the guard's G. Our own rule, unpublished.
    """

    title, symbol = "FSD head", "triangle-right"
    explanation = (
        "Writes from the draft where the two models differ by at most the threshold, as far as its tokens are among "
        "the target's likeliest; exact SD elsewhere."
    )
    knob = Knob("threshold", JS_GRID, monotone=False)
    kind: Literal["fsd-head"] = "fsd-head"
    token_width: float = option(
        0.2, "Token width", "How far below the likeliest token's probability a kept token may be, as a share of it",
        ge=0, le=1,
    )  # fmt: skip

    @property
    def truncation(self) -> Truncation:
        return head_truncation(self.token_width)

    def lenient(self, rows: ScoredDraft) -> Tensor:
        return within(rows, head(rows, self.token_width))

    def label_parts(self, knob: str) -> list[str]:
        return [*super().label_parts(knob), f"width {self.token_width:g}"]
