"""Settings of drafters and topologies, with their labels. They name the code that needs torch without importing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from pydantic import ConfigDict

from fsd_core.config.drafting.recent_acceptance import RecentAcceptance
from fsd_core.frozen import Frozen, changed
from fsd_core.plugins import implementation, not_installed
from fsd_core.rules.base import CHAIN


class DrafterSettings(Frozen):
    """Settings of a drafter. Its annotated fields are options, and ``kind`` is its name."""

    title: ClassVar[str]
    """name in menus"""
    word: ClassVar[str] = ""
    """its part of a label; empty for the default drafter"""
    has_distribution: ClassVar[bool] = True
    """whether its tokens come from a distribution, which trees and several drafts need"""
    has_successors: ClassVar[bool] = False
    """whether it knows what may follow a path, which a search tree needs: a :class:`fsd_core.topologies.base.Lookup`"""
    needs_head: ClassVar[bool] = False
    """whether it drafts with an EAGLE head, which not every pair has"""
    implementation: ClassVar[str]
    """its class, a :class:`fsd_core.drafters.base.Drafter`, as ``package.module:Class``"""

    kind: str
    """name in settings and on the command line"""

    @property
    def learns_from_run(self) -> bool:
        """Whether it also drafts from earlier texts of a run, so that its drafts depend on their order."""
        return False

    def label_parts(self) -> list[str]:
        """Return the parts of a label that name it."""
        return [*filter(None, [self.word]), *changed(self)]

    def load(self) -> Any:
        """Return its class. Raises ``InvalidSetting`` if it is not installed or cannot be imported."""
        return implementation(f"The drafter '{self.kind}'", self.implementation)


class CopyingDrafter(DrafterSettings):
    """A drafter that proposes tokens of texts and needs no model. A subclass only implements :meth:`copied`.

    Its tokens have no distribution (q = 1 on each), so it drafts chains; and search trees, if it ``has_successors`` and
    implements :meth:`successors`.
    """

    has_distribution = False
    implementation = "fsd_core.drafters.copying:Copying"

    def copied(self, text: Sequence[int]) -> Sequence[int]:
        """Return the proposed continuation of a text; empty for no proposal. Only as many tokens as needed are read.

        ``text``: token ids of the prompt and of the tokens written so far, at least one.
        """
        raise NotImplementedError(f"{type(self).__name__} says what it copies in a method 'copied'")

    def successors(self, text: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return the tokens that may follow a text with their probabilities, the likeliest first.

        ``text``: as for :meth:`copied`, and behind it the tokens of a path down a tree.
        """
        raise NotImplementedError(f"{type(self).__name__} says what may follow in a method 'successors'")


class MissingDrafter(DrafterSettings):
    """A drafter of a package that is not installed. Its runs can be read and compared, but it cannot draft."""

    model_config = ConfigDict(extra="allow")
    title, has_successors = "Missing drafter", True
    kind: str

    def label_parts(self) -> list[str]:
        return [self.kind]

    def load(self) -> NoReturn:
        raise not_installed("drafter", self.kind)


class TopologySettings(Frozen):
    """Settings of a topology, the structure of the draft. Its annotated fields are options."""

    title: ClassVar[str]
    """name in menus"""
    judged_as: ClassVar[str] = CHAIN
    """How the draft is verified, and so by which rules: ``CHAIN``, position by position; ``TREE``, from the root down;
    ``SEVERAL``, by a verifier of several drafts per position; or ``BEAMS``, layer by layer of several texts."""
    searches: ClassVar[bool] = False
    """whether it asks the drafter for successors and not for distributions"""
    implementation: ClassVar[str]
    """its class, a :class:`fsd_core.topologies.base.DraftTopology`, as ``package.module:Class``"""

    kind: str
    """name in settings and on the command line"""
    length: int
    """nodes on the longest path"""

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round, to the target or to the drafter."""
        return self.length

    def next_length(self, acceptance: RecentAcceptance) -> int:
        """Return the nodes on the longest path of a text's next round, ``length`` at most."""
        return self.length

    def label_parts(self) -> list[str]:
        """Return the parts of a label that name it, without its length."""
        return [self.title.lower(), *changed(self, "length")]

    def load(self) -> Any:
        """Return its class. Raises ``InvalidSetting`` if it is not installed or cannot be imported."""
        return implementation(f"The topology '{self.kind}'", self.implementation)


class MissingTopology(TopologySettings):
    """A topology of a package that is not installed. Its runs can be read and compared, but it cannot draft."""

    model_config = ConfigDict(extra="allow")
    title = "Missing topology"
    kind: str

    def label_parts(self) -> list[str]:
        return [self.kind]

    def load(self) -> NoReturn:
        raise not_installed("topology", self.kind)
