"""Rules by the target's head set A = {v: p(v) ≥ (1 − width)·max p}: tokens nearly as likely as its likeliest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, AcceptanceResult, Knob, Rule, Truncation, residual, strictly
from fsd_core.rules.general import GeneralForm, head, head_truncation, within

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


def _head_width() -> Any:
    """Return the field of A's width."""
    return option(
        0.2, "Head width", "How far below the likeliest token's probability a kept token may be, as a share of it",
        plural="Head widths", ge=0, le=1,
    )  # fmt: skip


class Head(GeneralForm):
    """`head`: π = q·1_A + (1−q(A))·p, the rule TokenV3 of speculative cascades (arXiv 2405.19261).

    A is computed from p as it is sampled, or from the raw p at temperature 0. At a width of 0 the target's likeliest
    token is still accepted whenever it is drafted, which is lossless at temperature 0 only; ``off`` is always lossless.
    A wider A does not always accept more, because it takes from p's share.
    """

    title, symbol, shapes = "Head set", "pentagon", (CHAIN,)
    explanation = (
        "Writes from the draft as far as its tokens are nearly the target's likeliest, and from the target else."
    )
    knob = Knob("head_width", (0.0, 0.35, 0.8), monotone=False)
    needs_distribution = True
    kind: Literal["head"] = "head"
    head_width: float | None = _head_width()

    @property
    def truncation(self) -> Truncation:
        return head_truncation(self.head_width)

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        return rows.target if self.head_width is None else within(rows, head(rows, self.head_width))


class HeadStrict(Rule):
    """`head-strict`: accept x if it is in A, else by the strict test; resample a rejected token as in strict decoding.

    It is resampled from norm((p−q)₊), so the output has no distribution of the general form. Works for copied tokens
    too.
    """

    title, symbol = "Head, else strict", "octagon"
    explanation = "Keeps a token that is nearly the target's likeliest; other tokens must pass the strict test."
    knob = Knob("head_width", (0.1, 0.15, 0.2, 0.5))
    kind: Literal["head-strict"] = "head-strict"
    head_width: float | None = _head_width()

    @property
    def truncation(self) -> Truncation:
        return head_truncation(self.head_width)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        strict = strictly(rows, uniforms)
        accepted = strict if self.head_width is None else strict | rows.of_token(head(rows, self.head_width))
        return AcceptanceResult(accepted, strict, rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)
