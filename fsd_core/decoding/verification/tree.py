"""Verification of a tree: from the root down, one node per level, as long as the written token was drafted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fsd_core.config import SamplingConfig
from fsd_core.decoding.proposal import DraftProposal
from fsd_core.decoding.verification.base import Feed
from fsd_core.decoding.verification.nodes import NodeVerifier, TreeNode
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.ops.graphed import Graphed
from fsd_core.ops.sampling import UniformStream, draw
from fsd_core.ops.tree_attention import AcceptedPath, TreeAttention, tree_layout
from fsd_core.ops.warping import warp
from fsd_core.topologies import DraftTree, TreeStructure


class TreeVerification:
    """Verifies a branching tree on a text alone in its batch: ``node`` decides the token after each node."""

    judges_bonus = False

    def __init__(self, node: NodeVerifier, sampling: SamplingConfig) -> None:
        self._node, self.greedy_draft = node, node.greedy_draft
        self._verified = Graphed("verification of a tree", partial(_verify, node, sampling))

    def feed(self, uncached: Tensor, proposal: DraftProposal, cached: int) -> Feed:
        tree, structure = proposal.tree, _structure(proposal.tree)
        depths, attends_to = tree_layout(
            uncached.shape[1], structure.parents.clamp_min(-1), structure.levels, tree.depth
        )
        return Feed(torch.cat([uncached, tree.tokens], 1), tree.size + 1, TreeAttention(cached, depths, attends_to))

    def verify(self, proposal: DraftProposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        """Verify with uniforms for each level and for the token after the last, as many as a node takes."""
        tree, structure = proposal.tree, _structure(proposal.tree)
        (stream,) = uniforms
        taken = stream.take(tree.depth + 1, self._node.num_uniforms(structure))
        drafted, count, emitted, probability, details, reach, nodes, fed = self._verified(
            tree.tokens, tree.warped, tree.raw, structure.parents, structure.levels, structure.drawn_from,
            structure.fed, structure.chains, logits, taken, tree.depth, min(proposal.strict[0], tree.depth),
        )  # fmt: skip
        return RoundResult(drafted, count, emitted, probability, details, reach, AcceptedPath(nodes, fed))


def _verify(
    node: NodeVerifier,
    sampling: SamplingConfig,
    tokens: Tensor,
    warped: Tensor,
    raw: Tensor,
    parents: Tensor,
    levels: Tensor,
    drawn_from: Tensor,
    fed: Tensor,
    chains: Tensor | None,
    logits: Tensor,
    taken: Tensor,
    depth: int,
    strict: int,
) -> tuple[Tensor | None, ...]:
    """Return the fields of :func:`verify_tree`'s result, for those of a ``DraftTree`` and its structure."""
    structure = TreeStructure(parents, levels, drawn_from, fed, chains)
    tree = DraftTree(tokens, depth, warped, raw, structure)
    found = verify_tree(tree, structure, logits, node, sampling, taken, strict)
    assert found.path is not None
    return (
        found.drafted, found.count, found.emitted, found.emitted_probability, found.details, found.reach,
        found.path.nodes, found.path.fed,
    )  # fmt: skip


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
    strict: int = 0,
) -> RoundResult:
    """Verify a tree on one text. logits: of the target after the text and after each node, [1,N+1,V]. uniforms: float64
    [depth + 1,``verifier.num_uniforms``]. ``strict``: how many levels the strict test judges.

    At each node that is reached the verifier writes a token. If it is none of the node's children, the accepted path
    ends there. To report what was drafted, the walk continues along the best children to a leaf.
    """
    device, depth = logits.device, tree.depth
    current = torch.full((1,), -1, dtype=torch.int64, device=device)  # −1 is the text itself
    accepting, zero = torch.ones(1, dtype=torch.bool, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    count, reach = zero, zero
    nodes, drafted, emitted, probabilities, details = [], [], [], [], []
    for level in range(depth):
        children = structure.parents == current
        has_children = children.any()[None]
        first = children.long().argmax(0, keepdim=True)
        target, raw = _target_at(logits, current, sampling)
        tree_node = TreeNode(level, level < strict, children, first, logits[0, current + 1], target, raw)
        result = verifier(tree, structure, tree_node, uniforms[level])
        matching = children & (tree.tokens[0] == result.written)
        is_drafted = matching.any()[None]
        node = torch.where(is_drafted, matching.long().argmax(0, keepdim=True), first)
        x = tree.tokens[0, node]
        accepting = accepting & is_drafted
        count, reach = count + accepting, reach + has_children
        nodes.append(node)
        drafted.append(x)
        emitted.append(result.written)
        probabilities.append(raw[0, result.written])
        draft_probability = tree.raw[0, structure.drawn_from[node], x]
        figures = is_drafted & result.strict, result.divergence, raw[0, x], draft_probability
        details.append(torch.stack([figure.double() for figure in figures]))
        current = torch.where(has_children, node, current)
    target, raw = _target_at(logits, current, sampling)
    emitted.append(draw(target, uniforms[depth, -1:]))
    probabilities.append(raw[0, emitted[-1]])
    path = torch.cat(nodes)
    return RoundResult(
        torch.cat(drafted)[None], count, torch.cat(emitted)[None], torch.cat(probabilities)[None],
        torch.cat(details, 1)[None], reach, AcceptedPath(path, structure.fed[path]),
    )  # fmt: skip


def _target_at(logits: Tensor, node: Tensor, sampling: SamplingConfig) -> tuple[Tensor, Tensor]:
    """Return the target's distributions at one node, warped and raw: [1,V] each."""
    row = logits[0, node + 1]
    return warp(row, sampling), row.softmax(-1)
