"""Facts from a model's configuration, as plain data. No torch: the pages read this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""names of the number of positions in configurations"""
DEFAULT_CONTEXT = 2048
"""for models that name none, since a linear bias (ALiBi) replaces positions: BLOOM's training length"""


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the text model, which that of a model of several media contains."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def number(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the first whole number among these fields of the text model, if there is one."""
    values = (text_config(config).get(name) for name in names)
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)
