"""Judging a tree: from the root down, one node of each level, as long as what is written was drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fsd_core.acceptance import AcceptanceRule
from fsd_core.acceptance.couplings import Choose, Drafts
from fsd_core.config import SamplingConfig
from fsd_core.decoding.outcome import Outcome
from fsd_core.ops.branches import Way
from fsd_core.ops.divergences import js
from fsd_core.ops.rows import Rows
from fsd_core.ops.sampling import draw
from fsd_core.ops.warping import allowed, one_hot, warp
from fsd_core.topologies import DraftTree, Shape


class Place(NamedTuple):
    """A node of a tree, and what the models say behind it.

    level: of its children, from 0. children: bool [N]. first: int64 [1], the best of them, or any node where there is
    none. logits: of the target, [1,V]; target, raw: [1,V] warped and raw.
    """

    level: int
    children: Tensor
    first: Tensor
    logits: Tensor
    target: Tensor
    raw: Tensor


class Verdict(NamedTuple):
    """What is written at a place, int64 [1]; whether lossless decoding would have written it too, and the divergence of
    the models there, [1] each."""

    written: Tensor
    strict: Tensor
    divergence: Tensor


class Judge(Protocol):
    """Decides what is written behind a node; whether that was drafted is seen afterwards."""

    uniforms: int
    """that it takes"""

    def __call__(self, tree: DraftTree, shape: Shape, place: Place, uniforms: Tensor) -> Verdict: ...


class Coupled:
    """By a verifier of several drafts per position."""

    def __init__(self, choose: Choose, drafts: int) -> None:
        self._choose, self.uniforms = choose, drafts + 1

    def __call__(self, tree: DraftTree, shape: Shape, place: Place, uniforms: Tensor) -> Verdict:
        assert shape.chains is not None
        nodes, row = shape.chains[place.level], shape.drawn_from[place.first]
        drafts = Drafts(tree.tokens[:, nodes], place.children[None, nodes], place.target, tree.warped[0, row])
        written = self._choose(drafts, uniforms[None])
        return Verdict(written, torch.ones_like(written, dtype=torch.bool), js(place.raw, tree.raw[0, row]))


class Gated:
    """By a rule of single drafts, which judges the best child as a token that was bound to be drafted: q = 1 on it.

    Where the rule writes another token, that may be another child. For speculative decoding this is the walk along the
    siblings: accept x_i with p(x_i), else p(x_i) ← 0 and p ← norm(p) (Li et al. 2024), since either way the token is
    distributed as p, and is kept where it was drafted. `fsd` and its kin write the best child where D(p, q) ≤ T, with q
    the draft's own distribution, which all siblings share. At a leaf every rule leaves the word to the target.
    """

    uniforms = 3

    def __init__(self, rule: AcceptanceRule, sampling: SamplingConfig) -> None:
        self._rule, self._sampling = rule, sampling

    def __call__(self, tree: DraftTree, shape: Shape, place: Place, uniforms: Tensor) -> Verdict:
        x = tree.tokens[0, place.first][None]  # [1,1]
        permitted = allowed(place.logits, self._sampling)
        rows = Rows(
            x,
            place.target[None],
            one_hot(x, place.target.shape[-1], place.target.dtype),
            place.raw[None],
            tree.raw[:, shape.drawn_from[place.first]],
            None if permitted is None else permitted[None],
        )
        verdict = self._rule.judge(rows, uniforms[None, :1], uniforms[None, 1:2])
        kept = (verdict.accepted & place.children.any())[0]
        weights = self._rule.correction(rows, verdict.divergence)[0]
        weights = torch.where(place.children.any(), weights, place.target)
        written = torch.where(kept, x[0], draw(weights, uniforms[2:]))
        return Verdict(written, ~kept | verdict.strict[0], verdict.divergence[0])


@dataclass(frozen=True, slots=True)
class Walk:
    """What a round came to, and the way that was taken through the tree."""

    outcome: Outcome
    way: Way


def walk(tree: DraftTree, shape: Shape, logits: Tensor, judge: Judge, sampling: SamplingConfig, u: Tensor) -> Walk:
    """One text. logits: of the target behind the text and behind each node, [1,N+1,V]. u: [D+1,``judge.uniforms``].

    At each node that is reached the judge writes a token; where it is none of the node's children the way of what is
    kept ends there. To tell what was drafted, the walk goes on along the best children to a leaf.
    """
    device, depth = logits.device, tree.depth
    at = torch.full((1,), -1, dtype=torch.int64, device=device)  # −1 is the text itself
    going, none = torch.ones(1, dtype=torch.bool, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    count, reach = none, none
    nodes, drafted, emitted, chances, details = [], [], [], [], []
    for level in range(depth):
        children = shape.parents == at
        there = children.any()[None]
        first = children.long().argmax(0, keepdim=True)
        target, raw = _at(logits, at, sampling)
        verdict = judge(tree, shape, Place(level, children, first, logits[0, at + 1], target, raw), u[level])
        same = children & (tree.tokens[0] == verdict.written)
        hit = same.any()[None]
        node = torch.where(hit, same.long().argmax(0, keepdim=True), first)
        x = tree.tokens[0, node]
        going = going & hit
        count, reach = count + going, reach + there
        nodes.append(node)
        drafted.append(x)
        emitted.append(verdict.written)
        chances.append(raw[0, verdict.written])
        of_draft = tree.raw[0, shape.drawn_from[node], x]
        figures = hit & verdict.strict, verdict.divergence, raw[0, x], of_draft
        details.append(torch.stack([figure.double() for figure in figures]))
        at = torch.where(there, node, at)
    target, raw = _at(logits, at, sampling)
    emitted.append(draw(target, u[depth, -1:]))
    chances.append(raw[0, emitted[-1]])
    outcome = Outcome(
        torch.cat(drafted)[None], count, torch.cat(emitted)[None], torch.cat(chances)[None],
        torch.cat(details, 1)[None], reach,
    )  # fmt: skip
    taken = torch.cat(nodes)
    return Walk(outcome, Way(taken, shape.fed[taken]))


def _at(logits: Tensor, at: Tensor, sampling: SamplingConfig) -> tuple[Tensor, Tensor]:
    """The target's distributions at one node, warped and raw: [1,V] each."""
    row = logits[0, at + 1]
    return warp(row, sampling), row.softmax(-1)
