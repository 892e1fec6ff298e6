"""Predictions from a trace for other rules, knobs and draft lengths, with intervals over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from fsd_core.config import ChainTopology, DecodingConfig
from fsd_core.config.decoding_config import JUDGING_OPTIONS
from fsd_core.config.drafting.topologies import FIXED
from fsd_core.errors import UnfitTrace
from fsd_core.replays.costs import replayable
from fsd_core.replays.paths import Paths, ReplayedRounds, paths_of, runs_of, walk
from fsd_core.replays.reduced_rows import ReducedDraft, reduced_rows
from fsd_core.replays.replay_trace import Costs, Trace
from fsd_core.rules import Rule
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.ratios import quotient_ends, ratio_ends

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
