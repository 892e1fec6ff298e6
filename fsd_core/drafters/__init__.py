"""What is proposed: one class per drafter, made from its configuration by :func:`make_drafter`."""

from __future__ import annotations

from fsd_core.config import DrafterConfig, SamplingConfig
from fsd_core.config import PromptLookupDrafter as PromptLookupConfig
from fsd_core.drafters.base import Drafter
from fsd_core.drafters.draft_model import DraftModelDrafter
from fsd_core.drafters.prompt_lookup import PromptLookupDrafter
from fsd_core.errors import InvalidSetting
from fsd_core.models.language_model import LanguageModel

__all__ = ["Drafter", "make_drafter"]


def make_drafter(
    config: DrafterConfig,
    target: LanguageModel,
    draft: LanguageModel | None,
    sampling: SamplingConfig,
    capacity: int,
    rows: int = 1,
) -> Drafter:
    """A drafter for ``rows`` texts of up to ``capacity`` tokens.

    Raises ``InvalidSetting`` if a draft is missing, or for several texts where it knows one.
    """
    if isinstance(config, PromptLookupConfig):
        if rows > 1:
            raise InvalidSetting("The drafter 'prompt-lookup' writes one text at a time: choose --batch 1.")
        return PromptLookupDrafter(config.max_ngram, target.vocabulary, target.device)
    if draft is None:
        raise InvalidSetting("The drafter 'draft-model' needs a draft model: give one, or choose prompt-lookup.")
    return DraftModelDrafter(draft, sampling, capacity, rows)
