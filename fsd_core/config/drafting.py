"""What is drafted, and in which shape: a union of small values each, told apart by ``kind``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fsd_core.rules.base import CHAIN, SEVERAL, TREE
from fsd_core.values import Frozen, members, option

LOOKUP = "prompt-lookup"


class _Drafter(Frozen):
    title: ClassVar[str]
    """its name where it is chosen"""
    word: ClassVar[str] = ""
    """its part of a label; empty for the default drafter"""
    has_distribution: ClassVar[bool] = True
    """whether its tokens come from a distribution, as trees and several drafts need"""

    def words(self) -> list[str]:
        """The parts of a label that name it."""
        return [self.word] if self.word else []


class DraftModelDrafter(_Drafter):
    """The pair's draft model writes the proposal."""

    title = "Draft model"
    kind: Literal["draft-model"] = "draft-model"


class PromptLookupDrafter(_Drafter):
    """Copies what followed the last n-gram at its previous occurrence. It needs no draft model."""

    title, word, has_distribution = "Prompt lookup", "prompt lookup", False
    kind: Literal["prompt-lookup"] = "prompt-lookup"
    max_ngram: int = option(3, "Longest n-gram", "Longest n-gram that prompt-lookup searches for", ge=1, le=8)

    def words(self) -> list[str]:
        usual = self.max_ngram == type(self).model_fields["max_ngram"].default
        return [self.word if usual else f"{self.word} {self.max_ngram}-gram"]


class EagleDrafter(_Drafter):
    """The pair's EAGLE head, which drafts from the target's hidden states."""

    title, word = "EAGLE head", "EAGLE"
    kind: Literal["eagle"] = "eagle"


DrafterConfig = Annotated[DraftModelDrafter | PromptLookupDrafter | EagleDrafter, Field(discriminator="kind")]
DRAFTERS: dict[str, type[_Drafter]] = members(DrafterConfig)


def _length(most: int) -> int:
    return option(5, "Draft length γ", "Tokens drafted per round", name="draft_length", ge=1, le=most)


class ChainTopology(Frozen):
    """One candidate per position, ``length`` positions."""

    title: ClassVar[str] = "Chain"
    kind: Literal["chain"] = CHAIN
    length: int = _length(32)

    @property
    def max_fed_tokens(self) -> int:
        """Tokens that are fed behind a text in a round at most."""
        return self.length

    def words(self) -> list[str]:
        """The parts of a label that name it, but for its length."""
        return []


class MultiDraftTopology(Frozen):
    """``drafts`` chains of ``length`` positions side by side, whose first tokens are drawn as the verifier asks."""

    title: ClassVar[str] = "Several drafts"
    kind: Literal["multi-draft"] = SEVERAL
    length: int = _length(32)
    drafts: int = option(
        3, "Drafts per position", "Drafts per position, for the rules that verify several", ge=2, le=16
    )

    @property
    def max_fed_tokens(self) -> int:
        """Tokens that are fed behind a text in a round at most."""
        return self.length * self.drafts

    def words(self) -> list[str]:
        return [f"{self.drafts} drafts"]


class DynamicTreeTopology(Frozen):
    """EAGLE-2's tree: the likeliest ``total_tokens`` − 1 of the nodes that ``length`` − 1 expansions (its ``depth``) of
    the ``top_k`` best find behind the first ``top_k``.

    ``length`` is the number of nodes on the longest way. By default a tree is smaller than the published one (60
    tokens, ``length`` 6), which pays where a forward of many tokens costs little more than one of a few.
    """

    title: ClassVar[str] = "Tree"
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
        """Tokens that are fed behind a text in a round at most, to the target or to the drafter."""
        return max(self.total_tokens - 1, (self.length - 1) * self.top_k)

    def words(self) -> list[str]:
        usual = self.top_k == type(self).model_fields["top_k"].default
        return [f"tree {self.total_tokens}", *([] if usual else [f"top {self.top_k}"])]


TopologyConfig = Annotated[ChainTopology | MultiDraftTopology | DynamicTreeTopology, Field(discriminator="kind")]
TOPOLOGIES: dict[str, type[ChainTopology | MultiDraftTopology | DynamicTreeTopology]] = members(TopologyConfig)
