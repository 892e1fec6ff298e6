"""Facts from a model's configuration, as plain data. No torch: the pages read this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""names of the number of positions in configurations"""
_BORDERED = ("longrope", "su", "dynamic")
"""types of rotary frequencies that change with the length of a text; the second is a former name of the first"""
_LARGEST_FACTOR = 1e6
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


def context(config: Mapping[str, Any]) -> int:
    """Return the number of positions that a text may have.

    Frequencies of the types ``linear`` and ``yarn`` reach further than the positions of training, by a factor that some
    authors count in already. Those of ``longrope`` (Phi-3, Phi-4-mini) and ``dynamic`` change, with those of all
    positions before, where a text becomes longer than in training. A cache holds the old ones, so that border is the
    context.
    """
    positions = number(config, *CONTEXTS) or DEFAULT_CONTEXT
    text = text_config(config)
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    rope = rope if isinstance(rope, dict) else {}
    kinds = [kind for kind in rope.values() if isinstance(kind, dict)] or [rope]  # one for each kind of layer
    original = number(config, "original_max_position_embeddings")
    if any(_kind(kind) in _BORDERED for kind in kinds):
        borders = [kind.get("original_max_position_embeddings") or original or positions for kind in kinds]
        return min(positions, *borders)
    reached = min(_reached(kind, positions, original) for kind in kinds)
    return max(reached, number(config, "model_max_length") or 0) if rope else reached


def _kind(rope: Mapping[str, Any]) -> str:
    return rope.get("rope_type") or rope.get("type") or "default"


def _reached(rope: Mapping[str, Any], positions: int, original: int | None) -> int:
    """Return how far frequencies reach that do not depend on a text."""
    factor = rope.get("factor")
    factor = factor if isinstance(factor, int | float) and 1 <= factor <= _LARGEST_FACTOR else 1.0
    match _kind(rope):
        case "linear":
            return int(positions * factor)
        case "yarn":
            return max(positions, int((rope.get("original_max_position_embeddings") or original or positions) * factor))
        case _:
            return positions
