"""Drafting by a table of tri-grams: which tokens followed which two."""

from __future__ import annotations

from typing import Literal

from fsd_core.config.drafting.base import CopyingDrafter
from fsd_core.config.drafting.run_memory import Memory, memory_option
from fsd_core.frozen import option

TABLE_TITLES = {"pair": "The pair's own, if it has one", "empty": "An empty one"}
"""in menus"""


class TrigramDrafter(CopyingDrafter):
    """Drafts the likeliest successors of the last two tokens, by a table that learns while it drafts.

    Adaptix (Liu et al. 2025, arXiv 2407.12021). The weight of a token w behind a pair of tokens is
    min(``cap``, share(pair, w) + learned(pair, w)), with the share of w among what followed the pair in training texts,
    if the pair of models has such a ``table``. A text's first round adds ``step`` for each tri-gram of the prompt, and
    each later one for each tri-gram of the last ``window`` tokens, so what was written lately is rewarded again and
    again. The ``most_successors`` heaviest follow, of equal ones the lower ids first. With the memory ``run`` what was
    learned is kept from text to text. The table changes from round to round, so its code drafts, and not ``copied``.
    """

    title, word, implementation = "Tri-gram table", "trigram", "fsd_core.drafters.trigram_proposer:TrigramProposer"
    has_successors = True
    kind: Literal["trigram"] = "trigram"
    table: Literal["pair", "empty"] = option(
        "pair", "First table", "Table that the drafter 'trigram' begins with: the pair's, counted in training texts, "
        "if it has one, or an empty one"
    )  # fmt: skip
    window: int = option(
        16, "Learning window", "Last tokens of the text whose tri-grams each round adds to the table",
        name="learning_window", ge=3, le=512,
    )  # fmt: skip
    step: float = option(
        0.04, "Learning step", "Weight that a tri-gram gains when it is learned; 0 learns nothing",
        name="learning_step", ge=0, le=10,
    )  # fmt: skip
    cap: float = option(3.0, "Largest weight", "Largest weight of a tri-gram", name="weight_cap", ge=0.01, le=100)
    most_successors: int = option(
        12, "Successors", "Heaviest successors of a pair of tokens that may follow", name="successors", ge=1, le=64
    )
    memory: Memory = memory_option()

    @property
    def learns_from_run(self) -> bool:
        return self.memory == "run"
