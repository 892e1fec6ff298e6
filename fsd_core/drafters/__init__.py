"""What is proposed. A drafter is a class in a file of its own, and a name in the table below."""

from __future__ import annotations

from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.drafters.base import Drafter, DrafterFactory
from fsd_core.drafters.draft_model import DraftModelDrafter
from fsd_core.drafters.eagle import EagleDrafter
from fsd_core.drafters.prompt_lookup import PromptLookupDrafter
from fsd_core.errors import UnknownName
from fsd_core.models.model_set import ModelSet

__all__ = ["DRAFTERS", "Drafter", "DrafterFactory", "drafter_factory"]

DRAFTERS: dict[str, type[Drafter]] = {
    drafter.kind: drafter for drafter in (DraftModelDrafter, PromptLookupDrafter, EagleDrafter)
}
"""the classes by the ``kind`` of their configurations"""


def drafter_factory(kind: str, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
    """What makes drafters of a kind. ``sampling``: how they sample.

    Raises ``UnknownName`` for a kind that nobody knows, and what the class's ``for_models`` raises.
    """
    if kind not in DRAFTERS:
        raise UnknownName(f"There is no drafter '{kind}': expected one of {', '.join(DRAFTERS)}.")
    return DRAFTERS[kind].for_models(models, config, sampling)
