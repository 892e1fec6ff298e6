"""The models that a method may use."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

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
