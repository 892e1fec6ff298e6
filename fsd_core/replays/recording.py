"""Recording: strict decoding that judges its bonus too, and records every judged position.

The bonus is drafted and judged, so that every token of the strict answer has a position at which a draft of it was
judged. With the strict test this does not change the answer's distribution, and with greedy decoding not the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from fsd_core.decoding.decoder import GeneratedText
from fsd_core.models.prompt import prompt_hash
from fsd_core.ops.scored_draft import ScoredDraft
from fsd_core.replays.replay_trace import RAW, SAMPLED, SCALARS, TRACED_DIVERGENCES, WHOLE, PromptTrace, TraceInfo
from fsd_core.rules import AcceptanceResult, Speculative

LEAST = 1e-4
"""a token less likely than this under both models is stored individually only if drafted or in the target's top
three"""
_OF_TARGET = 3


@dataclass
class JudgedRound:
    """The J judged positions of a round, in the format of :class:`PromptTrace`."""

    columns: dict[str, list[Any]]
    kept: list[list[int]]
    rows: dict[str, list[list[float]]]
    rest: dict[str, list[list[float]]]
    allowed: list[list[int]] | None


class RecordingRule(Speculative):
    """`speculative` that judges its bonus, and passes each round to ``keep``."""

    judges_bonus = True
    _keep: Callable[[ScoredDraft, Tensor, Tensor], None] = PrivateAttr()

    def __init__(self, keep: Callable[[ScoredDraft, Tensor, Tensor], None]) -> None:
        super().__init__()
        self._keep = keep

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        result = super().judge(rows, uniforms, noise)
        self._keep(rows, uniforms, result.accepted)
        return result


@dataclass
class Recorder:
    """Stores the rounds of one text after another. ``top``: see ``TraceInfo``; 0 stores full rows."""

    top: int
    rows_kept: tuple[str, ...]
    rounds: list[JudgedRound] = field(default_factory=list)

    def keep(self, rows: ScoredDraft, uniforms: Tensor, strict: Tensor) -> None:
        """Store a round. ``rows``: of one text, [1,J]. ``uniforms``, ``strict``: [1,J]."""
        self.rounds.append(reduced(rows, uniforms, strict, self.top, self.rows_kept))

    def prompt(self, position: int, ids: Sequence[int], generation: GeneratedText, limit: int) -> PromptTrace:
        """Return the trace of the text that has just been written after the prompt ``ids``, and clear the recorder."""
        rounds, written, unread = [], 0, iter(self.rounds)
        judged: list[JudgedRound] = []
        for record in generation.records:
            current = next(unread) if record.drafted else None
            judged += [current] if current else []
            rounds.append((written, len(current.kept) if current else 0, len(record.emitted)))
            written += len(record.emitted)
        self.rounds = []
        columns = {
            name: np.array([v for part in judged for v in part.columns[name]], np.int64 if name in WHOLE else float)
            for name in (*WHOLE, *SCALARS)
        }
        return PromptTrace(
            prompt=position, prompt_hash=prompt_hash(ids), tokens=written, limit=limit, seconds=generation.seconds,
            rounds=np.array(rounds, np.int64).reshape(-1, 3), columns=columns,
            kept=_joined(part.kept for part in judged),
            rows={name: _joined(part.rows[name] for part in judged) for name in self.rows_kept},
            rest={name: _joined(part.rest[name] for part in judged) for name in self.rows_kept},
            allowed=None if not judged or judged[0].allowed is None else _joined(part.allowed or [] for part in judged),
        )  # fmt: skip


def _joined(parts: Iterable[list[Any]]) -> list[Any]:
    return [row for part in parts for row in part]


def reduced(rows: ScoredDraft, uniforms: Tensor, strict: Tensor, top: int, names: Sequence[str]) -> JudgedRound:
    """Return the facts on judged positions that replay needs. ``rows``: [1,J,V]; ``uniforms``, ``strict``: [1,J].

    These tokens are stored individually: the ``top`` likeliest of either model that are at least ``LEAST`` likely under
    one, the target's top three, and the drafted token. With ``top`` 0 all tokens are.
    """
    distributions = dict(zip((*RAW, *SAMPLED), (rows.target_raw, rows.draft_raw, rows.target, rows.draft), strict=True))
    stored = {name: distributions[name][0] for name in names}
    p, q, x = rows.target_raw[0], rows.draft_raw[0], rows.tokens[0]
    mask = _individual_tokens(p, q, x, rows.target[0].argmax(-1), top)
    counts, tokens = mask.sum(-1).tolist(), mask.nonzero()[:, 1]
    kept = [part.tolist() for part in tokens.split(counts)]
    place, best = (
        (tokens[None] < tokens_at[:, None]).logical_and(_by_position(counts, tokens.device)).sum(-1)
        for tokens_at in (x, _target_argmax(rows))
    )
    allowed = None if rows.allowed is None else rows.allowed[0]
    columns: dict[str, Tensor] = {
        "token": x, "place": place, "best": best, "strict": strict[0],
        "rank": (p > rows.of_token(rows.target_raw)[0, :, None]).sum(-1),
        "ties": (p == p.amax(-1, keepdim=True)).sum(-1),
        "uniform": uniforms[0], "max_p": p.amax(-1), "variation": rows.variation[0],
        "log_sum": p.new_zeros(len(p)) if rows.logits is None else rows.logits[0].logsumexp(-1),
        "entropy_target": rows.raw_entropies[0][0], "entropy_draft": rows.raw_entropies[1][0],
        "entropy_sampled": rows.graded_entropy[0],
    }  # fmt: skip
    columns |= {name: rows.divergence(name, uniforms)[0] for name in TRACED_DIVERGENCES}
    return JudgedRound(
        {name: column.tolist() for name, column in columns.items()},
        kept,
        {name: [part.tolist() for part in row[mask].split(counts)] for name, row in stored.items()},
        {name: _remainder(row, mask, allowed).tolist() for name, row in stored.items()},
        None if allowed is None else [part.long().tolist() for part in allowed[mask].split(counts)],
    )


def _individual_tokens(p: Tensor, q: Tensor, x: Tensor, best: Tensor, top: int) -> Tensor:
    """Return which tokens are stored individually. → bool [J,V]"""
    size = p.shape[-1]
    if not top or top >= size:
        return torch.ones_like(p, dtype=torch.bool)
    mask = torch.zeros_like(p, dtype=torch.bool)
    for row in (p, q):
        mask.scatter_(-1, row.topk(top, -1).indices, True)
    mask &= (p >= LEAST) | (q >= LEAST)
    always = [p.topk(min(_OF_TARGET, size), -1).indices, q.argmax(-1, keepdim=True), x[:, None], best[:, None]]
    return mask.scatter_(-1, torch.cat(always, -1), True)


def _target_argmax(rows: ScoredDraft) -> Tensor:
    """Return the target's likeliest token, which greedy decoding writes. → int64 [J]"""
    return (rows.target if rows.greedy else rows.target_raw)[0].argmax(-1)


def _by_position(counts: list[int], device: torch.device) -> Tensor:
    """Return which of all kept tokens belong to each position. → bool [J,sum of counts]"""
    owner = torch.arange(len(counts), device=device).repeat_interleave(torch.tensor(counts, device=device))
    return owner[None] == torch.arange(len(counts), device=device)[:, None]


def _remainder(row: Tensor, mask: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the probability outside ``mask`` of a distribution [J,V]. → float64 [J,1 or 2]"""
    outside = row.double().masked_fill(mask, 0)
    if allowed is None:
        return outside.sum(-1, keepdim=True)
    return torch.stack([(outside * allowed).sum(-1), (outside * ~allowed).sum(-1)], -1)


def tops(info_top: int, vocabulary: int) -> int:
    """Return ``TraceInfo.top`` as :func:`reduced` takes it: 0 if all tokens are stored."""
    return 0 if info_top >= vocabulary else info_top


def recorder_of(info: TraceInfo) -> Recorder:
    """Return a recorder for a run that is about to start."""
    return Recorder(tops(info.top, info.vocabulary), info.rows_kept)
