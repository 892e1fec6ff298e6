"""Figures by kind of prompt: a mean over prompts hides where a setting gains and where it loses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsd_core.evaluation.aggregate import summarise

if TYPE_CHECKING:
    from fsd_core.storage.records import PromptCounts


def by_category(prompts: Mapping[int, PromptCounts], categories: Mapping[int, str]) -> dict[str, dict[str, Any]]:
    """Return the metrics of a run's prompts for each category, in the order of the categories' first prompts.

    ``categories``: by position. Empty if fewer than two categories occur.
    """
    groups: dict[str, list[PromptCounts]] = {}
    for position, counts in sorted(prompts.items()):
        if category := categories.get(position):
            groups.setdefault(category, []).append(counts)
    return {name: summarise(group, None) for name, group in groups.items()} if len(groups) > 1 else {}
