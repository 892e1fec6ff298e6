"""The code of the topologies, named by their settings (:mod:`fsd_core.config.drafting`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import log, sqrt
from typing import ClassVar, NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.config import (
    ChainTopology,
    DecodingConfig,
    DynamicTreeTopology,
    MultiDraftTopology,
    SearchTreeTopology,
    Verifier,
)
from fsd_core.config.drafting import LAST_TOKEN, MCTS, WHOLE_CHAIN
from fsd_core.ops.distributions import DraftDistribution, draw, draw_several, greedy_distribution, likeliest
from fsd_core.ops.kernels import to_device, to_host


class Source(Protocol):
    """A drafter, as a topology uses it."""

    def extend(self, token: Tensor) -> DraftDistribution | None:
        """Feed the chosen token, int64 [B]. Return the distribution after it, or ``None`` at the end."""
        ...

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        """Feed n more nodes of a tree on one text, int64 [1,n]. Return the n distributions after them. ``parents``:
        int64 [n], their parents' indices in feeding order, −1 for the text."""
        ...


class Lookup(Protocol):
    """A drafter that knows what may follow a path without being fed it."""

    def successors(self, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return the tokens that may follow the text and the tokens of ``path``, with their probabilities, the
        likeliest first."""
        ...


@dataclass(frozen=True, slots=True)
class TreeStructure:
    """How a tree of N nodes branches. Parents come before their children, and children are in the order of their rank.

    parents: int64 [N], −1 for the text itself, −2 for a missing node. levels: int64 [N], from 1. drawn_from: int64 [N],
    the index of the tree's distribution that each node was drawn from. fed: int64 [N], each node's index among those
    fed to the drafter; meaningless for a node that was not fed, which has no children. chains: int64 [depth,n], for n
    drafts per position, the node that each draft passes at each level. A node that k drafts pass was drafted k times.
    """

    parents: Tensor
    levels: Tensor
    drawn_from: Tensor
    fed: Tensor
    chains: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Drafted tokens as a tree whose root is the last accepted token; N nodes without the root.

    tokens: int64 [B,N]. depth: number of levels. warped, raw: [B,R,V], the distributions that nodes were drawn from;
    for several drafts drawn together, that of the last. structure: ``None`` for a chain, where R = N; else B = 1.
    lengths: for a chain that ends by itself, how many of its N tokens each text has; ``None`` if all have N.
    """

    tokens: Tensor
    depth: int
    warped: Tensor
    raw: Tensor
    structure: TreeStructure | None = None
    lengths: Sequence[int] | None = None

    @property
    def size(self) -> int:
        return self.tokens.shape[1]

    def cut(self, count: int) -> DraftTree:
        """Return a chain's first ``count`` tokens, those of it that any text uses."""
        if count == self.size:
            return self
        tokens, warped, raw = (part[:, :count] for part in (self.tokens, self.warped, self.raw))
        return DraftTree(tokens, count, warped, raw, lengths=self.lengths)


class DraftTopology(Protocol):
    """Grows a tree from a drafter's distributions."""

    side_by_side: ClassVar[bool]
    """whether it drafts for several texts at once"""
    length: int
    """nodes on the longest path"""
    num_uniforms: int
    """uniforms that a level takes"""
    drafts_bonus: bool
    """whether it can also draft the token after the longest path, for a rule that judges it"""

    @classmethod
    def for_method(cls, config: DecodingConfig) -> DraftTopology:
        """Return the topology of a method whose configuration names it."""
        ...

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        """Return a tree of at most ``depth`` levels, or ``None`` if nothing can be proposed.

        ``first``: the distribution after the root. ``uniforms``: float64 [B,depth · ``self.num_uniforms``].
        ``greedy``: take the likeliest token instead of sampling.
        """
        ...


__all__ = ["DraftTopology", "DraftTree", "TreeStructure"]


class Chain:
    """A tree with one child per node.

    With ``length_by`` ``token`` a text stops drafting after the first token xᵢ with q(xᵢ) < ``least_probability``. With
    ``chain`` it stops after the first with q(x₁) ··· q(xᵢ) < ``least_probability``. q is raw, so it tells as much at
    temperature 0. xᵢ stays in the draft: whether xᵢ₊₁ is drafted depends on x₁ … xᵢ alone, the verification of these
    is the same either way, and the token after xᵢ comes from the target. So a lossless rule stays lossless. (Were
    xᵢ left out too, position i would be verified only for some of its tokens, and the law would be another.)

    Each drafted token's probability is then read by the host. On a CPU that costs nothing. On a GPU the host waits for
    the draft at each position, where a chain of fixed length waits once a round.
    """

    side_by_side: ClassVar[bool] = True
    num_uniforms, drafts_bonus = 1, True

    @classmethod
    def for_method(cls, config: DecodingConfig) -> Chain:
        assert isinstance(config.topology, ChainTopology)
        by, least = config.topology.length_by, config.topology.least_probability
        return cls(config.topology.length, by == WHOLE_CHAIN, least if by in (LAST_TOKEN, WHOLE_CHAIN) else None)

    def __init__(self, length: int, whole_chain: bool = False, least_probability: float | None = None) -> None:
        self.length, self._whole_chain, self._least = length, whole_chain, least_probability

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        distributions, tokens, distribution = [], [], first
        endings = None if self._least is None else _Endings(self._whole_chain, self._least)
        while distribution is not None:
            token = distribution.warped.argmax(-1) if greedy else draw(distribution.warped, uniforms[:, len(tokens)])
            distributions.append(distribution)
            tokens.append(token)
            if len(tokens) == depth or (endings is not None and endings.all_end_with(token, distribution.raw)):
                break
            distribution = source.extend(token)
        if not tokens:
            return None
        return DraftTree(
            tokens=torch.stack(tokens, 1),
            depth=len(tokens),
            warped=torch.stack([distribution.warped for distribution in distributions], 1),
            raw=torch.stack([distribution.raw for distribution in distributions], 1),
            lengths=None if endings is None else [length or len(tokens) for length in endings.lengths],
        )


class _Endings:
    """Where the drafts of B texts end. ``lengths``: their tokens, 0 for one that has not ended."""

    def __init__(self, whole_chain: bool, least: float) -> None:
        self._whole_chain, self._least = whole_chain, least
        self._probability: Tensor | None = None  # of the chains so far, [B]
        self._drafted = 0
        self.lengths: list[int] = []

    def all_end_with(self, token: Tensor, raw: Tensor) -> bool:
        """Return whether each text's draft ends with its ``token``, or has ended. int64 [B], raw: [B,V]"""
        probability = raw.gather(-1, token[:, None])[:, 0]
        if self._whole_chain and self._probability is not None:
            probability = probability * self._probability
        self._probability, self._drafted = probability, self._drafted + 1
        lengths = self.lengths or [0] * len(token)
        ends = [value < self._least for value in to_host(probability)]
        self.lengths = [length or (self._drafted if end else 0) for length, end in zip(lengths, ends, strict=True)]
        return all(self.lengths)


class _Candidates(NamedTuple):
    """Nodes that may become part of the tree, [C] each; C grows level by level."""

    tokens: Tensor
    scores: Tensor
    """log-probability of the path to the node, under the draft"""
    parents: Tensor
    """indices among the candidates, −1 for the text"""
    levels: Tensor
    drawn_from: Tensor

    def and_(self, more: _Candidates) -> _Candidates:
        return _Candidates(*(torch.cat(pair) for pair in zip(self, more, strict=True)))


class DynamicTree:
    """EAGLE-2's tree (Li et al. 2024, arXiv 2406.16858, §4.1), for a text that is alone in its batch.

    Expand: take the ``top_k`` likeliest tokens. Then ``length`` − 1 times (their ``depth``) take the ``top_k``
    likeliest after each node of the frontier; the ``top_k`` best by score become the next frontier. Rerank: keep the
    best by score, as many as make ``total_tokens`` with the root. A node's score is the draft's probability of the
    whole path to it, so no child is better than its parent, and if they are equal the parent comes first. Ranks are by
    the raw distribution and nothing is sampled, so the proposed tokens do not depend on chance.
    """

    side_by_side: ClassVar[bool] = False
    num_uniforms, drafts_bonus = 0, False

    @classmethod
    def for_method(cls, config: DecodingConfig) -> DynamicTree:
        assert isinstance(config.topology, DynamicTreeTopology)
        return cls(config.topology.length, config.topology.top_k, config.topology.total_tokens)

    def __init__(self, length: int, top_k: int, total_tokens: int) -> None:
        self.length, self._top_k, self._nodes = length, top_k, total_tokens - 1

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        if first is None:
            return None
        candidates = _level(first.raw, min(self._top_k, first.raw.shape[-1]))
        warped, raw, width = [first.warped], [first.raw], len(candidates.tokens)
        frontier = torch.arange(width, device=candidates.tokens.device)  # among the candidates
        parents = torch.full_like(frontier, -1)  # feeding indices of the frontier's parents
        fed = torch.full_like(frontier, -1)  # feeding index of each candidate
        for level in range(1, depth):
            start = (level - 1) * width
            fed[frontier] = torch.arange(start, start + width, device=fed.device)
            distribution = source.extend_level(candidates.tokens[frontier][None], parents)
            warped.append(distribution.warped)
            raw.append(distribution.raw)
            more = _level(distribution.raw, width, frontier, candidates.scores[frontier], level, start + 1)
            best = more.scores.topk(width).indices
            frontier, parents = len(candidates.tokens) + best, start + best // width
            candidates, fed = candidates.and_(more), F.pad(fed, (0, len(more.tokens)), value=-1)
        return self._rerank(candidates, fed, torch.cat(warped)[None], torch.cat(raw)[None], depth)

    def _rerank(self, candidates: _Candidates, fed: Tensor, warped: Tensor, raw: Tensor, depth: int) -> DraftTree:
        """Return the tree of the best candidates, in their order: level by level, children of one parent by rank."""
        best = candidates.scores.sort(descending=True, stable=True).indices[: self._nodes].sort().values
        order = torch.arange(len(best), device=best.device)
        new_indices = torch.full_like(candidates.parents, -1).scatter(0, best, order)
        parents = candidates.parents[best]
        parents = torch.where(parents < 0, -1, new_indices[parents])
        structure = TreeStructure(parents, candidates.levels[best], candidates.drawn_from[best], fed[best])
        return DraftTree(candidates.tokens[best][None], depth, warped, raw, structure)


def _level(
    raw: Tensor,
    width: int,
    frontier: Tensor | None = None,
    scores: Tensor | None = None,
    level: int = 0,
    first_row: int = 0,
) -> _Candidates:
    """Return the ``width`` likeliest tokens after each of F nodes, or after the text. raw: [F,V]; frontier,
    scores: [F]"""
    values, tokens = raw.log().topk(width, -1)
    rows = torch.arange(len(raw), device=raw.device)
    parents = torch.full_like(rows, -1) if frontier is None else frontier
    values = values if scores is None else values + scores[:, None]

    def of_each(x: Tensor) -> Tensor:
        return x[:, None].expand(-1, width).flatten()

    levels = torch.full_like(of_each(rows), level + 1)
    return _Candidates(tokens.flatten(), values.flatten(), of_each(parents), levels, of_each(rows + first_row))


class MultiDraft:
    """``width`` chains for a text that is alone in its batch. Their first tokens are drawn together, as ``sampling``
    says. Then each chain continues independently.

    Hu et al. 2025 (arXiv 2502.18779). Chains with a common prefix share one path of the tree. After it come as many
    drafts of the next position, each counted as often as it was drawn. On the CPU the shared part is fed to the target
    once. On other devices the host would have to wait to learn its length, so every chain is fed whole.
    """

    side_by_side: ClassVar[bool] = False
    drafts_bonus = False

    @classmethod
    def for_method(cls, config: DecodingConfig) -> MultiDraft:
        """Return the topology. The method's verifier chooses how drafts are sampled."""
        assert isinstance(config.topology, MultiDraftTopology)
        assert isinstance(config.acceptance, Verifier)
        return cls(config.topology.length, config.topology.drafts, config.acceptance.sampling)

    def __init__(self, length: int, drafts: int, sampling: str) -> None:
        self.length, self.num_uniforms, self._sampling = length, drafts, sampling

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        if first is None:
            return None
        width = self.num_uniforms
        levels = uniforms.view(1, depth, width)
        tokens = self._first(first, levels[:, 0], greedy)  # [1,n]
        distribution = greedy_distribution(first.warped, width) if self._sampling == "greedy" else first.warped
        chains = torch.arange(width, device=tokens.device)
        exists, fed_parents = tokens[0] >= 0, torch.full_like(chains, -1)
        sampled, parents = [tokens.clamp_min(0)], [torch.where(exists, -1, -2)]
        warped, raw = [distribution.expand(width, -1)], [first.raw.expand(width, -1)]
        for level in range(1, depth):
            draft = source.extend_level(sampled[-1], fed_parents)
            nodes = (level - 1) * width + _first_equal(parents[-1], sampled[-1])
            fed_parents = (level - 1) * width + chains
            sampled.append((draft.warped.argmax(-1) if greedy else draw(draft.warped, levels[0, level]))[None])
            parents.append(torch.where(exists, nodes, -2))
            warped.append(draft.warped)
            raw.append(draft.raw)
        same = [level * width + _first_equal(*pair) for level, pair in enumerate(zip(parents, sampled, strict=True))]
        nodes, structure = _merge(torch.cat(parents), torch.cat(same), width)
        return DraftTree(
            torch.cat(sampled, 1)[:, nodes], depth, torch.cat(warped)[None], torch.cat(raw)[None], structure
        )

    def _first(self, first: DraftDistribution, uniforms: Tensor, greedy: bool) -> Tensor:
        """Return the chains' first tokens, int64 [1,n], −1 if nothing remains to draw."""
        if not greedy:
            return draw_several(first.warped, uniforms, self._sampling)
        if self._sampling == "with_replacement":
            return first.raw.argmax(-1, keepdim=True).expand(-1, self.num_uniforms)
        return likeliest(first.raw, self.num_uniforms)


def _first_equal(parents: Tensor, tokens: Tensor) -> Tensor:
    """Return for each node of a level the first with the same parent and token. int64 [n], [1,n] → int64 [n]"""
    equal = (parents[:, None] == parents) & (tokens == tokens.T)
    return equal.long().argmax(1)


def _merge(parents: Tensor, same: Tensor, width: int) -> tuple[Tensor, TreeStructure]:
    """Return which drawn nodes make up the tree, and its structure. parents, same: int64 [depth·n], each node's parent,
    and the first node equal to it."""
    drawn = torch.arange(len(parents), device=parents.device)
    if parents.device.type != "cpu":
        return drawn, TreeStructure(parents, 1 + drawn // width, drawn, drawn, drawn.view(-1, width))
    nodes = (same == drawn).nonzero()[:, 0]
    new_indices = torch.full_like(drawn, -1).scatter(0, nodes, torch.arange(len(nodes)))
    tree_parents = parents[nodes]
    tree_parents = torch.where(tree_parents < 0, tree_parents, new_indices[tree_parents.clamp_min(0)])
    return nodes, TreeStructure(tree_parents, 1 + nodes // width, nodes, nodes, new_indices[same].view(-1, width))


Path = tuple[int, ...]
Successors = Callable[[Path], Sequence[tuple[int, float]]]
"""path → tokens that may follow it, with their probabilities, the likeliest first"""
_EXPLORATION, _SLOWNESS = 32, 8
"""c₁ and c₂ of the published program"""


def best_first(successors: Successors, length: int, nodes: int) -> dict[Path, float]:
    """Return the ``nodes`` paths with the largest products of probabilities, parents before children."""
    order, found = count(), dict[Path, float]()
    waiting: list[tuple[float, int, Path]] = [(-1.0, next(order), ())]
    while waiting and len(found) <= nodes:  # the text itself is one of them
        negative, _, path = heappop(waiting)
        found[path] = -negative
        if len(path) < length and len(found) <= nodes:
            for token, probability in successors(path):
                heappush(waiting, (negative * probability, next(order), (*path, token)))
    del found[()]
    return found


def monte_carlo(successors: Successors, length: int, nodes: int, iterations: int) -> dict[Path, int]:
    """Return the ``nodes`` most visited paths of a Monte Carlo tree search with their visits, parents before children.

    Each iteration walks down by the best score

        X/N + (c₁ + ln((M + c₂ + 1)/c₂)) · P · √M / (1 + N), ∞ where N = 0,

    with N visits of the child, X their values, M visits of its parent and P its probability. At an unexpanded node it
    steps to the first child and goes on greedily. The value is 1 + the sum of probabilities along the way. The
    published program draws the rest of the way by chance, and looks its probabilities up one token too early.
    """
    visits, values = dict[Path, int](), dict[Path, float]()
    children = dict[Path, Sequence[tuple[int, float]]]()

    def best(path: Path) -> tuple[int, float]:
        def score(child: tuple[int, float]) -> float:
            token, probability = child
            below, above, here = (*path, token), visits[path], visits.get((*path, token), 0)
            if not here:
                return float("inf")
            exploration = _EXPLORATION + log((above + _SLOWNESS + 1) / _SLOWNESS)
            return values[below] / here + exploration * probability * sqrt(above) / (1 + here)

        return max(children[path], key=score)

    for _ in range(iterations):
        path, way, value, is_new = Path(), [Path()], 1.0, False
        while len(path) < length and not is_new:
            if is_new := path not in children:
                children[path] = successors(path)
            if not children[path]:
                break
            token, probability = children[path][0] if is_new else best(path)
            path, value = (*path, token), value + probability
            way.append(path)
        while len(path) < length and (following := successors(path)):
            path, value = (*path, following[0][0]), value + following[0][1]
        for node in way:
            visits[node] = visits.get(node, 0) + 1
            values[node] = values.get(node, 0.0) + value
    del visits[()]
    most = sorted(visits, key=lambda path: (-visits[path], path))[:nodes]
    return {path: visits[path] for path in most}


class SearchTree:
    """Adaptix' tree (Liu et al. 2025, arXiv 2407.12021), for a text that is alone in its batch.

    The tree depends on the text and on what the drafter has looked up before, not on chance. So it is verified like
    any tree whose nodes were chosen, and a lossless rule is lossless at every temperature. (The published check draws a
    token for each path and keeps the longest match, which favours the drafted tokens.)
    """

    side_by_side: ClassVar[bool] = False
    num_uniforms, drafts_bonus = 0, False

    @classmethod
    def for_method(cls, config: DecodingConfig) -> SearchTree:
        assert isinstance(config.topology, SearchTreeTopology)
        return cls(config.topology)

    def __init__(self, settings: SearchTreeTopology) -> None:
        self.length, self._settings = settings.length, settings

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        if first is None:
            return None
        lookup, known = cast(Lookup, source), dict[Path, Sequence[tuple[int, float]]]()

        def successors(path: Path) -> Sequence[tuple[int, float]]:
            if path not in known:
                known[path] = lookup.successors(path)
            return known[path]

        nodes = self._settings.max_fed_tokens
        if self._settings.search == MCTS:
            found = [*monte_carlo(successors, depth, nodes, self._settings.iterations)]
        else:
            found = [*best_first(successors, depth, nodes)]
        ranks: dict[Path, int] = {
            (*path, token): rank for path, after in known.items() for rank, (token, _) in enumerate(after)
        }
        paths = sorted(found, key=lambda path: (len(path), path[:-1], ranks[path]))
        return _tree(paths, known, first.raw)


def _tree(paths: Sequence[Path], known: dict[Path, Sequence[tuple[int, float]]], like: Tensor) -> DraftTree | None:
    """Return the tree of ``paths``, which come level by level and siblings by rank. ``like``: a distribution, [1,V]."""
    if not paths:
        return None
    index = {path: i for i, path in enumerate(paths)}
    parents = [path[:-1] for path in paths]
    rows = {path: row for row, path in enumerate(dict.fromkeys(parents))}
    entries = [(row, *successor) for path, row in rows.items() for successor in known[path]]
    of_row, tokens, probabilities = zip(*entries, strict=True)
    numbers = [
        (path[-1], index.get(parent, -1), len(path), rows[parent]) for path, parent in zip(paths, parents, strict=True)
    ]
    drafted, above, levels, drawn_from = to_device(torch.tensor(numbers), like.device).unbind(1)
    distributions = like.new_zeros(1, len(rows), like.shape[-1])
    places = to_device(torch.tensor([of_row, tokens]), like.device)
    distributions[0, places[0], places[1]] = to_device(torch.tensor(probabilities, dtype=like.dtype), like.device)
    structure = TreeStructure(above, levels, drawn_from, torch.arange(len(paths), device=like.device))
    return DraftTree(drafted[None], len(paths[-1]), distributions, distributions, structure)
