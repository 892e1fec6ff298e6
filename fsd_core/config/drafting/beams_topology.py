"""The structure of drafted beams."""

from __future__ import annotations

from typing import Literal

from fsd_core.config.drafting.base import TopologySettings
from fsd_core.frozen import option
from fsd_core.rules.base import BEAMS


class BeamsTopology(TopologySettings):
    """``drafts`` beams in each of ``length`` layers, drawn with replacement from the draft's joint law."""

    title, judged_as = "Beams", BEAMS
    implementation = "fsd_core.decoding.beams.beam_drafting:BeamDrafting"
    kind: Literal["beams"] = BEAMS
    length: int = option(5, "Draft length γ", "Layers drafted per round", name="draft_length", ge=1, le=16)
    drafts: int = option(3, "Drafts per position", "Drafts per layer of beams", ge=1, le=16)

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after the live beams in one round."""
        return self.length * self.drafts

    def label_parts(self) -> list[str]:
        return [f"{self.drafts} drafts"]
