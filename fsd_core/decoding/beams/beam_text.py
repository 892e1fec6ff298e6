"""The host's state of one text that is written as beams: a trie of tokens, the live beams, and the best ended one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fsd_core.decoding.text_marks import TextMarks
from fsd_core.decoding.trace import Kind


@dataclass(eq=False, slots=True, repr=False)
class BeamNode:
    """A token behind the beginning of a text. Texts that share a beginning share its nodes. The root is the prompt's
    last token, at depth 0."""

    token: int
    parent: BeamNode | None = None
    depth: int = 0
    ends: bool = False
    """whether the text ends with it"""
    kind: Kind = "plain"
    probability: float = 1.0
    """under the raw target; known once it belongs to a beam"""
    log_likelihood: float = 0.0
    """sum of the logarithms from the root to here, under the raw target"""

    def up(self) -> Iterator[BeamNode]:
        """Yield the node and what is above it, the root last."""
        node: BeamNode | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def mean_log_likelihood(self) -> float:
        return self.log_likelihood / max(self.depth, 1)


@dataclass(frozen=True, slots=True)
class Beam:
    """A beam of weight exp(``log_weight``). Two beams may have the same text."""

    node: BeamNode
    log_weight: float


class BeamText:
    """A prompt, the beams behind it, and what of their text has been told.

    ``limit``: most tokens to write; ``limited_by``: its reason. ``eos``: ids that end a text; ``marks``: strings that
    do. ``stop_reason``: ``None`` until the end.
    """

    def __init__(
        self, prompt: Sequence[int], limit: int, limited_by: str, eos: frozenset[int], marks: TextMarks | None
    ) -> None:
        self.history = list(prompt)
        self.stop_reason: str | None = None
        self.live = [Beam(BeamNode(prompt[-1]), 0.0)]
        self._prompt, self._limit, self._limited_by = list(prompt), limit, limited_by
        self._eos, self._marks = eos, marks
        self._nodes: dict[tuple[BeamNode, int], BeamNode] = {}  # by parent and token
        self._told = self.live[0].node
        self._best: BeamNode | None = None  # the ended beam of the largest mean log-likelihood

    @property
    def remaining_layers(self) -> int:
        return self._limit - self.live[0].node.depth

    @property
    def length(self) -> int:
        """Tokens of each live beam, the prompt included."""
        return len(self._prompt) + self.live[0].node.depth

    def child(self, parent: BeamNode, token: int) -> BeamNode:
        """Return the node of a token behind another, which is made at first."""
        key = parent, token
        if key not in self._nodes:
            self._nodes[key] = BeamNode(token, parent, parent.depth + 1, self._ends(parent, token))
        return self._nodes[key]

    def _ends(self, parent: BeamNode, token: int) -> bool:
        if token in self._eos or self._marks is None:
            return token in self._eos
        return self._marks.first(self.tokens(parent), [token], None) is not None

    def tokens(self, node: BeamNode) -> list[int]:
        """Return the token ids of the prompt and of the text up to a node."""
        return self._prompt + [above.token for above in node.up()][-2::-1]

    def add_layer(self, beams: Iterable[Beam]) -> None:
        """Replace the live beams by those of the next layer. The ended ones among them are candidates for the answer
        from now on."""
        beams = list(beams)
        self.live = [beam for beam in beams if not beam.node.ends]
        ended = [beam.node for beam in beams if beam.node.ends]
        candidates = ended if self._best is None else [self._best, *ended]
        self._best = max(candidates, key=lambda node: node.mean_log_likelihood, default=None)
        if not self.live:
            self.stop_reason = "eos"
        elif self.remaining_layers <= 0:
            self.stop_reason = self._limited_by

    def tell(self) -> list[BeamNode]:
        """Return the nodes that have become common to all candidates; at the end, the rest of the answer.

        The ended beam that could be the answer is a candidate like the live ones, so that nothing told is taken back.
        """
        nodes = [*(beam.node for beam in self.live), *filter(None, [self._best])]
        if self.stop_reason is not None:
            answer = max(nodes, key=lambda node: node.mean_log_likelihood)
            self.stop_reason = "eos" if answer.ends else self._limited_by
            nodes = [answer]
        common = common_node(nodes)
        new = list(reversed([node for node in common.up() if node.depth > self._told.depth]))
        self._told = common
        self.history += [node.token for node in new]
        return new


def common_node(nodes: Iterable[BeamNode]) -> BeamNode:
    """Return the deepest node on the paths to all of these."""
    distinct = {*nodes}
    while len(distinct) > 1:
        deepest = max(distinct, key=lambda node: node.depth)
        assert deepest.parent is not None  # the root alone is left before it is reached
        distinct = (distinct - {deepest}) | {deepest.parent}
    return distinct.pop()


def log_of(probability: float) -> float:
    """Return the logarithm, −inf for 0."""
    return math.log(probability) if probability > 0 else -math.inf
