"""What is proposed: one class per drafter, made from its configuration by :func:`make_drafter`."""

from __future__ import annotations

from fsd_core.config import INFINITE_WITHOUT_Q, TOP_K, DecodingConfig, SamplingConfig
from fsd_core.config import EagleDrafter as EagleConfig
from fsd_core.config import PromptLookupDrafter as PromptLookupConfig
from fsd_core.drafters.base import Drafter
from fsd_core.drafters.draft_model import DraftModelDrafter
from fsd_core.drafters.eagle import EagleDrafter
from fsd_core.drafters.prompt_lookup import PromptLookupDrafter
from fsd_core.errors import InvalidSetting
from fsd_core.models.eagle import EagleHead
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.pairs import NO_HEAD

__all__ = ["Drafter", "make_drafter", "usable_head"]


def usable_head(config: DecodingConfig, head: EagleHead | None) -> EagleHead:
    """The head, if it is there and can be judged as the configuration asks. Raises ``InvalidSetting``."""
    if head is None:
        raise InvalidSetting(NO_HEAD)
    if not head.covers_all and (config.divergence or "").removeprefix(TOP_K) in INFINITE_WITHOUT_Q:
        raise InvalidSetting(
            f"The divergence '{config.divergence}' is infinite with this EAGLE head, which gives some tokens of the "
            "vocabulary no probability, so nothing would ever be accepted: choose kl, js or tv."
        )
    return head


def make_drafter(
    config: DecodingConfig,
    target: LanguageModel,
    draft: LanguageModel | None,
    head: EagleHead | None,
    sampling: SamplingConfig,
    capacity: int,
    rows: int = 1,
) -> Drafter:
    """The drafter that a configuration names, for ``rows`` texts of up to ``capacity`` tokens.

    ``sampling``: how it samples. Raises ``InvalidSetting`` if a draft or a head is missing, for several texts where it
    knows one, and for a divergence that would be infinite.
    """
    kind = config.drafter
    if isinstance(kind, (PromptLookupConfig, EagleConfig)) and rows > 1:
        raise InvalidSetting(f"The drafter '{kind.kind}' writes one text at a time: choose --batch 1.")
    if isinstance(kind, PromptLookupConfig):
        return PromptLookupDrafter(kind.max_ngram, target.vocabulary, target.device)
    if isinstance(kind, EagleConfig):
        return EagleDrafter(usable_head(config, head), target.layers, sampling, capacity, target.vocabulary)
    if draft is None:
        raise InvalidSetting("The drafter 'draft-model' needs a draft model: give one, or choose prompt-lookup.")
    return DraftModelDrafter(draft, sampling, capacity, rows)
