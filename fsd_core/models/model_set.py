"""The models that a method may use."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fsd_core.models.conformity import check_cache
from fsd_core.models.eagle import EagleHead
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.trigrams import TrigramCounts


@dataclass(frozen=True, slots=True)
class ModelSet:
    """A target, and the models that may draft for it. Target and draft return logits over the same vocabulary."""

    target: LanguageModel
    draft: LanguageModel | None = None
    head: EagleHead | None = None
    """trained for the target"""
    tokenizer: PreTrainedTokenizerBase | None = None
    """needed if strings are looked for in texts"""
    trigrams: TrigramCounts | None = None
    """of training texts, for a drafter that begins with them"""


def over_one_vocabulary(
    target: PreTrainedModel, draft: PreTrainedModel | None, lean: bool = True
) -> tuple[LanguageModel, LanguageModel | None]:
    """Return both as models that return logits over all of the target's tokens.

    A token that the draft lacks has q = 0, and one that only the draft has is taken out before q is made. ``lean``: as
    :class:`LanguageModel` takes it. Raises ``IncompatibleModels`` as it and :func:`check_cache` do.
    """
    writer = LanguageModel(target, lean=lean)
    drafting = None if draft is None else LanguageModel(draft, writer.vocabulary, lean=lean)
    for model in filter(None, (writer, drafting)):
        check_cache(model)
    return writer, drafting
