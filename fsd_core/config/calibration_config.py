"""Configuration of a calibration, which searches many settings for the fastest one that meets a goal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.options import METHOD_OPTIONS, Named, by_name, in_python, methods
from fsd_core.config.run_config import RunConfig, SweepConfig, with_exact_baselines
from fsd_core.errors import NotCalibratable, NotEnough
from fsd_core.rules import RULES, Autoregressive, Served, Speculative
from fsd_core.statistics import paired
from fsd_core.texts import count

Goal = Literal["accuracy", "acceptance", "speed"]
Length = Annotated[int, Field(ge=1, le=32)]
SIGNIFICANCE_LEVEL = paired.LEVEL
"""largest chance of naming a setting that misses the goal"""
FINALISTS = 3
"""largest number of settings tested on fresh prompts; the chance of an error is shared among them"""
MOST_FRESH_PROMPTS = 600
"""default limit of fresh prompts"""
DRAFT_LENGTHS = (4, 8, 16)
"""default draft lengths to measure for settings that replay cannot predict"""
REPLAYED = tuple(range(1, 17))
"""default draft lengths that replay proposes from"""
GRANTED = "more_minutes"
"""the only field of a stored calibration that may change"""
MORE_THAN_ENOUGH = 10**9
"""prompts; enough for any margin"""
FEWEST_CHOOSING = 8
"""prompts of the first rung, and of each round with fresh prompts"""


class CalibrationConfig(SweepConfig):
    """The settings to choose from (``decodings``), on prompts of one task in an order drawn by the seed.

    The first ``choosing`` of the ``limit`` prompts select finalists. The others test them.
    """

    goal: Goal = "accuracy"
    margin: float = Field(default=2.0, gt=0, le=20)
    """accuracy points that the setting may lose against the target alone, if accuracy is the goal"""
    acceptance: float = Field(default=0.9, gt=0, lt=1)
    """least mean acceptance rate of an answer, if acceptance is the goal"""
    minutes: float = Field(default=10.0, gt=0, le=10_080)
    """decoding time; a started run is finished"""
    more_minutes: float = Field(default=0.0, ge=0, le=10_080, exclude_if=lambda minutes: not minutes)
    """Granted after ``minutes`` ran out. They are spent on tests only, so results on fresh prompts do not influence the
    choice of finalists."""
    choosing: int = Field(default=64, ge=FEWEST_CHOOSING)
    lengths: tuple[Length, ...] = ()
    """Draft lengths from which replay proposes one per setting before anything is measured. The lengths of
    ``decodings`` are then ignored. If empty, the settings are measured as given."""

    whole_groups: bool = Field(default=False, exclude_if=lambda whole: not whole)
    """Whether groups of prompts are drawn as wholes. Calibrations that began before this was known keep their order."""

    @model_validator(mode="after")
    def _enough(self):
        if len(self.seeds) != 1:
            raise NotCalibratable("A calibration has one seed, which draws the order of the prompts.")
        if self.batch != 1 or self.rates:
            raise NotCalibratable("A calibration times each text alone: choose a batch of 1.")
        if self.endpoint is not None:
            self._check_endpoint(self.endpoint)
        elif not any(decoding.acceptance.kind == "speculative" for decoding in self.decodings):
            raise NotCalibratable("A calibration needs exact SD among its settings, to fall back on.")
        elif any(decoding.acceptance.baseline for decoding in self.decodings):
            raise NotCalibratable("A calibration chooses among settings that draft: leave the baselines out.")
        if self.limit < self.choosing + self.least_fresh:
            raise NotEnough(f"{self.needs}, and there are {self.limit}: take more prompts, or let fewer choose.")
        return self

    def _check_endpoint(self, endpoint: Served) -> None:
        told = [one.acceptance for one in self.decodings if isinstance(one.acceptance, Served) and one.acceptance.rule]
        if len(told) < len(self.decodings) or any(served.engine_alone != endpoint for served in told):
            raise NotCalibratable("A calibration of an engine tells one engine, and nothing else, which rules to use.")
        if sum(served.is_exact for served in told) != 1 or self.lengths:
            raise NotCalibratable("A calibration of an engine holds its rules against its one strict setting.")

    @property
    def endpoint(self) -> Served | None:
        """The running engine whose knob is searched; ``None`` for our own loop."""
        first = self.decodings[0].acceptance
        return first.engine_alone if isinstance(first, Served) else None

    @property
    def target(self) -> DecodingConfig:
        """The target alone, sampled like the settings: their baseline.

        For an engine it is the strict setting, which has the target's distribution: an engine that drafts does not stop
        drafting.
        """
        if self.endpoint is not None:
            return next(decoding for decoding in self.decodings if decoding.acceptance.is_exact)
        return DecodingConfig(acceptance=Autoregressive(), **self.decodings[0].shared)

    @property
    def all_minutes(self) -> float:
        """Decoding time that may be spent, including minutes granted later."""
        return self.minutes + self.more_minutes

    def asks_as(self, other: CalibrationConfig) -> bool:
        """Return whether the other calibration differs in nothing but its minutes. One from before identities were
        recorded is known by its pair's name."""
        timeless = {"minutes": 1.0, GRANTED: 0.0} | ({} if self.identity else {"identity": ""})
        return self.model_copy(update=timeless) == other.model_copy(update=timeless)

    @property
    def least_fresh(self) -> int:
        """A number of fresh prompts below which nothing can reach the goal, whatever is staked."""
        if self.goal != "accuracy":
            return 2 * FEWEST_CHOOSING
        # Each prompt without a loss multiplies the capital by at most 1 / (1 − margin). One finalist needs 1 / LEVEL.
        return math.ceil(min(math.log(SIGNIFICANCE_LEVEL) / math.log1p(-self.margin / 100), MORE_THAN_ENOUGH))

    @property
    def accuracy_bound(self) -> float:
        """The mean of (1 + gain) / 2 over prompts, the gains -1, 0 and 1, that a setting within the margin exceeds."""
        return (1 - self.margin / 100) / 2

    @property
    def finalists(self) -> int:
        """The most settings that are tested on fresh prompts."""
        return max(1, min(FINALISTS, sum(not decoding.acceptance.is_exact for decoding in self.decodings)))

    @property
    def fewest_fresh(self) -> int:
        """Fewest fresh prompts, none of which depends on another, with which a setting that loses none reaches the goal
        by the stakes that are laid."""
        if self.goal != "accuracy":
            return self.least_fresh
        laid = paired.stakes_for(np.full(self.choosing, 0.5), self.accuracy_bound)
        return paired.fewest(0.5, self.accuracy_bound, laid, SIGNIFICANCE_LEVEL / self.finalists, MORE_THAN_ENOUGH)

    @property
    def fewest(self) -> int:
        """Fewest prompts in all with which the goal can be reached."""
        return self.choosing + self.fewest_fresh

    @property
    def needs(self) -> str:
        """The number of prompts needed, as the beginning of an error message."""
        goal = f"within {count(self.margin, 'point')}" if self.goal == "accuracy" else f"the goal '{self.goal}'"
        return (
            f"To be sure of {goal} takes at least {self.fewest_fresh} prompts beside the {self.choosing} that choose, "
            f"{self.fewest} in all"
        )

    def runs(self) -> list[RunConfig]:
        """Return no runs: a calibration derives its runs from earlier results."""
        return []

    def round_runs(
        self, decodings: Sequence[DecodingConfig], start: int, end: int, *, again: bool = False
    ) -> list[RunConfig]:
        """Return the runs of some settings on the prompts from ``start`` to before ``end``, in the seed's order.

        ``again``: for their times alone.
        """
        (seed,) = self.seeds
        prompts = {
            "task": self.task, "first": start, "limit": end - start, "shuffled": True, "seed": seed,
            "whole_groups": self.whole_groups,
        }  # fmt: skip
        return [
            RunConfig(setting=self.setting_of(decoding), dtype=self.dtype, device=self.device, again=again, **prompts)
            for decoding in decodings
        ]


def candidates(options: Mapping[str, Any], named: Named = in_python) -> list[DecodingConfig]:
    """Return the settings to choose from, built like :func:`methods` and preceded by exact ones.

    Without rules, take every single-draft rule that has a knob and is lenient at the given temperature. Raises
    ``InvalidSetting`` like ``methods``, and for a rule that drafts nothing.
    """
    given = by_name(options)
    if not given.get("acceptance"):
        greedy = not given.get("temperature", METHOD_OPTIONS["temperature"].default)
        given["acceptance"] = [kind for kind, rule in RULES.items() if rule.knob and not (greedy and rule.greedy_note)]
    kinds = [given["acceptance"]] if isinstance(given["acceptance"], str) else given["acceptance"]
    if single := next((kind for kind in kinds if kind in RULES and RULES[kind].baseline), None):
        raise NotCalibratable(
            f"The rule '{single}' drafts nothing, so a calibration cannot choose it: leave it out. The target alone is "
            "always measured."
        )
    return with_exact_baselines(methods(given, named))


def engine_candidates(served: Served, decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return the settings of an engine that is told the rules of some settings of our own loop, its strict one first.

    What they say of drafts does not count: that is the engine's affair.
    """
    rules = [Speculative(), *(decoding.acceptance for decoding in decodings if not decoding.acceptance.lossless)]
    return [
        DecodingConfig(acceptance=Served.checked(**dict(served.engine_alone) | {"rule": rule}), **decodings[0].shared)
        for rule in dict.fromkeys(rules)
    ]


def read_sweep(value: Mapping[str, Any]) -> SweepConfig:
    """Return a stored sweep or calibration. Raises ``ValidationError``."""
    return (CalibrationConfig if "goal" in value else SweepConfig).model_validate(value)
