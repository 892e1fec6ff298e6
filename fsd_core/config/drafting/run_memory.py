"""What a drafter that learns from texts remembers of a run."""

from __future__ import annotations

from typing import Any, Literal

from fsd_core.frozen import option

Memory = Literal["text", "run"]
MEMORY_TITLES = {"text": "This text alone", "run": "The run's earlier answers too"}
"""in menus"""


def memory_option() -> Any:
    """Return the field of a drafter that may remember earlier texts of a run."""
    return option(
        "text", "Copies from", "What the drafters 'suffix' and 'trigram' draft from: this text alone, or earlier "
        "answers of the run too, at temperature 0 and with a lossless rule", before="text",
    )  # fmt: skip
