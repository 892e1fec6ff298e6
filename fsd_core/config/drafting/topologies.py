"""Structures of drafts: a chain, several chains, or a tree."""

from __future__ import annotations

from typing import Literal

from fsd_core.config.drafting.base import TopologySettings
from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, SEVERAL, TREE


def _length(maximum: int) -> int:
    return option(
        5, "Draft length γ", "Tokens drafted per round", name="draft_length", plural="Draft lengths γ", ge=1, le=maximum
    )


class ChainTopology(TopologySettings):
    """One candidate per position, ``length`` positions."""

    title, implementation = "Chain", "fsd_core.topologies.chain:Chain"
    kind: Literal["chain"] = CHAIN
    length: int = _length(32)

    def label_parts(self) -> list[str]:
        return []


class MultiDraftTopology(TopologySettings):
    """``drafts`` parallel chains of ``length`` positions. Their first tokens are sampled as the verifier requires."""

    title, judged_as = "Several drafts", SEVERAL
    implementation = "fsd_core.topologies.multi_draft:MultiDraft"
    kind: Literal["multi-draft"] = SEVERAL
    length: int = _length(32)
    drafts: int = option(
        3, "Drafts per position", "Drafts per position, for the rules that verify several", ge=2, le=16
    )

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round."""
        return self.length * self.drafts

    def label_parts(self) -> list[str]:
        return [f"{self.drafts} drafts"]


class DynamicTreeTopology(TopologySettings):
    """EAGLE-2's tree, the likeliest ``total_tokens`` − 1 of the nodes found.

    The nodes are the first ``top_k`` and those that ``length`` − 1 expansions (its ``depth``) of the ``top_k`` best
    add. ``length`` is the number of nodes on the longest path. The published tree (60 tokens, ``length`` 6) pays off if
    a forward of many tokens costs little more than one of a few. The default tree is smaller.
    """

    title, judged_as = "Tree", TREE
    implementation = "fsd_core.topologies.dynamic_tree:DynamicTree"
    kind: Literal["dynamic-tree"] = TREE
    length: int = _length(16)
    top_k: int = option(
        10,
        "Tree width",
        "Nodes that each level of a tree expands, the best ones",
        name="tree_top_k",
        aliases=["tree_width"],
        ge=1,
        le=32,
    )
    total_tokens: int = option(
        24, "Tree tokens", "Tokens of a tree, its root included", name="tree_tokens", ge=2, le=256
    )

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round, to the target or to the drafter."""
        return max(self.total_tokens - 1, (self.length - 1) * self.top_k)

    def label_parts(self) -> list[str]:
        is_default = self.top_k == type(self).model_fields["top_k"].default
        return [f"tree {self.total_tokens}", *([] if is_default else [f"top {self.top_k}"])]
