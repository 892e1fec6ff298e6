"""Predictions from a trace for other rules, knobs and draft lengths, with intervals over prompts.

Judged positions of a trace along the strict answers, and the rounds that another rule would make of them.

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

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsd_core.config import Autoregressive, ChainTopology, DecodingConfig, SamplingConfig
from fsd_core.config.decoding_config import JUDGING_OPTIONS
from fsd_core.config.drafting import FIXED
from fsd_core.config.options import SHARED_OPTIONS, Named, in_python, methods, options_of
from fsd_core.decoding.decoder import DecodingSession
from fsd_core.decoding.loop import compose
from fsd_core.decoding.verification import DraftProposal, make_verification
from fsd_core.errors import UnfitTrace
from fsd_core.evaluation.speed import PROMPT, WARM_UP, forward_ms
from fsd_core.models.loading import LoadedPair, ModelSet
from fsd_core.ops.distributions import ScoredDraft, UniformStream, warp
from fsd_core.replays.trace_file import RAW, SAMPLED, SCALARS, TRACED_DIVERGENCES, Costs, Trace, TraceInfo
from fsd_core.rules import CHAIN, RULES, Rule, Speculative, Synthetic, Verifier
from fsd_core.statistics.intervals import Estimate, quotient_ends, ratio_ends
from fsd_core.topologies import DraftTree

ROUNDS = 40
"""default number of timed rounds"""
_REPEATS = 7
_ACCEPTED = 0.8
"""the share of drafted tokens that the timed rounds accept"""


def replayable() -> dict[str, type[Rule]]:
    """Return the rules that can replay a chain: rules for single drafts that are sampled as the settings say."""
    return {
        kind: rule
        for kind, rule in RULES.items()
        if not rule.baseline and CHAIN in rule.shapes and not issubclass(rule, Verifier)
    }


def measure_costs(pair: LoadedPair, sampling: SamplingConfig, longest: int, rounds: int = ROUNDS) -> Costs:
    """Time a pair's rounds, and the rules' arithmetic on rows of the pair's vocabulary.

    Rounds follow a prompt of random tokens, at some draft lengths from 1 to ``longest``.
    """
    lengths = sorted({1, longest, *(n for n in (2, 3, 5, 8, 12) if n < longest)})
    prompt = torch.randint(pair.target.vocabulary, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
    tokens = min(8192, pair.target.context - PROMPT - longest - 2)
    settings = {"sampling": sampling, "max_new_tokens": tokens}
    target_config = DecodingConfig(acceptance=Autoregressive(), **settings)
    drafted = {
        n: DecodingConfig(acceptance=Synthetic(probability=_ACCEPTED), topology=ChainTopology(length=n), **settings)
        for n in lengths
    }
    target_ms, *drafted_ms = _interleaved_ms(pair, [target_config, *drafted.values()], prompt, rounds)
    return Costs(
        target_alone=target_ms,
        rounds=dict(zip(lengths, drafted_ms, strict=True)),
        draft_pass=forward_ms(pair.draft, 1, rounds),
        rules=rule_costs(pair.target.vocabulary, longest, sampling, pair.target.device),
    )


def _interleaved_ms(
    pair: LoadedPair, configs: Sequence[DecodingConfig], prompt: Sequence[int], rounds: int
) -> list[float]:
    """Return the milliseconds of a round of each config.

    Every config runs one round before the next, so that a busy machine slows all alike.
    """
    models = ModelSet(pair.target, pair.draft)
    spent: list[list[float]] = [[] for _ in configs]
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(DecodingSession(compose(models, config), prompt, 0, frozenset())) for config in configs
        ]
        for _ in range(WARM_UP + rounds):
            for session, times in zip(sessions, spent, strict=True):
                if session.stop_reason is None:
                    times.append(1000 * session.run_round().seconds)
    return [median(times[WARM_UP:] or times) for times in spent]


@torch.inference_mode()
def rule_costs(vocabulary: int, length: int, sampling: SamplingConfig, device: torch.device) -> dict[str, float]:
    """Return by how many milliseconds each rule's verification of a chain takes longer than `speculative`'s.

    Each is a median over turns that time all rules. A negative difference counts as 0.
    """
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(1, length + 1, vocabulary, generator=generator)).to(device)
    draft_logits = logits[:, :length] + torch.randn(1, length, vocabulary, generator=generator).to(device)
    warped, raw = warp(draft_logits, sampling), draft_logits.softmax(-1)
    tree = DraftTree(warped.argmax(-1), length, warped, raw)
    proposal = DraftProposal(tree, length, [length], [length], [10])
    rules = {kind: make_verification(CHAIN, rule.checked(), sampling) for kind, rule in replayable().items()}
    spent: dict[str, list[float]] = {kind: [] for kind in rules}
    for repeat in range(_REPEATS + 1):
        for kind, verification in rules.items():
            start = time.perf_counter()
            verification.verify(proposal, logits, [UniformStream(repeat, device)]).count.tolist()
            spent[kind].append(1000 * (time.perf_counter() - start))
    exact = spent["speculative"]
    return {kind: max(0.0, _extra_ms(times, exact)) for kind, times in spent.items() if kind != Speculative().kind}


def _extra_ms(times: Sequence[float], exact: Sequence[float]) -> float:
    return median(rule_ms - strict_ms for rule_ms, strict_ms in zip(times[1:], exact[1:], strict=True))


def settings_of(info: TraceInfo, options: Mapping[str, Any], named: Named = in_python) -> list[DecodingConfig]:
    """Return every rule with every knob value at every draft length, unless ``options`` names others.

    ``options``: options of rules by name. ``acceptance`` and ``draft_length`` may have several values, and knobs are as
    in ``sweep``. Rules that draft greedily are left out if the trace holds sampled drafts. Raises as
    :func:`fsd_core.config.options.methods` does.
    """
    rules = [kind for kind, rule in replayable().items() if info.sampling.greedy or not rule.greedy_draft]
    defaults = {"acceptance": rules, "draft_length": list(range(1, info.draft_length + 1))}
    given = {name: value for name, value in options.items() if value not in (None, [], ())}
    asked = DecodingConfig(sampling=info.sampling, template=info.template, max_new_tokens=info.max_new_tokens)
    shared = {name: value for name, value in options_of(asked).items() if name in SHARED_OPTIONS}
    return methods(defaults | given | shared, named)


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


_AT_ONCE = 2**22
"""maximum number of probabilities in one batch for a rule that judges positions jointly"""


@dataclass(frozen=True)
class Prediction:
    """Replay's prediction for one setting. Speeds are ``None`` if the trace has no costs."""

    config: DecodingConfig
    acceptance_rate: Estimate
    """share of the drafted tokens that are accepted"""
    tokens_per_pass: Estimate
    """tokens written per pass of the target"""
    passes: Estimate
    """passes of the target per answer, if the answer stays as long as the strict one"""
    tokens_per_second: Estimate | None
    speed_up: Estimate | None
    """times as fast as the target alone"""
    acceptance_at: tuple[float, ...]
    """share of judged tokens that are accepted, by index in the draft; shorter if none was judged there"""
    is_best: bool
    """whether no other draft length is predicted to be faster for this rule and knob"""
    is_near_best: bool
    """whether the interval of its ratio to the fastest draft length reaches 1"""
    counts: np.ndarray = field(repr=False, compare=False)
    """per prompt: tokens of the strict answer, rounds, drafted and accepted tokens; float64 [P,4]"""

    @property
    def draft_length(self) -> int:
        assert self.config.topology is not None
        return self.config.topology.length


class Replay:
    """A trace, ready to be replayed with any rule.

    :meth:`predict` raises ``InvalidSetting`` for settings that the trace cannot predict.
    """

    def __init__(self, trace: Trace, seed: int = 0) -> None:
        """``seed``: for the uniforms in place of a divergence, which are not recorded."""
        self.trace, self._seed = trace, seed

    @cached_property
    def rows(self) -> ReducedDraft:
        """All judged positions, B = N, R = 1."""
        return reduced_rows(self.trace)

    @cached_property
    def paths(self) -> Paths:
        return paths_of(self.trace)

    @cached_property
    def _uniforms(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The uniforms of the strict tests, and others in place of a divergence, float64 [N,1] each."""
        tests = np.concatenate([prompt.columns["uniform"] for prompt in self.trace.prompts])
        noise = np.random.default_rng(self._seed).random(len(tests))
        return torch.from_numpy(tests)[:, None], torch.from_numpy(noise)[:, None]

    def predict(self, configs: Sequence[DecodingConfig]) -> list[Prediction]:
        """Return the predictions for settings, in their order.

        Settings that differ only in the draft length are judged once, unless the rule judges positions jointly.
        """
        for config in configs:
            self.check(config)
        groups: dict[Rule, list[int]] = {}
        for index, config in enumerate(configs):
            groups.setdefault(config.acceptance, []).append(index)
        by_index: dict[int, Prediction] = {}
        for rule, indices in groups.items():
            lengths = [length_of(configs[index]) for index in indices]
            replayed = self._walk(rule, np.array(lengths))
            predictions = self._predictions([configs[index] for index in indices], replayed)
            by_index |= dict(zip(indices, predictions, strict=True))
        return [by_index[index] for index in range(len(configs))]

    def check(self, config: DecodingConfig) -> None:
        """Raise ``InvalidSetting`` for a setting that the trace cannot predict."""
        rule, info = config.acceptance, self.trace.info
        if rule.kind not in replayable() or not isinstance(config.topology, ChainTopology):
            raise UnfitTrace(
                f"'{config.label}' is no rule for a chain of single drafts, which is all that a trace holds: choose "
                f"one of {', '.join(replayable())}, and the topology chain."
            )
        if config.topology.length_by != FIXED:
            raise UnfitTrace(
                "A trace holds drafts of one length, and replay does not know what each would have been: leave out "
                "length_by, or measure the setting."
            )
        if config.drafter is None or config.drafter.kind != "draft-model":
            raise UnfitTrace("A trace holds drafts of the draft model: choose the drafter draft-model.")
        if config.sampling != info.sampling:
            raise UnfitTrace(
                f"The trace was recorded at {_named(info.sampling)}, not at {_named(config.sampling)}: record a run "
                "with the sampling that is asked for."
            )
        if config.template != info.template:
            raise UnfitTrace(
                "The trace was recorded with other template arguments or another template date: record a run with "
                "those that are asked for."
            )
        if rule.greedy_draft and not info.sampling.greedy:
            raise UnfitTrace(
                f"'{rule.kind}' drafts the likeliest tokens, and the trace holds sampled ones: replay it from a trace "
                "of temperature 0."
            )
        if config.narrowed_by:
            raise UnfitTrace(f"Replay judges every token by the rule: leave out {' and '.join(JUDGING_OPTIONS)}.")
        if (length := length_of(config)) > info.draft_length:
            raise UnfitTrace(
                f"The draft length is {length}, and the trace was recorded with {info.draft_length}: choose at most "
                "that, or record longer drafts."
            )

    def accepted(self, rule: Rule, length: int | None = None) -> np.ndarray:
        """Return whether the rule accepts each position, as if all before it had been accepted: bool [N].

        For a rule that judges positions jointly: bool [T,J] of windows of ``length`` drafted tokens, and the bonus if
        it judges that.
        """
        tests, noise = self._uniforms
        with torch.inference_mode():
            if not rule.judges_together:
                return rule.judge(self.rows, tests, noise).accepted[:, 0].numpy()
            assert length is not None
            windows = torch.from_numpy(self.paths.windows[:, : length + rule.bonus_is_judged])
            step = max(1, _AT_ONCE // (windows.shape[1] * self.rows.target.shape[-1]))
            parts = [
                rule.judge(self.rows.windows(part), tests[:, 0][part], noise[:, 0][part]).accepted
                for part in windows.split(step)
            ]
            return torch.cat(parts).numpy()

    def _walk(self, rule: Rule, lengths: np.ndarray) -> ReplayedRounds:
        is_drafted = self.paths.windows >= 0
        if rule.judges_together:
            per_length = [self.accepted(rule, int(length)) for length in lengths]
            runs = np.stack([runs_of(accepted & is_drafted[:, : accepted.shape[1]]) for accepted in per_length], 1)
            return walk(self.paths, runs, lengths, lengths + rule.bonus_is_judged)
        accepted = np.append(self.accepted(rule), False)
        runs = np.repeat(runs_of(accepted[self.paths.windows] & is_drafted)[:, None], len(lengths), 1)
        return walk(self.paths, runs, lengths)

    def _predictions(self, configs: Sequence[DecodingConfig], replayed: ReplayedRounds) -> list[Prediction]:
        """Return the predictions for one rule at each config's draft length."""
        tokens = np.repeat(self.paths.tokens[:, None].astype(float), len(configs), 1)
        accepted = estimates(replayed.accepted, replayed.drafted, is_share=True)
        per_pass, passes = estimates(tokens, replayed.rounds), estimates(replayed.rounds, np.ones_like(tokens))
        costs = self.trace.info.costs
        seconds = None if costs is None else replayed.rounds * np.array([round_ms(costs, config) for config in configs])
        best, near = 0, np.zeros(len(configs), bool)
        if seconds is not None:
            best = int(seconds.sum(0).argmin())
            near = _reaches_one(tokens, seconds, best)
        speeds = [None] * len(configs) if seconds is None else estimates(1000 * tokens, seconds)
        speed_ups = [None] * len(configs)
        if costs is not None and seconds is not None:
            speed_ups = estimates(costs.target_alone * tokens, seconds)
        with np.errstate(divide="ignore", invalid="ignore"):
            acceptance = replayed.kept_at / replayed.reached_at
        return [
            Prediction(
                config, accepted[i], per_pass[i], passes[i], speeds[i], speed_ups[i],
                tuple(float(v) for v in acceptance[i, : length_of(config)] if np.isfinite(v)),
                costs is not None and i == best, bool(near[i]),
                np.stack([tokens[:, i], replayed.rounds[:, i], replayed.drafted[:, i], replayed.accepted[:, i]], 1),
            )
            for i, config in enumerate(configs)
        ]  # fmt: skip


def round_ms(costs: Costs, config: DecodingConfig) -> float:
    """Return the milliseconds of a round.

    Between the measured draft lengths they are interpolated linearly. A rule that judges its bonus takes one more pass
    of the draft. The rule's arithmetic counts as at the longest length.
    """
    lengths = sorted(costs.rounds)
    strict = float(np.interp(length_of(config), lengths, [costs.rounds[length] for length in lengths]))
    rule = config.acceptance
    return strict + rule.bonus_is_judged * costs.draft_pass + costs.rules.get(rule.kind, 0.0)


def estimates(above: np.ndarray, below: np.ndarray, *, is_share: bool = False) -> list[Estimate]:
    """Return ratios of sums over prompts. [P,L] each → one for each of L"""
    denominators = np.where(below.sum(0)[:, None] > 0, below.T, 1.0)  # answers of one token draft nothing
    low, high = ratio_ends(np.stack([above.T, denominators], -1), is_share=is_share)
    value = above.sum(0) / denominators.sum(1)
    return [
        Estimate(float(v), *((float(a), float(b)) if np.isfinite(a) and np.isfinite(b) else (None, None)))
        for v, a, b in zip(value, low, high, strict=True)
    ]


def _reaches_one(tokens: np.ndarray, seconds: np.ndarray, best: int) -> np.ndarray:
    """Return which draft lengths are not distinguishable in speed from the fastest, paired by prompt. [P,L] each → bool
    [L]"""
    fastest = np.stack([tokens[:, best], seconds[:, best]], -1)
    pairs = [
        np.concatenate([np.stack([tokens[:, i], length_seconds], -1), fastest], -1)
        for i, length_seconds in enumerate(seconds.T)
    ]
    low, high = quotient_ends(np.stack(pairs))
    near = (low <= 1) & (high >= 1)
    near[best] = True
    return near


def length_of(config: DecodingConfig) -> int:
    assert config.topology is not None
    return config.topology.length


def _named(sampling: object) -> str:
    return str(sampling).replace("=", " ").replace(" top", ", top").replace(" min", ", min")
