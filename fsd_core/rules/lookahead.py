"""FLy: a mismatch is forgiven if the target was unsure and agrees with the tokens that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, AcceptanceResult, Knob, Rule, residual, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Lookahead(Rule):
    """`lookahead`: a token that fails the strict test is accepted iff the target was unsure and the next tokens pass.

    Training-free loosely speculative decoding, FLy (Li et al. 2025, arXiv 2511.22972). Unsure means that the entropy of
    the target's three likeliest tokens, normalised, is at least θ nats (ln 3 at most). The next W drafted tokens must
    all exist and pass the strict test. It needs long drafts, γ 15 to 25. A rejected token is resampled as in strict
    decoding.
    """

    title, symbol, shapes = "Lookahead", "arrow-right", (CHAIN,)
    explanation = (
        "Forgives a token that the target would not have written, if it was unsure and agrees with the next ones."
    )
    note = "It wants long drafts, of 15 to 25 tokens: a token can be forgiven only where enough tokens follow it."
    knob = Knob("lookahead_entropy", (1.0, 0.6, 0.3, 0.1), rising=False)
    judges_together = True
    kind: Literal["lookahead"] = "lookahead"
    lookahead_entropy: float | None = option(
        0.3, "Lookahead entropy", "Least entropy of the target's three likeliest tokens; off is exact SD",
        unit="nats", plural="Lookahead entropies", ge=0,
    )  # fmt: skip
    lookahead_window: int = option(6, "Lookahead window", "How many of the next drafted tokens must pass", ge=1)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        strict = strictly(rows, uniforms)
        accepted = (
            strict if self.lookahead_entropy is None else strict | (self._unsure(rows) & self._followed(rows, strict))
        )
        return AcceptanceResult(accepted, strict, rows.divergence("js", noise))

    def _unsure(self, rows: ScoredDraft) -> Tensor:
        """Return whether the target is unsure at each position, bool [B,R]."""
        p = rows.graded_target
        top = p.topk(min(3, p.shape[-1]), -1).values
        top = top / top.sum(-1, keepdim=True)
        return -top.xlogy(top).sum(-1) >= (self.lookahead_entropy or 0)

    def _followed(self, rows: ScoredDraft, strict: Tensor) -> Tensor:
        """Return whether the next W tokens exist and pass, bool [B,R]."""
        window, passing = self.lookahead_window, strict.long()
        if rows.lengths is not None:
            passing = passing * (passing.new_ones(passing.shape).cumsum(-1) <= rows.lengths[:, None])
        passed = passing.cumsum(-1)
        later = passed.roll(-window, -1)
        exists = passing.new_ones(passing.shape).cumsum(-1) + window <= passing.shape[-1]
        return exists & (later - passed == window)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)

    def label_parts(self, knob: str) -> list[str]:
        return [f"θ {knob.removeprefix('≤ ')}".strip(), f"W {self.lookahead_window}"]
