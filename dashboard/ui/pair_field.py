"""The field in which a pair is chosen: its title, and where its models are, unless they are here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import gradio as gr
import psutil

from dashboard.ui.view import Asked, Updates
from fsd_core.models.pair_check import HERE, badge_of
from fsd_core.worker.pair_names import offered_pairs

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def pair_choices(repository: Repository) -> tuple[tuple[str, str], ...]:
    """Return the pairs that can be chosen: titles with their states, such as ``mine · to fetch, 2.9 GB``, and names."""
    memory = psutil.virtual_memory().total
    return tuple((_with_state(title, badge_of(name, memory)), name) for title, name in offered_pairs(repository))


def redraw_pairs(asked: Asked, field: gr.Dropdown, pairs: Sequence[tuple[str, str]]) -> Updates:
    """Return the pairs that can be chosen in ``field``, titles with names, if they differ."""
    return {field: gr.Dropdown([*pairs])} if asked.differs("pairs", pairs) else {}


def _with_state(title: str, badge: str) -> str:
    return title if badge == HERE else f"{title} · {badge}"
