"""The field in which a pair is chosen: its title, and where its models are, unless they are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import gradio as gr

from dashboard.ui.question import Asked, Updates
from fsd_core.models.pair_check import HERE, badge_of
from fsd_core.worker.device_memory import device_memory
from fsd_core.worker.pair_names import offered_pairs

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def pair_badges(repository: Repository) -> dict[str, str]:
    """Return the states of all pairs that can be chosen, by their names."""
    memory = device_memory(repository)
    return {name: badge_of(name, memory) for _, name in offered_pairs(repository)}


def pair_choices(repository: Repository, badges: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs that can be chosen: titles with their states, such as ``mine · to fetch, 2.9 GB``, and names."""
    offered = offered_pairs(repository)
    return tuple((_with_state(title, badges[name]), name) for title, name in offered if name in badges)


def redraw_pairs(asked: Asked, field: gr.Dropdown, pairs: Sequence[tuple[str, str]]) -> Updates:
    """Return the pairs that can be chosen in ``field``, titles with names, if they differ."""
    return {field: gr.Dropdown([*pairs])} if asked.differs("pairs", pairs) else {}


def _with_state(title: str, badge: str) -> str:
    return title if badge == HERE else f"{title} · {badge}"
