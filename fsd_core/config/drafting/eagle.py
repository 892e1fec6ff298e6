"""Drafting with an EAGLE head."""

from __future__ import annotations

from typing import Literal

from fsd_core.config.drafting.base import DrafterSettings


class EagleDrafter(DrafterSettings):
    """The pair's EAGLE head, which drafts from the target's hidden states."""

    title, word, needs_head = "EAGLE head", "EAGLE", True
    implementation = "fsd_core.drafters.eagle:EagleProposer"
    kind: Literal["eagle"] = "eagle"
