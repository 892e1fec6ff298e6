"""The models that a method may draw on."""

from __future__ import annotations

from dataclasses import dataclass

from fsd_core.models.eagle import EagleHead
from fsd_core.models.language_model import LanguageModel


@dataclass(frozen=True, slots=True)
class ModelSet:
    """A target, and what may draft for it. Both models answer with logits over the same vocabulary."""

    target: LanguageModel
    draft: LanguageModel | None = None
    head: EagleHead | None = None
    """trained for the target"""
