"""Drafting with the pair's smaller model."""

from __future__ import annotations

from typing import Literal

from fsd_core.config.drafting.base import DrafterSettings


class DraftModelDrafter(DrafterSettings):
    """The pair's draft model writes the proposal."""

    title, implementation = "Draft model", "fsd_core.drafters.draft_model:DraftModelProposer"
    kind: Literal["draft-model"] = "draft-model"
