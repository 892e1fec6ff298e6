"""Mentored decoding accepts as much of the draft as a divergence budget allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, Knob
from fsd_core.rules.general import GeneralForm

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Mentored(GeneralForm):
    """`mentored`: among all π with KL(p‖π) ≤ D, one that accepts the most (Tran-Thien 2023, "mentored decoding").

    π(v) = q(v), but at least p(v)/b and at most p(v)/a, with a ≤ 1 ≤ b such that π sums to one and KL(p‖π) = D. If
    KL(p‖q) ≤ D, π = q. Its author states it as an acceptance min(1, p/(a·q)) with a residual (p/b − q)₊.
    """

    title, symbol, shapes = "Mentored", "diamond-tall", (CHAIN,)
    explanation = "Keeps as many tokens as it can while what is written stays within a KL divergence of the target."
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("kl_budget", (0.1, 0.2, 0.3, 0.5), strict=0.0)
    needs_distribution = True
    kind: Literal["mentored"] = "mentored"
    kl_budget: float = option(
        0.2, "KL budget", "Largest KL divergence of what is written from the target; 0 is exact SD",
        unit="nats", plural="KL budgets", ge=0,
    )  # fmt: skip

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        return rows.mentored(self.kl_budget) if self.kl_budget else rows.target

    def label_parts(self, knob: str) -> list[str]:
        return [f"KL {knob}"]
