"""The token written after a node of a tree, by a single-draft rule or a multi-draft verifier."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fsd_core.config import SamplingConfig, Verifier
from fsd_core.ops.divergences import js
from fsd_core.ops.sampling import draw
from fsd_core.ops.scored_draft import ScoredDraft
from fsd_core.ops.warping import allowed, one_hot
from fsd_core.rules import Drafts, NaiveSampling, Rule, Speculative
from fsd_core.topologies import DraftTree, TreeStructure


class TreeNode(NamedTuple):
    """A node of a tree, and the target's distributions after it.

    level: of its children, from 0. is_strict: whether the strict test judges there, whatever the rule. children: bool
    [N]. first: int64 [1], the best of them, or any node if there is none. logits: of the target, [1,V]; target, raw:
    [1,V] warped and raw.
    """

    level: int
    is_strict: bool
    children: Tensor
    first: Tensor
    logits: Tensor
    target: Tensor
    raw: Tensor


class NodeResult(NamedTuple):
    """The token written after a node, int64 [1]; whether lossless decoding would have written it too, and the
    divergence of the models there, [1] each."""

    written: Tensor
    strict: Tensor
    divergence: Tensor


class NodeVerifier(Protocol):
    """Decides which token is written after a node. Whether that token was drafted is checked afterwards."""

    greedy_draft: bool
    """whether the draft proposes its likeliest token whatever the sampling settings"""

    def num_uniforms(self, structure: TreeStructure) -> int:
        """Return how many uniforms a node of the tree takes."""
        ...

    def __call__(self, tree: DraftTree, structure: TreeStructure, node: TreeNode, uniforms: Tensor) -> NodeResult:
        """Return the token written after ``node``. ``uniforms``: float64 [``num_uniforms``]."""
        ...


class MultiDraftNode:
    """Decides by a verifier of several drafts per position, for a tree that has ``chains``."""

    greedy_draft = False

    def __init__(self, verifier: Verifier, sampling: SamplingConfig) -> None:
        """Use naive sampling for a greedy target, whose argmax every verifier would output."""
        self._verifier = NaiveSampling() if sampling.greedy else verifier

    def num_uniforms(self, structure: TreeStructure) -> int:
        assert structure.chains is not None
        return structure.chains.shape[1] + 1

    def __call__(self, tree: DraftTree, structure: TreeStructure, node: TreeNode, uniforms: Tensor) -> NodeResult:
        assert structure.chains is not None
        nodes, row = structure.chains[node.level], structure.drawn_from[node.first]
        drafts = Drafts(tree.tokens[:, nodes], node.children[None, nodes], node.target, tree.warped[0, row])
        written = written_token(self._verifier, drafts, uniforms[None])
        return NodeResult(written, torch.ones_like(written, dtype=torch.bool), js(node.raw, tree.raw[0, row]))


def written_token(verifier: Verifier, drafts: Drafts, uniforms: Tensor) -> Tensor:
    """Return the token written at each of R positions, int64 [R]. ``uniforms``: float64 [R,n+1] in [0,1), n drafts."""
    selected, remainder = verifier.couple(drafts, uniforms[:, :-1])
    return torch.where(selected < 0, draw(remainder, uniforms[:, -1]), selected)


class SingleDraftNode:
    """Decides by a single-draft rule, which judges the best child as a token drafted with certainty: q = 1 on it.

    If the rule writes another token, that may be another child. For speculative decoding this equals the walk along the
    siblings: accept x_i with p(x_i), else p(x_i) ← 0 and p ← norm(p) (Li et al. 2024). Either way the token is
    distributed as p, and is accepted if it was drafted. `fsd` and its variants write the best child if D(p, q) ≤ T,
    with q the draft's own distribution, which all siblings share. At a leaf every rule writes the target's token.
    """

    def __init__(self, rule: Rule, sampling: SamplingConfig) -> None:
        self._rule, self._sampling = rule, sampling
        self.greedy_draft = rule.greedy_draft

    def num_uniforms(self, structure: TreeStructure) -> int:
        """Return 3: for the acceptance test, the ``random`` divergence, and the token in place of a rejected one."""
        return 3

    def __call__(self, tree: DraftTree, structure: TreeStructure, node: TreeNode, uniforms: Tensor) -> NodeResult:
        x = tree.tokens[0, node.first][None]  # [1,1]
        permitted = allowed(node.logits, self._sampling)
        scored = ScoredDraft(
            x,
            node.target[None],
            one_hot(x, node.target.shape[-1], node.target.dtype),
            node.raw[None],
            tree.raw[:, structure.drawn_from[node.first]],
            None if permitted is None else permitted[None],
            node.logits[None],
            self._sampling.greedy,
            undrawn=tree.warped[:, structure.drawn_from[node.first]],
        )
        rule = Speculative() if node.is_strict else self._rule
        verdict = rule.judge(scored, uniforms[None, :1], uniforms[None, 1:2])
        accepted = (verdict.accepted & node.children.any())[0]
        weights = rule.correction(scored, verdict)[0]
        weights = torch.where(node.children.any(), weights, node.target.to(weights.dtype))
        written = torch.where(accepted, x[0], draw(weights, uniforms[2:]))
        return NodeResult(written, ~accepted | verdict.strict[0], verdict.divergence[0])
