"""How long a text may get, and what it takes in the caches."""

from __future__ import annotations

from fsd_core.config import DecodingConfig
from fsd_core.errors import InvalidSetting, PromptTooLong
from fsd_core.models.language_model import LanguageModel


def context_of(target: LanguageModel, draft: LanguageModel | None, config: DecodingConfig) -> int:
    """Positions that all models at work have."""
    alone = draft if config.acceptance.kind == "draft-only" and draft is not None else target
    drafting = draft is not None and config.drafter is not None and config.drafter.kind == "draft-model"
    return min(alone.context, draft.context) if drafting and draft is not None else alone.context


def capacity_for(target: LanguageModel, draft: LanguageModel | None, config: DecodingConfig, prompt: int) -> int:
    """Positions that a text takes behind a prompt of so many tokens, drafted ones included."""
    drafted = 0 if config.topology is None else config.topology.room + 1
    return min(prompt + config.max_new_tokens, max(prompt + 1, context_of(target, draft, config))) + drafted + 1


def check_prompt(prompt: int, context: int) -> None:
    """Raises ``InvalidSetting`` for a prompt of no tokens, ``PromptTooLong`` for one that fills the context."""
    if not prompt:
        raise InvalidSetting("The prompt is empty: write at least one word.")
    if prompt >= context:
        raise PromptTooLong(
            f"The prompt has {prompt} tokens, and the models' context holds {context}: shorten it to at most "
            f"{context - 1}."
        )
