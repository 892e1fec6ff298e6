"""Verification of a tree: from the root down, one node of each level, as long as what is written was drafted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fsd_core.config import SamplingConfig
from fsd_core.decoding.proposal import DraftProposal
from fsd_core.decoding.verification.base import Feed
from fsd_core.decoding.verification.nodes import NodeVerifier, TreeNode
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.ops.sampling import UniformStream, draw
from fsd_core.ops.tree_attention import AcceptedPath, TreeAttention, tree_layout
from fsd_core.ops.warping import warp
from fsd_core.topologies import DraftTree, TreeStructure


class TreeVerification:
    """Of a tree that branches, on a text that stands alone, by what ``node`` writes behind each node on the way."""

    judges_bonus = False

    def __init__(self, node: NodeVerifier, sampling: SamplingConfig) -> None:
        self._node, self._sampling = node, sampling
        self.greedy_draft = node.greedy_draft

    def feed(self, uncached: Tensor, proposal: DraftProposal, cached: int) -> Feed:
        tree, structure = proposal.tree, _structure(proposal.tree)
        depths, attends_to = tree_layout(
            uncached.shape[1], structure.parents.clamp_min(-1), structure.levels, tree.depth
        )
        return Feed(torch.cat([uncached, tree.tokens], 1), tree.size + 1, TreeAttention(cached, depths, attends_to))

    def verify(self, proposal: DraftProposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        """Takes uniforms for each level and for the token behind the last, as many as a node takes."""
        tree, structure = proposal.tree, _structure(proposal.tree)
        (own,) = uniforms
        taken = own.take(tree.depth + 1, self._node.num_uniforms(structure))
        return verify_tree(tree, structure, logits, self._node, self._sampling, taken, proposal.written[0])


def _structure(tree: DraftTree) -> TreeStructure:
    assert tree.structure is not None, "a chain is verified as a chain"
    return tree.structure


def verify_tree(
    tree: DraftTree,
    structure: TreeStructure,
    logits: Tensor,
    verifier: NodeVerifier,
    sampling: SamplingConfig,
    uniforms: Tensor,
    written: int = 0,
) -> RoundResult:
    """One text. logits: of the target behind the text and behind each node, [1,N+1,V]. uniforms: float64
    [depth + 1,``verifier.num_uniforms``]. ``written``: tokens of the answer that were there before.

    At each node that is reached the verifier writes a token; where it is none of the node's children the way of what is
    kept ends there. To tell what was drafted, the walk goes on along the best children to a leaf.
    """
    device, depth = logits.device, tree.depth
    at = torch.full((1,), -1, dtype=torch.int64, device=device)  # −1 is the text itself
    going, none = torch.ones(1, dtype=torch.bool, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    count, reach = none, none
    nodes, drafted, emitted, chances, details = [], [], [], [], []
    for level in range(depth):
        children = structure.parents == at
        there = children.any()[None]
        first = children.long().argmax(0, keepdim=True)
        target, raw = _at(logits, at, sampling)
        tree_node = TreeNode(level, written + level, children, first, logits[0, at + 1], target, raw)
        result = verifier(tree, structure, tree_node, uniforms[level])
        same = children & (tree.tokens[0] == result.written)
        hit = same.any()[None]
        node = torch.where(hit, same.long().argmax(0, keepdim=True), first)
        x = tree.tokens[0, node]
        going = going & hit
        count, reach = count + going, reach + there
        nodes.append(node)
        drafted.append(x)
        emitted.append(result.written)
        chances.append(raw[0, result.written])
        of_draft = tree.raw[0, structure.drawn_from[node], x]
        figures = hit & result.strict, result.divergence, raw[0, x], of_draft
        details.append(torch.stack([figure.double() for figure in figures]))
        at = torch.where(there, node, at)
    target, raw = _at(logits, at, sampling)
    emitted.append(draw(target, uniforms[depth, -1:]))
    chances.append(raw[0, emitted[-1]])
    taken = torch.cat(nodes)
    return RoundResult(
        torch.cat(drafted)[None], count, torch.cat(emitted)[None], torch.cat(chances)[None],
        torch.cat(details, 1)[None], reach, AcceptedPath(taken, structure.fed[taken]),
    )  # fmt: skip


def _at(logits: Tensor, at: Tensor, sampling: SamplingConfig) -> tuple[Tensor, Tensor]:
    """The target's distributions at one node, warped and raw: [1,V] each."""
    row = logits[0, at + 1]
    return warp(row, sampling), row.softmax(-1)
