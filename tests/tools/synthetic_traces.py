"""Traces of known truth: strict runs over rows that are given, or drawn from known distributions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fsd_core.config import SamplingConfig
from fsd_core.ops.distributions import ScoredDraft, allowed, draw, one_hot, warp
from fsd_core.replays.recording import JudgedRound, reduced
from fsd_core.replays.trace_file import SCALARS, WHOLE, Costs, PromptTrace, Trace, TraceInfo
from fsd_core.rules import Speculative


def info(sampling: SamplingConfig, vocabulary: int, length: int, top: int, costs: Costs | None = None) -> TraceInfo:
    return TraceInfo(
        pair="bundled", task="arithmetic", seed=0, prompts=1, vocabulary=vocabulary, tokenizer="0" * 16,
        sampling=sampling, draft_length=length, max_new_tokens=128, top=top, costs=costs,
    )  # fmt: skip


def random_rows(sampling: SamplingConfig, rounds: int, judged: int, vocabulary: int, seed: int) -> ScoredDraft:
    """Rows as the chain verification makes them, of a target and a draft that are near each other. [rounds,judged,V]"""
    generator = torch.Generator().manual_seed(seed)
    sharpness = 1 + 4 * torch.rand(rounds, judged, 1, generator=generator)
    logits = sharpness * torch.randn(rounds, judged, vocabulary, generator=generator)
    said = logits + torch.randn(rounds, judged, vocabulary, generator=generator)
    target, draft = warp(logits, sampling), warp(said, sampling)
    tokens = draw(draft, torch.rand(rounds, judged, generator=generator, dtype=torch.float64))
    if sampling.greedy:
        draft = one_hot(tokens, vocabulary)
    return ScoredDraft(
        tokens, target, draft, logits.softmax(-1), said.softmax(-1), allowed(logits, sampling), logits, sampling.greedy
    )


def trace_of(rows: ScoredDraft, uniforms: Tensor, sampling: SamplingConfig, top: int) -> Trace:
    """A strict run of one prompt that has judged these rows, one round each. ``uniforms``: as the rows, [R,J]"""
    vocabulary, judged = rows.target.shape[-1], rows.tokens.shape[1]
    known = info(sampling, vocabulary, judged - 1, top)
    parts: list[JudgedRound] = []
    rounds, begun = [], 0
    for i in range(len(rows.tokens)):
        own = slice(i, i + 1)
        one = ScoredDraft(
            rows.tokens[own], rows.target[own], rows.draft[own], rows.target_raw[own], rows.draft_raw[own],
            None if rows.allowed is None else rows.allowed[own], None if rows.logits is None else rows.logits[own],
            rows.greedy,
        )  # fmt: skip
        tests = uniforms[i : i + 1]
        strict = Speculative().judge(one, tests, tests).accepted
        parts.append(reduced(one, tests, strict, top if top < vocabulary else 0, known.rows_kept))
        written = min(int(strict[0].long().cumprod(0).sum()) + 1, judged)
        rounds.append((begun, judged, written))
        begun += written
    columns = {
        name: np.array([v for part in parts for v in part.columns[name]], np.int64 if name in WHOLE else float)
        for name in (*WHOLE, *SCALARS)
    }
    prompt = PromptTrace(
        prompt=0, prompt_hash=None, tokens=begun, limit=begun + 100, seconds=1.0,
        rounds=np.array(rounds), columns=columns,
        kept=[tokens for part in parts for tokens in part.kept],
        rows={name: [row for part in parts for row in part.rows[name]] for name in known.rows_kept},
        rest={name: [row for part in parts for row in part.rest[name]] for name in known.rows_kept},
        allowed=None if rows.allowed is None else [row for part in parts for row in part.allowed or []],
    )  # fmt: skip
    return Trace(known, (prompt,))


TWO_Q = 0.5


def two_token_trace(
    likely: np.ndarray, length: int, tokens: int, seed: int, costs: Costs | None = None
) -> tuple[Trace, np.ndarray]:
    """Strict runs over two tokens, q half each, p of the first ``likely`` for each prompt [P]. Returns the trace and
    the strict acceptance of each prompt."""
    generator, prompts = np.random.default_rng(seed), []
    for position, p in enumerate(likely):
        rounds, begun, token, uniform, strict = [], 0, [], [], []
        while begun < tokens:
            judged = min(length, tokens - begun - 1) + 1
            if judged == 1:
                rounds.append((begun, 0, 1))
                break
            x, u = generator.integers(0, 2, judged), generator.random(judged)
            kept = u * TWO_Q < np.where(x == 0, p, 1 - p)
            written = min(int(np.cumprod(kept).sum()) + 1, judged)
            rounds.append((begun, judged, written))
            begun += written
            token, uniform, strict = [*token, *x.tolist()], [*uniform, *u.tolist()], [*strict, *kept.tolist()]
        n = len(token)
        columns = {name: np.zeros(n, np.int64 if name in WHOLE else float) for name in (*WHOLE, *SCALARS)}
        columns |= {"token": np.array(token), "place": np.array(token), "strict": np.array(strict, np.int64)}
        columns["uniform"] = np.array(uniform)
        prompts.append(PromptTrace(
            prompt=position, prompt_hash=None, tokens=tokens, limit=tokens, seconds=1.0,
            rounds=np.array(rounds), columns=columns,
            kept=[[0, 1]] * n, rows={"target": [[p, 1 - p]] * n, "draft": [[TWO_Q, TWO_Q]] * n},
            rest={"target": [[0.0]] * n, "draft": [[0.0]] * n}, allowed=None,
        ))  # fmt: skip
    known = info(SamplingConfig(temperature=1), 2 + 1, length, 3, costs)  # three keep full rows
    return Trace(known.model_copy(update={"prompts": len(prompts)}), tuple(prompts)), np.minimum(
        likely, TWO_Q
    ) + np.minimum(1 - likely, TWO_Q)
