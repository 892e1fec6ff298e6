"""Structures of drafts: a chain, several chains, or a tree."""

from __future__ import annotations

from typing import Literal

from fsd_core.config.drafting.base import TopologySettings
from fsd_core.config.drafting.recent_acceptance import RecentAcceptance
from fsd_core.frozen import changed, option
from fsd_core.rules.base import CHAIN, SEVERAL, TREE


def length_option(maximum: int, default: int = 5) -> int:
    """Return the field of the most tokens on a path."""
    return option(
        default, "Draft length γ", "Tokens drafted per round", name="draft_length", plural="Draft lengths γ", ge=1,
        le=maximum,
    )  # fmt: skip


def total_tokens_option() -> int:
    """Return the field of a tree's size."""
    return option(24, "Tree tokens", "Tokens of a tree, its root included", name="tree_tokens", ge=2, le=256)


FIXED, LAST_TOKEN, WHOLE_CHAIN, ACCEPTANCE = "fixed", "token", "chain", "acceptance"
LengthBy = Literal["fixed", "token", "chain", "acceptance"]
LENGTH_TITLES = {
    FIXED: "Always the same", LAST_TOKEN: "Until the draft doubts its last token",
    WHOLE_CHAIN: "Until the draft doubts the whole chain", ACCEPTANCE: "By the acceptance so far",
}  # fmt: skip
"""in menus"""


class ChainTopology(TopologySettings):
    """One candidate per position, ``length`` positions at most.

    ``length_by`` says how many of them a round drafts. ``token`` and ``chain`` stop behind a token at which the draft's
    own probability is too low, as transformers' ``assistant_confidence_threshold`` and llama.cpp's ``p-min`` do; see
    :class:`fsd_core.topologies.chain.Chain`. ``acceptance`` takes the length that pays best at the acceptance so far,
    see :class:`fsd_core.config.drafting.recent_acceptance.RecentAcceptance`.
    """

    title, implementation = "Chain", "fsd_core.topologies.chain:Chain"
    kind: Literal["chain"] = CHAIN
    length: int = length_option(32)
    length_by: LengthBy = option(
        FIXED, "Drafts end", "What may end a draft before its draft length: nothing, too low a probability of its last "
        "token or of the whole chain, or the acceptance so far", plural="Drafts end", before=FIXED,
    )  # fmt: skip
    least_probability: float = option(
        0.4, "Least probability", "Stop drafting below this probability of the last token, or of the whole chain",
        needs={"length_by": (LAST_TOKEN, WHOLE_CHAIN)}, before=0.4, ge=0, le=1,
    )  # fmt: skip
    draft_cost: float = option(
        0.1, "Cost of a drafted token", "Time to draft a token, in target forwards", unit="forwards",
        needs={"length_by": (ACCEPTANCE,)}, before=0.1, ge=0, le=10,
    )  # fmt: skip

    def next_length(self, acceptance: RecentAcceptance) -> int:
        return acceptance.best_length(self.length, self.draft_cost) if self.length_by == ACCEPTANCE else self.length

    def label_parts(self) -> list[str]:
        if self.length_by in (LAST_TOKEN, WHOLE_CHAIN):
            return [f"length by {self.length_by} ≥ {self.least_probability:g}"]
        return changed(self, "length", "least_probability")


class MultiDraftTopology(TopologySettings):
    """``drafts`` parallel chains of ``length`` positions. Their first tokens are sampled as the verifier requires."""

    title, judged_as = "Several drafts", SEVERAL
    implementation = "fsd_core.topologies.multi_draft:MultiDraft"
    kind: Literal["multi-draft"] = SEVERAL
    length: int = length_option(32)
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
    length: int = length_option(16)
    top_k: int = option(
        10,
        "Tree width",
        "Nodes that each level of a tree expands, the best ones",
        name="tree_top_k",
        aliases=["tree_width"],
        ge=1,
        le=32,
    )
    total_tokens: int = total_tokens_option()

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round, to the target or to the drafter."""
        return max(self.total_tokens - 1, (self.length - 1) * self.top_k)

    def label_parts(self) -> list[str]:
        is_default = self.top_k == type(self).model_fields["top_k"].default
        return [f"tree {self.total_tokens}", *([] if is_default else [f"top {self.top_k}"])]
