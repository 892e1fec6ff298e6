"""Verification of drafts: as a chain, as a tree, or as several drafts per position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.config import VERIFIERS, AcceptanceConfig, SamplingConfig, Verifier
from fsd_core.errors import IncompatibleOptions
from fsd_core.ops.distributions import ScoredDraft, UniformStream, allowed, draw, js, one_hot, warp
from fsd_core.ops.kernels import AcceptedPath, Graphed, TreeAttention, to_device, tree_layout
from fsd_core.rules import Drafts, NaiveSampling, Rule, Speculative, residual
from fsd_core.rules.base import CHAIN, SEVERAL, TREE
from fsd_core.topologies import DraftTree, TreeStructure


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A round's result on the device. R = maximum number of drafted tokens that a text can accept, plus one."""

    drafted: Tensor
    """int64 [B,R−1]; for several drafts per position those judged last"""
    count: Tensor
    """accepted drafted tokens, the closing one included; int64 [B]"""
    emitted: Tensor
    """int64 [B,R]: the accepted ones, then the recovered or bonus token, then leftovers"""
    emitted_probability: Tensor
    """[B,R] under the raw target"""
    details: Tensor
    """strict (0/1), divergence, p(x), q(x) of each judged position, [B,4,J]; J = 0 if nothing was drafted"""
    reach: Tensor | None = None
    """number of drafted tokens along the path taken, int64 [B]; ``None`` if all paths have the same length"""
    path: AcceptedPath | None = None
    """the path taken through a branching tree"""


@dataclass(frozen=True, slots=True)
class DraftProposal:
    """A tree, and how much of it each text uses.

    A text with few remaining tokens drafts fewer than the batch. The tokens after its own are padding.
    """

    tree: DraftTree
    fed: int
    """maximum number of drafted tokens that a text can accept; of a branching tree the target is fed all nodes"""
    drafted: list[int]
    """for each text, how many of its tokens are fed"""
    judged: list[int]
    """for each text, how many of its positions are judged"""
    strict: list[int]
    """for each text, how many of its next tokens the strict test judges, whatever the rule"""


def padded(rows: Sequence[Tensor]) -> Tensor:
    """Return rows of different lengths [n], padded with zeros to the longest: [B,N]"""
    width = max(len(row) for row in rows)
    return torch.stack([row if len(row) == width else F.pad(row, (0, width - len(row))) for row in rows])


class Feed(NamedTuple):
    """Input of the target: tokens, int64 [B,S]. Logits are returned for the last ``logits_to_keep``."""

    tokens: Tensor
    logits_to_keep: int
    tree_attention: TreeAttention | None = None


class Verification(Protocol):
    """Decides which drafted tokens are accepted, and what is written after them. Holds no state of a text."""

    judges_bonus: bool
    """whether the token after a fully accepted draft is drafted and judged like the others"""
    greedy_draft: bool
    """whether the draft proposes its likeliest token whatever the sampling settings"""

    def feed(self, uncached: Tensor, proposal: DraftProposal, cached: int) -> Feed:
        """Return the target's input. ``uncached``: int64 [B,S], the tokens of the texts that it has not been fed.
        ``cached``: how many it has been fed, of the longest text."""
        ...

    def verify(self, proposal: DraftProposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        """Return the round's result. ``logits``: of the target, [B,logits_to_keep,V], as :meth:`feed` requested.
        ``uniforms``: one stream for each text, which takes as many as its own positions need."""
        ...


def probability_of(probabilities: Tensor, tokens: Tensor) -> Tensor:
    """Return the probability of each token. [B,R,V], int64 [B,R] → [B,R]"""
    return probabilities.gather(-1, tokens[..., None]).squeeze(-1)


class ChainVerification:
    """Verifies one draft per position by an acceptance rule (Leviathan et al. 2023, algorithm 1, for any rule).

    A text takes 2·J + 1 uniforms for J judged positions: J for the acceptance tests, J for the ``random`` divergence,
    and one for the recovered or bonus token. The strict test judges as many positions as the proposal says.
    """

    def __init__(self, rule: Rule, sampling: SamplingConfig) -> None:
        self.judges_bonus, self.greedy_draft = rule.bonus_is_judged, rule.greedy_draft
        self._verified = Graphed("verification of a chain", partial(_verify_chain, rule, sampling))

    def feed(self, uncached: Tensor, proposal: DraftProposal, cached: int) -> Feed:
        return Feed(torch.cat([uncached, proposal.tree.tokens[:, : proposal.fed]], 1), proposal.fed + 1)

    def verify(self, proposal: DraftProposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        tree, judged, device = proposal.tree, proposal.tree.size, logits.device
        taken = [stream.take(2 * count + 1) for stream, count in zip(uniforms, proposal.judged, strict=True)]
        tests = padded([u[:count] for u, count in zip(taken, proposal.judged, strict=True)])
        noise = padded([u[count : 2 * count] for u, count in zip(taken, proposal.judged, strict=True)])
        judged_lengths = lengths = None
        if min(proposal.judged) < judged:  # some texts drafted fewer tokens
            judged_lengths, lengths = (
                to_device(torch.tensor(each), device) for each in (proposal.judged, proposal.drafted)
            )
        strictly = _judged_strictly(proposal, judged, device)
        last = torch.stack([values[-1] for values in taken])
        count, emitted, probability, details = self._verified(
            tree.tokens, tree.warped, tree.raw, logits, tests, noise, last, judged_lengths, lengths, strictly
        )
        return RoundResult(tree.tokens[:, : proposal.fed], count, emitted, probability, details)


def _verify_chain(
    rule: Rule,
    sampling: SamplingConfig,
    tokens: Tensor,
    warped: Tensor,
    drafted_raw: Tensor,
    logits: Tensor,
    tests: Tensor,
    noise: Tensor,
    last: Tensor,
    judged_lengths: Tensor | None,
    lengths: Tensor | None,
    strictly: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return the count, the emitted tokens, their probabilities and the details of a ``RoundResult``.

    tokens: int64 [B,J], drafted from warped [B,J,V]; drafted_raw: the same at temperature 1. logits: [B,F+1,V] of
    the target. tests, noise: [B,J]; last: [B]. judged_lengths, lengths: int64 [B], how many tokens of each text are
    judged and fed; ``None`` if all are. strictly: bool [B,J], where the strict test judges; ``None`` if nowhere.
    """
    judged, fed = tokens.shape[1], logits.shape[1] - 1
    target, raw = warp(logits, sampling), logits.softmax(-1)
    scored = ScoredDraft(
        tokens, target[:, :judged], warped, raw[:, :judged], drafted_raw,
        allowed(logits[:, :judged], sampling), logits[:, :judged], sampling.greedy, judged_lengths,
    )  # fmt: skip
    verdict = rule.judge(scored, tests, noise)
    accepted = verdict.accepted
    if strictly is not None:
        accepted = torch.where(strictly, verdict.strict, accepted)
    if judged_lengths is not None:
        accepted = accepted & (torch.arange(judged, device=accepted.device) < judged_lengths[:, None])
    count = accepted.long().cumprod(-1).sum(-1)  # [B]
    index = count.clamp_max(judged - 1)
    closing = scored.at(index)
    weights = rule.correction(closing, verdict.at(index))[:, 0]
    if strictly is not None:
        strict = residual(closing.target, closing.draft)[:, 0]
        weights = torch.where(strictly.gather(1, index[:, None]), strict, weights.to(strict.dtype))
    if lengths is not None and judged_lengths is not None:
        bonus = target[torch.arange(len(lengths), device=lengths.device), lengths]
        weights = torch.where(
            ((count == lengths) & (judged_lengths == lengths))[:, None], bonus.to(weights.dtype), weights
        )
    elif judged == fed:  # the bonus comes from the target
        weights = torch.where((count == fed)[:, None], target[:, fed].to(weights.dtype), weights)
    recovered = draw(weights, last)
    drafted = F.pad(tokens, (0, fed + 1 - judged))
    emitted = torch.where(torch.arange(fed + 1, device=count.device) < count[:, None], drafted, recovered[:, None])
    details = torch.stack(
        [
            verdict.strict.double(),
            verdict.divergence.double(),
            scored.of_token(scored.target_raw).double(),
            scored.of_token(scored.draft_raw).double(),
        ],
        1,
    )
    return count, emitted, probability_of(raw, emitted), details


def _judged_strictly(proposal: DraftProposal, judged: int, device: torch.device) -> Tensor | None:
    """Return which positions are judged by the strict test, whatever the rule, bool [B,J]; ``None`` if none is."""
    if not any(proposal.strict):
        return None
    return torch.arange(judged, device=device) < to_device(torch.tensor(proposal.strict), device)[:, None]


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


def write_one(logits: Tensor, sampling: SamplingConfig, uniforms: Sequence[UniformStream]) -> RoundResult:
    """Write one token of each text, drawn from the model's warped next-token distribution. logits: [B,1,V]"""
    weights, raw = warp(logits, sampling), logits.softmax(-1)
    emitted = draw(weights[:, 0], torch.stack([stream.take(1)[0] for stream in uniforms]))[:, None]
    details = raw.new_zeros(len(emitted), 4, 0)
    return RoundResult(emitted[:, :0], emitted.new_zeros(len(emitted)), emitted, probability_of(raw, emitted), details)


class TreeVerification:
    """Verifies a branching tree on a text alone in its batch: ``node`` decides the token after each node."""

    judges_bonus = False

    def __init__(self, node: NodeVerifier, sampling: SamplingConfig) -> None:
        self._node, self.greedy_draft = node, node.greedy_draft
        self._verified = Graphed("verification of a tree", partial(_verify_tree, node, sampling))

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


def _verify_tree(
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


__all__ = ["Feed", "RoundResult", "Verification", "make_verification", "write_one"]


def _tree(acceptance: AcceptanceConfig, sampling: SamplingConfig) -> Verification:
    return TreeVerification(SingleDraftNode(acceptance, sampling), sampling)


def _several_drafts(acceptance: AcceptanceConfig, sampling: SamplingConfig) -> Verification:
    if not isinstance(acceptance, Verifier):
        raise IncompatibleOptions(
            f"'{acceptance.kind}' is no verifier of several drafts: choose one of {', '.join(VERIFIERS)}."
        )
    return TreeVerification(MultiDraftNode(acceptance, sampling), sampling)


_VERIFICATIONS: dict[str, Callable[[AcceptanceConfig, SamplingConfig], Verification]] = {
    CHAIN: ChainVerification,
    TREE: _tree,
    SEVERAL: _several_drafts,
}


def make_verification(judged_as: str, acceptance: AcceptanceConfig, sampling: SamplingConfig) -> Verification:
    """Return the verification of a topology's drafts, by a rule or a multi-draft verifier. ``judged_as``: from the
    topology's settings.

    Raises ``InvalidSetting`` for several drafts per position with a rule that cannot verify them.
    """
    return _VERIFICATIONS[judged_as](acceptance, sampling)
