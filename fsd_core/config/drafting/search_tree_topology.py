"""A tree searched in what a drafter has looked up."""

from __future__ import annotations

from typing import Literal

from fsd_core.config.drafting.base import TopologySettings
from fsd_core.config.drafting.topologies import length_option, total_tokens_option
from fsd_core.frozen import option
from fsd_core.rules.base import TREE

BEST_FIRST, MCTS = "best-first", "mcts"
SEARCH_TITLES = {BEST_FIRST: "Best first", MCTS: "Monte Carlo tree search"}
"""in menus"""


class SearchTreeTopology(TopologySettings):
    """The likeliest ``total_tokens`` − 1 paths of at most ``length`` tokens, by the successors that a drafter knows.

    ``best-first`` takes the node with the largest product of probabilities, again and again. ``mcts`` searches as
    Adaptix does (Liu et al. 2025), at ``iterations`` · ``length`` times the cost, for about the same tree.
    """

    title, judged_as, searches = "Search tree", TREE, True
    implementation = "fsd_core.topologies.search_tree:SearchTree"
    kind: Literal["search-tree"] = "search-tree"
    length: int = length_option(16, default=4)
    total_tokens: int = total_tokens_option()
    search: Literal["best-first", "mcts"] = option(
        BEST_FIRST, "Search", "How a search tree is found: best first, or by Monte Carlo tree search"
    )
    iterations: int = option(
        150, "Iterations", "Iterations of a Monte Carlo tree search", needs={"search": (MCTS,)},
        name="search_iterations", ge=1, le=500,
    )  # fmt: skip

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round."""
        return self.total_tokens - 1

    def label_parts(self) -> list[str]:
        found = f"{self.search} {self.iterations}" if self.search == MCTS else ""
        return [f"search tree {self.total_tokens}", found]
