"""Single models: the two ends of every trade-off."""

from __future__ import annotations

from typing import Literal

from fsd_core.rules.base import Rule


class Autoregressive(Rule):
    """The target alone, one token per forward: the baseline of every speed-up."""

    title, lossless, baseline, shapes = "Target alone", True, True, ()
    explanation = "The large model writes every token itself: the baseline."
    symbol, colour = "square", "#6b7280"
    kind: Literal["autoregressive"] = "autoregressive"


class DraftOnly(Rule):
    """The draft alone: the other end of the trade-off."""

    title, baseline, shapes = "Draft alone", True, ()
    explanation = "The small model writes everything: the fastest and least exact."
    symbol, colour = "triangle-down", "#a16207"
    kind: Literal["draft-only"] = "draft-only"
