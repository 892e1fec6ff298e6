"""Judging several drafts per position: from the root down the chains that begin as what has been written."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fsd_core.acceptance.couplings import Choose, Drafts
from fsd_core.config import SamplingConfig
from fsd_core.decoding.outcome import Outcome
from fsd_core.ops.divergences import js
from fsd_core.ops.sampling import draw
from fsd_core.ops.warping import warp
from fsd_core.topologies import DraftTree


@dataclass(frozen=True, slots=True)
class Walk:
    """What a round came to, and the way that was taken through the tree: the node of each level, int64 [D]."""

    outcome: Outcome
    path: Tensor


def walk(tree: DraftTree, logits: Tensor, choose: Choose, sampling: SamplingConfig, uniforms: Tensor) -> Walk:
    """One text. logits: of the target behind the text and behind each node, [1,N+1,V]. uniforms: [D+1,n+1].

    At each level the verifier writes a token, given those drafts that begin as what it has written so far; where the
    token is none of them the way ends. What stands behind the end in the tensors is of no account.
    """
    assert tree.valid is not None
    width, depth = tree.width, tree.size // tree.width
    alive = torch.ones(width, dtype=torch.bool, device=logits.device)
    at = torch.zeros(1, dtype=torch.int64, device=logits.device)  # 0 is the text itself, then the nodes
    going = torch.ones(1, dtype=torch.bool, device=logits.device)
    count, taken, drafted, emitted, chances, details = torch.zeros_like(at), [], [], [], [], []
    for level in range(depth):
        nodes = slice(level * width, (level + 1) * width)
        tokens, valid = tree.tokens[:, nodes], tree.valid[:, nodes] & alive
        node = level * width + alive.long().argmax(0, keepdim=True)
        target, raw = _at(logits, at, sampling)
        draft_raw = tree.raw[0, node]
        written = choose(Drafts(tokens, valid, target, tree.warped[0, node]), uniforms[level : level + 1])  # [1]
        alive = ((tokens == written[:, None]) & valid)[0]
        hit = alive.any()[None]
        node = torch.where(hit, level * width + alive.long().argmax(0, keepdim=True), node)
        x = torch.where(hit, written, tree.tokens[0, node])
        going = going & hit
        count = count + going
        at = node + 1
        taken.append(node)
        drafted.append(x)
        emitted.append(written)
        chances.append(raw[0, written])
        figures = hit, js(raw, draft_raw), raw[0, x], draft_raw[0, x]
        details.append(torch.stack([figure.double() for figure in figures]))
    target, raw = _at(logits, at, sampling)
    emitted.append(draw(target, uniforms[depth, -1:]))
    chances.append(raw[0, emitted[-1]])
    outcome = Outcome(
        torch.cat(drafted)[None], count, torch.cat(emitted)[None], torch.cat(chances)[None], torch.cat(details, 1)[None]
    )
    return Walk(outcome, torch.cat(taken))


def _at(logits: Tensor, at: Tensor, sampling: SamplingConfig) -> tuple[Tensor, Tensor]:
    """The target's distributions at one node, warped and raw: [1,V] each."""
    row = logits[0, at]
    return warp(row, sampling), row.softmax(-1)
