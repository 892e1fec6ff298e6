"""Judged positions of a trace along the strict answers, and the rounds that another rule would make of them.

**The estimator.** A rule is assumed to write an answer as long as the strict one. Its rounds begin at tokens of the
strict answer. The draft of such a round is known. From a token inside a recorded round, it is the rest of that round's
draft. If the strict test accepted all of that, it continues with the next recorded round's draft, which was drafted
after exactly that text. The rule judges these positions with the uniforms that the strict test had. If it accepts what
the strict test rejected, the recorded draft continues after the accepted token, so that the rest of the round is exact
as well.

Three things are assumed. (1) Once such a round is over, the next one begins at the strict token of the same index in
the answer, as if lenient tokens had not changed what the models say there. (2) A draft that left the strict answer and
is longer than its record continues like the strict answer. (3) The answer keeps its length. Without leniency nothing is
assumed. The replay of strict decoding at the recorded draft length is the recorded run. At a shorter one it is a strict
run with the same distribution, since the draft at each token of the answer was drawn after the answer so far.

A rule that judges positions jointly has looked at drafted tokens after the last one that it accepts. Its decision says
something about them, so its next round begins after the tokens of the strict answer that it has looked at. Its figures
are those of the tokens that it wrote, scaled to the answer's length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsd_core.replays.replay_trace import Trace

_NONE = -1


@dataclass(frozen=True, eq=False)
class Paths:
    """The T token indices of all answers and the N judged positions, in the order of the prompts.

    windows: int64 [T,J], the positions that a round from a token index judges, J = γ + 1 of the recording; NONE if
    nothing was drafted. strict_runs: int64 [T], how many of these belong to the strict answer before the first that
    does not. begin: int64 [P], each answer's first index. tokens, limit: int64 [P].
    """

    windows: np.ndarray
    strict_runs: np.ndarray
    begin: np.ndarray
    tokens: np.ndarray
    limit: np.ndarray


@dataclass(frozen=True, eq=False)
class ReplayedRounds:
    """A rule's rounds for each prompt and L draft lengths. float64 [P,L] each, except for the last two.

    kept_at, reached_at: [L,γ], drafted tokens by index in the draft that were accepted, and that were judged because
    all before them were accepted.
    """

    rounds: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    kept_at: np.ndarray
    reached_at: np.ndarray


def paths_of(trace: Trace) -> Paths:
    """Return the windows of a trace; see the module docstring."""
    on_path, follows, begin, num_tokens, num_positions = [], [], [], 0, 0
    for prompt in trace.prompts:
        begin.append(num_tokens)
        window_of, after = np.full(prompt.tokens + 1, _NONE), np.full(prompt.size, _NONE)
        offset = 0
        for start, judged, written in prompt.rounds.tolist():
            if judged:
                window_of[start : start + written] = num_positions + offset + np.arange(written)
                after[offset : offset + judged - 1] = num_positions + offset + np.arange(1, judged)
            offset += judged
        offset = 0
        for start, judged, _ in prompt.rounds.tolist():
            if judged:
                after[offset + judged - 1] = window_of[min(start + judged, prompt.tokens)]
            offset += judged
        on_path.append(window_of[:-1])
        follows.append(after)
        num_tokens += prompt.tokens
        num_positions += prompt.size
    first, follow = np.concatenate(on_path), np.append(np.concatenate(follows), _NONE)
    windows = np.empty((len(first), trace.info.draft_length + 1), np.int64)
    windows[:, 0] = first
    for column in range(1, windows.shape[1]):
        windows[:, column] = follow[windows[:, column - 1]]  # NONE indexes the last entry, which is NONE
    tokens = np.array([prompt.tokens for prompt in trace.prompts])
    ends = np.repeat(np.cumsum(tokens), tokens)[:, None]
    index = np.arange(len(first))[:, None] + np.arange(windows.shape[1])
    inside = index < ends
    strict_runs = runs_of(inside & (windows == first[np.where(inside, index, 0)]))
    return Paths(windows, strict_runs, np.array(begin), tokens, np.array([prompt.limit for prompt in trace.prompts]))


def runs_of(accepted: np.ndarray) -> np.ndarray:
    """Return how many positions of each window are accepted before the first that is not. bool [T,J] → int64 [T]"""
    return np.cumprod(accepted, axis=1, dtype=np.int64).sum(1)


def walk(paths: Paths, runs: np.ndarray, lengths: np.ndarray, looked: np.ndarray | None = None) -> ReplayedRounds:
    """Return the rounds of a rule along each answer.

    ``runs``: int64 [T,L], how many drafted tokens the rule would accept in a round from a token index, if the draft
    were as long as recorded. ``lengths``: int64 [L], the draft lengths, at most that of the recording. ``looked``:
    int64 [L], how many positions a round looks at, for a rule that judges positions jointly.
    """
    prompts, columns = len(paths.begin), np.arange(len(lengths))
    at = np.zeros((prompts, len(lengths)), np.int64)
    rounds, drafted, accepted, wrote = (np.zeros(at.shape) for _ in range(4))
    longest = int(lengths.max())
    kept_at, reached_at = (np.zeros((len(lengths), longest)) for _ in range(2))
    tokens, limit, begin = (x[:, None] for x in (paths.tokens, paths.limit, paths.begin))
    order = np.arange(longest)
    while (writing := at < tokens).any():
        draft = np.minimum(lengths, limit - at - 1).clip(0)
        index = (begin + at).clip(max=len(runs) - 1)
        kept = np.minimum(runs[index, columns], draft)
        remaining = tokens - at
        # nothing after the end is counted
        counted_kept, counted = np.minimum(kept, remaining), np.minimum(draft, remaining)
        rounds += writing
        drafted += writing * counted
        accepted += writing * counted_kept
        kept_at += ((order < counted_kept[..., None]) & writing[..., None]).sum(0)
        reached_at += ((order < np.minimum(counted_kept + 1, counted)[..., None]) & writing[..., None]).sum(0)
        written = np.minimum(kept + 1, remaining)
        wrote += writing * written
        advance = written if looked is None else np.maximum(written, np.minimum(paths.strict_runs[index], looked))
        at = np.where(writing, at + np.minimum(advance, remaining), at)
    scale = np.divide(tokens, wrote)
    return ReplayedRounds(scale * rounds, scale * drafted, scale * accepted, kept_at, reached_at)
