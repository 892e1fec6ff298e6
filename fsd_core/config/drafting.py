"""What is drafted, and in which shape: a union of small values each, told apart by ``kind``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fsd_core.config.values import Frozen, members


class DraftModelDrafter(Frozen):
    """The pair's draft model writes the proposal."""

    kind: Literal["draft-model"] = "draft-model"


class PromptLookupDrafter(Frozen):
    """Copies what followed the last n-gram where it stood before; needs no draft model."""

    kind: Literal["prompt-lookup"] = "prompt-lookup"
    max_ngram: int = Field(default=3, ge=1, le=8)


class EagleDrafter(Frozen):
    """The pair's EAGLE head, which goes on from the target's own states."""

    kind: Literal["eagle"] = "eagle"


DrafterConfig = Annotated[DraftModelDrafter | PromptLookupDrafter | EagleDrafter, Field(discriminator="kind")]
DRAFTERS = members(DrafterConfig)


class ChainTopology(Frozen):
    """One candidate per position, ``length`` positions."""

    kind: Literal["chain"] = "chain"
    length: int = Field(default=5, ge=1, le=32)

    @property
    def room(self) -> int:
        """Tokens that are fed behind a text in a round at most."""
        return self.length


class MultiDraftTopology(Frozen):
    """``drafts`` chains of ``length`` positions side by side, whose first tokens are drawn as the verifier asks."""

    kind: Literal["multi-draft"] = "multi-draft"
    length: int = Field(default=5, ge=1, le=32)
    drafts: int = Field(default=3, ge=2, le=16)

    @property
    def room(self) -> int:
        """Tokens that are fed behind a text in a round at most."""
        return self.length * self.drafts


class DynamicTreeTopology(Frozen):
    """EAGLE-2's tree: the likeliest ``total_tokens`` − 1 of the nodes that ``length`` − 1 expansions (its ``depth``) of
    the ``top_k`` best find behind the first ``top_k``."""

    kind: Literal["dynamic-tree"] = "dynamic-tree"
    length: int = Field(default=6, ge=1, le=16, description="Nodes on the longest way.")
    top_k: int = Field(default=10, ge=1, le=32)
    total_tokens: int = Field(default=60, ge=2, le=256, description="With the root.")

    @property
    def room(self) -> int:
        """Tokens that are fed behind a text in a round at most, to the target or to the drafter."""
        return max(self.total_tokens - 1, (self.length - 1) * self.top_k)


CHAIN, TREE, LOOKUP = "chain", "dynamic-tree", "prompt-lookup"
TopologyConfig = Annotated[ChainTopology | MultiDraftTopology | DynamicTreeTopology, Field(discriminator="kind")]
