"""What a trace predicts of other rules, knobs and draft lengths, with intervals over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from fsd_core.config import ChainTopology, DecodingConfig
from fsd_core.errors import InvalidSetting
from fsd_core.replays.costs import replayable
from fsd_core.replays.paths import Paths, ReplayedRounds, paths_of, runs_of, walk
from fsd_core.replays.reduced_rows import ReducedDraft, reduced_rows
from fsd_core.replays.replay_trace import Costs, Trace
from fsd_core.rules import Rule
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.ratios import quotient_ends, ratio_ends

_AT_ONCE = 2**22
"""probabilities that a rule that judges positions together is given at once"""


@dataclass(frozen=True)
class Prediction:
    """What replay says of one setting. Speeds are ``None`` where the trace has no costs."""

    config: DecodingConfig
    acceptance_rate: Estimate
    """share of the drafted tokens that are kept"""
    tokens_per_pass: Estimate
    """tokens written per pass of the target"""
    passes: Estimate
    """passes of the target per answer, if it stays as long as the strict one"""
    tokens_per_second: Estimate | None
    speed_up: Estimate | None
    """times as fast as the target alone"""
    acceptance_at: tuple[float, ...]
    """of the tokens that are judged at each place of the draft, the share that is kept; shorter where none was"""
    is_best: bool
    """whether no other draft length is predicted to be faster for this rule and knob"""
    is_near_best: bool
    """whether the interval of its ratio to the fastest draft length reaches 1"""
    counts: np.ndarray = field(repr=False, compare=False)
    """of each prompt: tokens of the strict answer, rounds, drafted and accepted tokens; float64 [P,4]"""

    @property
    def draft_length(self) -> int:
        assert self.config.topology is not None
        return self.config.topology.length


class Replay:
    """A trace, ready to be replayed by any rule.

    Raises ``InvalidSetting`` from :meth:`predict` for what the trace cannot tell.
    """

    def __init__(self, trace: Trace, seed: int = 0) -> None:
        """``seed``: of the uniforms in place of a divergence, which are not recorded."""
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
        """Those of the strict tests, and others in place of a divergence, float64 [N,1] each."""
        tests = np.concatenate([prompt.columns["uniform"] for prompt in self.trace.prompts])
        noise = np.random.default_rng(self._seed).random(len(tests))
        return torch.from_numpy(tests)[:, None], torch.from_numpy(noise)[:, None]

    def predict(self, configs: Sequence[DecodingConfig]) -> list[Prediction]:
        """What is predicted of settings, in their order. Those that differ in the draft length alone are judged once,
        unless the rule judges positions together."""
        for config in configs:
            self.check(config)
        groups: dict[Rule, list[int]] = {}
        for place, config in enumerate(configs):
            groups.setdefault(config.acceptance, []).append(place)
        found: dict[int, Prediction] = {}
        for rule, places in groups.items():
            lengths = [length_of(configs[place]) for place in places]
            done = self._walk(rule, np.array(lengths))
            predictions = self._predictions([configs[place] for place in places], done)
            found |= dict(zip(places, predictions, strict=True))
        return [found[place] for place in range(len(configs))]

    def check(self, config: DecodingConfig) -> None:
        """Raises ``InvalidSetting`` for a setting that the trace cannot tell of."""
        rule, info = config.acceptance, self.trace.info
        if rule.kind not in replayable() or not isinstance(config.topology, ChainTopology):
            raise InvalidSetting(
                f"'{config.label}' is no rule for a chain of single drafts, which is all that a trace holds: choose "
                f"one of {', '.join(replayable())}, and the topology chain."
            )
        if config.drafter is None or config.drafter.kind != "draft-model":
            raise InvalidSetting("A trace holds drafts of the draft model: choose the drafter draft-model.")
        if config.sampling != info.sampling:
            raise InvalidSetting(
                f"The trace was recorded at {_named(info.sampling)}, not at {_named(config.sampling)}: record a run "
                "with the sampling that is asked for."
            )
        if rule.greedy_draft and not info.sampling.greedy:
            raise InvalidSetting(
                f"'{rule.kind}' drafts the likeliest tokens, and the trace holds sampled ones: replay it from a trace "
                "of temperature 0."
            )
        if config.strict_first:
            raise InvalidSetting("Replay judges every token by the rule: leave out strict_first.")
        if (length := length_of(config)) > info.draft_length:
            raise InvalidSetting(
                f"The draft length is {length}, and the trace was recorded with {info.draft_length}: choose at most "
                "that, or record longer drafts."
            )

    def kept(self, rule: Rule, length: int | None = None) -> np.ndarray:
        """Whether the rule keeps each position, as if all before it had been kept: bool [N]. Of a rule that judges
        positions together, bool [T,J] of windows of ``length`` drafted tokens, and the bonus if it judges that."""
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
        there = self.paths.windows >= 0
        if rule.judges_together:
            each = [self.kept(rule, int(length)) for length in lengths]
            runs = np.stack([runs_of(kept & there[:, : kept.shape[1]]) for kept in each], 1)
            return walk(self.paths, runs, lengths, lengths + rule.bonus_is_judged)
        kept = np.append(self.kept(rule), False)
        runs = np.repeat(runs_of(kept[self.paths.windows] & there)[:, None], len(lengths), 1)
        return walk(self.paths, runs, lengths)

    def _predictions(self, configs: Sequence[DecodingConfig], done: ReplayedRounds) -> list[Prediction]:
        """Of settings of one rule with draft lengths of their own."""
        tokens = np.repeat(self.paths.tokens[:, None].astype(float), len(configs), 1)
        accepted = estimates(done.accepted, done.drafted, is_share=True)
        per_pass, passes = estimates(tokens, done.rounds), estimates(done.rounds, np.ones_like(tokens))
        costs = self.trace.info.costs
        seconds = None if costs is None else done.rounds * np.array([round_ms(costs, config) for config in configs])
        best, near = 0, np.zeros(len(configs), bool)
        if seconds is not None:
            best = int(seconds.sum(0).argmin())
            near = _reaches_one(tokens, seconds, best)
        speeds = [None] * len(configs) if seconds is None else estimates(1000 * tokens, seconds)
        ups = [None] * len(configs)
        if costs is not None and seconds is not None:
            ups = estimates(costs.target_alone * tokens, seconds)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = done.kept_at / done.reached_at
        return [
            Prediction(
                config, accepted[i], per_pass[i], passes[i], speeds[i], ups[i],
                tuple(float(v) for v in at[i, : length_of(config)] if np.isfinite(v)),
                costs is not None and i == best, bool(near[i]),
                np.stack([tokens[:, i], done.rounds[:, i], done.drafted[:, i], done.accepted[:, i]], 1),
            )
            for i, config in enumerate(configs)
        ]  # fmt: skip


def round_ms(costs: Costs, config: DecodingConfig) -> float:
    """Milliseconds of a round: between the measured draft lengths on a line, with one pass of the draft more for a rule
    that judges its bonus, and with what the rule's arithmetic takes at the longest length."""
    lengths = sorted(costs.rounds)
    strict = float(np.interp(length_of(config), lengths, [costs.rounds[length] for length in lengths]))
    rule = config.acceptance
    return strict + rule.bonus_is_judged * costs.draft_pass + costs.rules.get(rule.kind, 0.0)


def estimates(above: np.ndarray, below: np.ndarray, *, is_share: bool = False) -> list[Estimate]:
    """Ratios of sums over prompts. [P,L] each → one for each of L"""
    known = np.where(below.sum(0)[:, None] > 0, below.T, 1.0)  # answers of one token draft nothing
    low, high = ratio_ends(np.stack([above.T, known], -1), is_share=is_share)
    value = above.sum(0) / known.sum(1)
    return [
        Estimate(float(v), *((float(a), float(b)) if np.isfinite(a) and np.isfinite(b) else (None, None)))
        for v, a, b in zip(value, low, high, strict=True)
    ]


def _reaches_one(tokens: np.ndarray, seconds: np.ndarray, best: int) -> np.ndarray:
    """Which draft lengths' speeds cannot be told from the fastest one's, paired by prompt. [P,L] each → bool [L]"""
    fastest = np.stack([tokens[:, best], seconds[:, best]], -1)
    both = [np.concatenate([np.stack([tokens[:, i], own], -1), fastest], -1) for i, own in enumerate(seconds.T)]
    low, high = quotient_ends(np.stack(both))
    near = (low <= 1) & (high >= 1)
    near[best] = True
    return near


def length_of(config: DecodingConfig) -> int:
    assert config.topology is not None
    return config.topology.length


def _named(sampling: object) -> str:
    return str(sampling).replace("=", " ").replace(" top", ", top").replace(" min", ", min")
