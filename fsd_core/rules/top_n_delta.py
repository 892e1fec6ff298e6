"""TensorRT-LLM's relaxed acceptance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import AcceptanceResult, Knob, Rule, Truncation, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class TopNDelta(Rule):
    """`top-n-delta`: accept x iff it is among the target's n likeliest tokens and p(x) ≥ max p − δ; else a sample of p.

    TensorRT-LLM's relaxed acceptance (`relaxed_topk`, `relaxed_delta`). p is the sampled distribution. At temperature 0
    it is the raw one, and δ = 0 is exact SD. With sampling no δ is.
    """

    title, symbol = "Top-n, delta", "star-square"
    explanation = (
        "Keeps a drafted token that is among the target's n likeliest and not much less likely than the first."
    )
    knob = Knob("relaxed_delta", (0.1, 0.3, 0.6, 0.9), is_off=False)
    kind: Literal["top-n-delta"] = "top-n-delta"
    relaxed_delta: float = option(
        0.6, "Relaxed delta", "How far below the likeliest token's probability a kept token may be",
        plural="Relaxed deltas", ge=0, le=1,
    )  # fmt: skip
    relaxed_topk: int = option(10, "Relaxed top", "How many of the target's likeliest tokens may be kept", ge=1)

    @property
    def truncation(self) -> Truncation:
        """The n likeliest tokens. δ, which no sampling option expresses, keeps fewer of them."""
        return Truncation(top_k=self.relaxed_topk)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        p = rows.graded_target
        likeliest = p.topk(min(self.relaxed_topk, p.shape[-1]), -1).values
        least = (likeliest[..., 0] - self.relaxed_delta).maximum(likeliest[..., -1])
        return AcceptanceResult(rows.of_token(p) >= least, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target

    def label_parts(self, knob: str) -> list[str]:
        return [f"n {self.relaxed_topk}", f"δ {knob.removeprefix('≤ ')}".strip()]
