"""One model's cache of a forest: what the beams share is stored once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fsd_core.decoding.beams.beam_text import BeamNode
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.forest import Forest
from fsd_core.ops.transfer import to_device


class ForestCache:
    """A model with its cache: a straight prefix that all beams share, and the other cached nodes behind it."""

    def __init__(self, model: LanguageModel, capacity: int) -> None:
        self.model = model
        self.cache = model.new_cache(capacity)
        self._forest = Forest(0)
        self._nodes: dict[BeamNode, int] = {}  # those behind the prefix, with their indices in the forest
        self._trunk = 0  # depth of the first node that is not in the prefix

    def begin(self, prompt: Sequence[int]) -> None:
        """Feed all of a prompt but its last token, which is the root of the beams."""
        if len(prompt) > 1:
            self.model.forward(self._tensor(prompt[:-1]), self.cache, logits_to_keep=1)
        self._forest = Forest(len(prompt) - 1)

    def logits(self, wanted: Sequence[BeamNode]) -> Tensor:
        """Feed these nodes, none of them cached, with what is missing above them. Return the logits after each:
        [N,V]."""
        fed = self._missing(wanted)
        parents = [-1 if node.parent is None else self._nodes.get(node.parent, -1) for node in fed]
        attention = self._forest.add(parents, self.model.device)
        logits = self.model.forward(
            self._tensor([node.token for node in fed]),
            self.cache,
            logits_to_keep=len(fed),
            tree_attention=None if self._forest.is_chain else attention,
        )[0]
        if len(fed) == len(wanted):
            return logits
        start = len(self._nodes) - len(fed)
        rows = torch.tensor([self._nodes[node] - start for node in wanted])
        return logits[to_device(rows, logits.device)]

    def _missing(self, wanted: Sequence[BeamNode]) -> list[BeamNode]:
        """Return the nodes to feed, parents first and the wanted ones last, and take them into the forest."""
        missing: dict[BeamNode, None] = {}
        for node in wanted:
            for above in node.up():
                if above in self._nodes or above.depth < self._trunk:
                    break
                missing[above] = None
        fed = sorted(missing, key=lambda node: node.depth)
        if [*wanted] != fed:
            fed = [node for node in fed if node not in {*wanted}] + [*wanted]
        for node in fed:
            self._nodes[node] = len(self._nodes)
        return fed

    def keep(self, leaves: Iterable[BeamNode], shared: BeamNode | None) -> None:
        """Keep only what is above the leaves. ``shared``: the deepest node above all of them, down to which the nodes
        become the prefix."""
        above = {node for leaf in leaves for node in list(leaf.up())[1:]}
        kept = {node: index for node, index in self._nodes.items() if node in above}
        indices, prefix = list(kept.values()), self._forest.prefix
        if indices != list(range(len(indices))):
            self.cache.compact(prefix, to_device(torch.tensor(indices), self.model.device))
        self.cache.rollback(prefix + len(indices))
        trunk = 0 if shared is None else sum(node.depth <= shared.depth for node in kept)
        self._forest.keep(indices, trunk)
        self._nodes = {node: index for index, node in enumerate(list(kept)[trunk:])}
        self._trunk += trunk

    def _tensor(self, tokens: Sequence[int]) -> Tensor:
        return to_device(torch.tensor([list(tokens)]), self.model.device)
