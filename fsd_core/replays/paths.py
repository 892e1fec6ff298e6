"""Where the judged positions of a trace lie along the strict answers, and rounds that another rule would make of them.

**The estimator.** A rule is imagined to write an answer as long as the strict one. Its rounds begin at a token of the
strict answer. What such a round drafts is known: from a token inside a recorded round, the rest of that round's draft,
and behind the last of it, if the strict test kept all, the next recorded round's, which was drafted behind that very
text. The rule judges these positions with the uniforms that the strict test had. Where it keeps what the strict test
refused, the recorded draft goes on behind the kept token, so that the rest of the round is exact as well.

What is assumed: (1) once such a round is over, the next one begins at the strict token of the same place in the answer,
as if what was forgiven had not changed what the models say there; (2) a draft that left the strict answer and is longer
than its record goes on like the strict answer; (3) the answer stays as long. Without leniency nothing is assumed: the
replay of strict decoding at the recorded draft length is the recorded run, and at a shorter one a strict run of the
same law, since the draft at each place of the answer was drawn behind the answer so far.

A rule that judges positions together has looked at drafted tokens behind the last that it keeps. What it has looked at
says something of them, so its next round begins behind what it has looked at of the strict answer, and its figures are
those of the tokens that it wrote, carried over to the answer's length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsd_core.replays.replay_trace import Trace

_NONE = -1


@dataclass(frozen=True, eq=False)
class Paths:
    """All places of all answers, T of them, and all judged positions, N of them, with those of the prompts in order.

    windows: int64 [T,J], the positions that a round judges which begins at a place, J = γ + 1 of the recording; NONE
    where nothing was drafted. own: int64 [T], how many of these are of the strict answer, before one is not. begin:
    int64 [P], each answer's first place. tokens, limit: int64 [P].
    """

    windows: np.ndarray
    own: np.ndarray
    begin: np.ndarray
    tokens: np.ndarray
    limit: np.ndarray


@dataclass(frozen=True, eq=False)
class ReplayedRounds:
    """What a rule's rounds came to, for each prompt and L draft lengths. float64 [P,L] each, but for the last.

    kept_at, reached_at: [L,γ], drafted tokens by their place in the draft that were kept, and that were judged because
    all before them were kept.
    """

    rounds: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    kept_at: np.ndarray
    reached_at: np.ndarray


def paths_of(trace: Trace) -> Paths:
    """The windows of a trace; see the head of this file."""
    on_path, follows, begin, places, positions = [], [], [], 0, 0
    for prompt in trace.prompts:
        begin.append(places)
        own, after = np.full(prompt.tokens + 1, _NONE), np.full(prompt.size, _NONE)
        at = 0
        for start, judged, written in prompt.rounds.tolist():
            if judged:
                own[start : start + written] = positions + at + np.arange(written)
                after[at : at + judged - 1] = positions + at + np.arange(1, judged)
            at += judged
        at = 0
        for start, judged, _ in prompt.rounds.tolist():
            if judged:
                after[at + judged - 1] = own[min(start + judged, prompt.tokens)]
            at += judged
        on_path.append(own[:-1])
        follows.append(after)
        places += prompt.tokens
        positions += prompt.size
    first, follow = np.concatenate(on_path), np.append(np.concatenate(follows), _NONE)
    windows = np.empty((len(first), trace.info.draft_length + 1), np.int64)
    windows[:, 0] = first
    for column in range(1, windows.shape[1]):
        windows[:, column] = follow[windows[:, column - 1]]  # NONE is the last of them, and follows itself
    tokens = np.array([prompt.tokens for prompt in trace.prompts])
    ends = np.repeat(np.cumsum(tokens), tokens)[:, None]
    place = np.arange(len(first))[:, None] + np.arange(windows.shape[1])
    inside = place < ends
    own = runs_of(inside & (windows == first[np.where(inside, place, 0)]))
    return Paths(windows, own, np.array(begin), tokens, np.array([prompt.limit for prompt in trace.prompts]))


def runs_of(kept: np.ndarray) -> np.ndarray:
    """How many positions of each window are kept before the first that is not. bool [T,J] → int64 [T]"""
    return np.cumprod(kept, axis=1, dtype=np.int64).sum(1)


def walk(paths: Paths, runs: np.ndarray, lengths: np.ndarray, looked: np.ndarray | None = None) -> ReplayedRounds:
    """The rounds of a rule along each answer.

    ``runs``: int64 [T,L], how many drafted tokens the rule would keep in a round that begins at a place, if the draft
    were as long as it is recorded. ``lengths``: int64 [L], the draft lengths, at most that of the recording.
    ``looked``: int64 [L], of a rule that judges positions together, how many a round looks at.
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
        place = (begin + at).clip(max=len(runs) - 1)
        kept = np.minimum(runs[place, columns], draft)
        left = tokens - at
        own, counted = np.minimum(kept, left), np.minimum(draft, left)  # behind the end nothing is counted
        rounds += writing
        drafted += writing * counted
        accepted += writing * own
        kept_at += ((order < own[..., None]) & writing[..., None]).sum(0)
        reached_at += ((order < np.minimum(own + 1, counted)[..., None]) & writing[..., None]).sum(0)
        written = np.minimum(kept + 1, left)
        wrote += writing * written
        on = written if looked is None else np.maximum(written, np.minimum(paths.own[place], looked))
        at = np.where(writing, at + np.minimum(on, left), at)
    whole = np.divide(tokens, wrote)
    return ReplayedRounds(whole * rounds, whole * drafted, whole * accepted, kept_at, reached_at)
