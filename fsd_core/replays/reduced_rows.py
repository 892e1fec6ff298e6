"""Distributions of a trace, in the form that rules read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fsd_core.ops.scored_draft import ScoredDraft
from fsd_core.replays.replay_trace import RAW, SAMPLED, SCALARS, TRACED_DIVERGENCES, Trace

_FEWEST_PIECES, _MOST_PIECES = 8, 64


@dataclass(frozen=True, slots=True)
class ReducedDraft(ScoredDraft):
    """Distributions over a trace's individual tokens, and equal pieces of the remaining probability.

    Quantities over the whole vocabulary that these rows would only approximate were recorded, and are in ``exact``:
    divergences, entropies, total variation, by their names in ``SCALARS``, [B,R].
    """

    exact: dict[str, Tensor] = field(default_factory=dict)

    def divergence(self, name: str, noise: Tensor, top_k: int = 50) -> Tensor:
        """Return the recorded divergence. One over the top k is computed over individual tokens, with each piece as one
        token."""
        if name in self.exact:
            return self.exact[name]
        return ScoredDraft.divergence(self, name, noise, top_k)

    @property
    def graded_entropy(self) -> Tensor:
        return self.exact["entropy_sampled"]

    @property
    def raw_entropies(self) -> tuple[Tensor, Tensor]:
        return self.exact["entropy_target"], self.exact["entropy_draft"]

    @property
    def variation(self) -> Tensor:
        return self.exact["variation"]

    def windows(self, index: Tensor) -> ReducedDraft:
        """Return the positions of rows with B = N, R = 1 in another arrangement. ``index``: int64 [B',R'] → [B',R']

        Negative indices are no positions. They come after the others. Every row has at least one position.
        """
        sizes = (index >= 0).sum(-1).clamp_min(1)

        def pick(x: Tensor) -> Tensor:
            return x[:, 0][index]

        return replace(
            self, tokens=pick(self.tokens), target=pick(self.target), draft=pick(self.draft),
            target_raw=pick(self.target_raw), draft_raw=pick(self.draft_raw),
            allowed=None if self.allowed is None else pick(self.allowed),
            logits=None if self.logits is None else pick(self.logits), lengths=sizes,
            exact={name: pick(values) for name, values in self.exact.items()},
        )  # fmt: skip


def reduced_rows(trace: Trace) -> ReducedDraft:
    """Return all judged positions of a trace, in order: B = N, R = 1."""
    info, prompts = trace.info, trace.prompts
    kept = [tokens for prompt in prompts for tokens in prompt.kept]
    stored = {name: _padded([r for prompt in prompts for r in prompt.rows[name]]) for name in info.rows_kept}
    rest = {name: np.concatenate([_groups(prompt.rest[name]) for prompt in prompts]) for name in info.rows_kept}
    whole = _is_whole(trace)
    pieces = 0 if whole else _pieces(stored, rest)
    rows = {
        name: torch.from_numpy(np.concatenate([row, np.repeat(rest[name] / max(pieces, 1), pieces, axis=1)], 1))
        for name, row in stored.items()
    }
    allowed = None
    if info.is_restricted:
        individual = _padded([r for prompt in prompts for r in prompt.allowed or []]) > 0
        bucket = np.repeat(np.broadcast_to([True, False], (len(individual), 2)), pieces, axis=1)
        allowed = torch.from_numpy(np.concatenate([individual, bucket], 1))[:, None]
    columns = {name: _column(trace, name) for name in ("place", "best", *SCALARS)}
    place, best = (torch.from_numpy(columns[name])[:, None] for name in ("place", "best"))
    target, draft = (rows.get(name, rows[raw]) for name, raw in zip(SAMPLED, RAW, strict=True))
    if info.sampling.greedy:
        target, draft = (torch.zeros_like(rows["target"]).scatter_(-1, tokens, 1) for tokens in (best, place))
    logits = rows["target"].log() + torch.from_numpy(columns["log_sum"])[:, None]
    logits[:, max(map(len, kept)) :] = -math.inf  # pieces are not tokens
    exact = {name: torch.from_numpy(columns[name]).float()[:, None] for name in (*TRACED_DIVERGENCES, *_EXACT)}
    target, draft, target_raw, draft_raw, logits = (
        row.float()[:, None] for row in (target, draft, rows["target"], rows["draft"], logits)
    )
    return ReducedDraft(
        place, target, draft, target_raw, draft_raw, allowed, logits, info.sampling.greedy, exact=exact
    )  # fmt: skip


_EXACT = ("entropy_target", "entropy_draft", "entropy_sampled", "variation")


def _is_whole(trace: Trace) -> bool:
    return trace.info.top >= trace.info.vocabulary


def _column(trace: Trace, name: str) -> np.ndarray:
    return np.concatenate([prompt.columns[name] for prompt in trace.prompts])


def _padded(rows: Sequence[Sequence[float]]) -> np.ndarray:
    """Return rows of different lengths padded with zeros. → float64 [N,U]"""
    sizes = np.array([len(row) for row in rows])
    table = np.zeros((len(rows), int(sizes.max())))
    table[np.arange(table.shape[1]) < sizes[:, None]] = [v for row in rows for v in row]
    return table


def _groups(rest: list[list[float]]) -> np.ndarray:
    return np.array(rest, float).reshape(len(rest), -1)


def _pieces(stored: dict[str, np.ndarray], rest: dict[str, np.ndarray]) -> int:
    """Return the number of pieces, such that none is likelier than the likeliest token, within limits."""
    ratio = 0.0
    for name, row in stored.items():
        with np.errstate(divide="ignore"):
            ratio = max(ratio, float((rest[name].max(1) / row.max(1)).max()))
    return int(min(_MOST_PIECES, max(_FEWEST_PIECES, math.ceil(ratio))))
