"""Recording: strict decoding that judges its bonus too, and writes down what it has judged.

The bonus is drafted and judged, so that every token of the strict answer has a position at which a draft of it was
judged. By the strict test that changes nothing of the answer's distribution, and greedily nothing of the answer.
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
from fsd_core.ops.scored_draft import ScoredDraft
from fsd_core.replays.replay_trace import RAW, SAMPLED, SCALARS, TRACED_DIVERGENCES, WHOLE, PromptTrace, TraceInfo
from fsd_core.rules import AcceptanceResult, Speculative

LEAST = 1e-4
"""a token less likely than this by both models is told apart only if drafted, or among the target's first three"""
_OF_TARGET = 3


@dataclass
class JudgedRound:
    """A round's positions, J of them, as :class:`PromptTrace` has them."""

    columns: dict[str, list[Any]]
    kept: list[list[int]]
    rows: dict[str, list[list[float]]]
    rest: dict[str, list[list[float]]]
    allowed: list[list[int]] | None


class RecordingRule(Speculative):
    """`speculative` that judges its bonus, and hands each round to ``keep``."""

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
    """Keeps the rounds of one text after the other. ``top``: see ``TraceInfo``; 0 keeps full rows."""

    top: int
    rows_kept: tuple[str, ...]
    rounds: list[JudgedRound] = field(default_factory=list)

    def keep(self, rows: ScoredDraft, uniforms: Tensor, strict: Tensor) -> None:
        """``rows`` of one text, [1,J]. ``uniforms``, ``strict``: [1,J]."""
        self.rounds.append(reduced(rows, uniforms, strict, self.top, self.rows_kept))

    def prompt(self, position: int, generation: GeneratedText, limit: int) -> PromptTrace:
        """What was kept of the text that has just been written, which is forgotten here."""
        rounds, begun, left = [], 0, iter(self.rounds)
        judged: list[JudgedRound] = []
        for record in generation.records:
            own = next(left) if record.drafted else None
            judged += [own] if own else []
            rounds.append((begun, len(own.kept) if own else 0, len(record.emitted)))
            begun += len(record.emitted)
        self.rounds = []
        columns = {
            name: np.array([v for one in judged for v in one.columns[name]], np.int64 if name in WHOLE else float)
            for name in (*WHOLE, *SCALARS)
        }
        return PromptTrace(
            prompt=position, tokens=begun, limit=limit, seconds=generation.seconds,
            rounds=np.array(rounds, np.int64).reshape(-1, 3), columns=columns,
            kept=_joined(one.kept for one in judged),
            rows={name: _joined(one.rows[name] for one in judged) for name in self.rows_kept},
            rest={name: _joined(one.rest[name] for one in judged) for name in self.rows_kept},
            allowed=None if not judged or judged[0].allowed is None else _joined(one.allowed or [] for one in judged),
        )  # fmt: skip


def _joined(parts: Iterable[list[Any]]) -> list[Any]:
    return [row for part in parts for row in part]


def reduced(rows: ScoredDraft, uniforms: Tensor, strict: Tensor, top: int, names: Sequence[str]) -> JudgedRound:
    """What replay needs of judged positions. ``rows``: [1,J,V]; ``uniforms``, ``strict``: [1,J].

    Tokens are told apart that are among the ``top`` likeliest of either model and at least ``LEAST`` likely by one, the
    target's first three, and the drafted one; with ``top`` 0 all of them.
    """
    known = dict(zip((*RAW, *SAMPLED), (rows.target_raw, rows.draft_raw, rows.target, rows.draft), strict=True))
    every = {name: known[name][0] for name in names}
    p, q, x = rows.target_raw[0], rows.draft_raw[0], rows.tokens[0]
    told = _told_apart(p, q, x, rows.target[0].argmax(-1), top)
    counts, tokens = told.sum(-1).tolist(), told.nonzero()[:, 1]
    kept = [part.tolist() for part in tokens.split(counts)]
    place, best = (
        (tokens[None] < one[:, None]).logical_and(_own(counts, tokens.device)).sum(-1) for one in (x, _first(rows))
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
        {name: [part.tolist() for part in row[told].split(counts)] for name, row in every.items()},
        {name: _rest(row, told, allowed).tolist() for name, row in every.items()},
        None if allowed is None else [part.long().tolist() for part in allowed[told].split(counts)],
    )


def _told_apart(p: Tensor, q: Tensor, x: Tensor, best: Tensor, top: int) -> Tensor:
    """→ bool [J,V]"""
    size = p.shape[-1]
    if not top or top >= size:
        return torch.ones_like(p, dtype=torch.bool)
    told = torch.zeros_like(p, dtype=torch.bool)
    for row in (p, q):
        told.scatter_(-1, row.topk(top, -1).indices, True)
    told &= (p >= LEAST) | (q >= LEAST)
    always = [p.topk(min(_OF_TARGET, size), -1).indices, q.argmax(-1, keepdim=True), x[:, None], best[:, None]]
    return told.scatter_(-1, torch.cat(always, -1), True)


def _first(rows: ScoredDraft) -> Tensor:
    """The target's likeliest token, which it writes greedily. → int64 [J]"""
    return (rows.target if rows.greedy else rows.target_raw)[0].argmax(-1)


def _own(counts: list[int], device: torch.device) -> Tensor:
    """Which of all kept tokens are of each position. → bool [J,sum of counts]"""
    owner = torch.arange(len(counts), device=device).repeat_interleave(torch.tensor(counts, device=device))
    return owner[None] == torch.arange(len(counts), device=device)[:, None]


def _rest(row: Tensor, told: Tensor, allowed: Tensor | None) -> Tensor:
    """Of a distribution [J,V], what the tokens that are not told apart have. → float64 [J,1 or 2]"""
    left = row.double().masked_fill(told, 0)
    if allowed is None:
        return left.sum(-1, keepdim=True)
    return torch.stack([(left * allowed).sum(-1), (left * ~allowed).sum(-1)], -1)


def tops(info_top: int, vocabulary: int) -> int:
    """``TraceInfo.top`` as :func:`reduced` takes it: 0 where all tokens are kept."""
    return 0 if info_top >= vocabulary else info_top


def recorder_of(info: TraceInfo) -> Recorder:
    """A recorder for a run that is about to begin."""
    return Recorder(tops(info.top, info.vocabulary), info.rows_kept)
