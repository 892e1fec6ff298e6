"""What a calibration is asked: which of many settings is the fastest that keeps a promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fsd_core.config.baselines import exact_beside
from fsd_core.config.building import Named, in_python
from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.options import METHOD_OPTIONS, by_name
from fsd_core.config.run_config import RunConfig, SettingConfig, SweepConfig
from fsd_core.config.sweeps import methods
from fsd_core.errors import InvalidSetting
from fsd_core.rules import RULES, Autoregressive

Goal = Literal["accuracy", "acceptance", "speed"]
Length = Annotated[int, Field(ge=1, le=32)]
GOALS: tuple[Goal, ...] = ("accuracy", "acceptance", "speed")
SIGNIFICANCE_LEVEL = 0.05
"""the chance, at most, of naming a setting that does not keep the promise"""
FINALISTS = 3
"""so many settings at most are tried on fresh prompts; the chance of an error is shared among them"""
MOST_FRESH_PROMPTS = 600
"""that are used where nobody says how many"""
DRAFT_LENGTHS = (4, 8, 16)
"""draft lengths to measure where nobody names any and replay cannot tell"""
REPLAYED = tuple(range(1, 17))
"""draft lengths that replay proposes from, where nobody names any"""
GRANTED = "more_minutes"
"""the one field of a stored calibration that may change"""
FEWEST_CHOOSING = 8
"""prompts of the first rung, and of each turn with fresh prompts"""


class CalibrationConfig(SweepConfig):
    """The settings to choose from (``decodings``), on prompts of one task in an order that the seed draws.

    Of the ``limit`` prompts the first ``choosing`` serve to choose finalists, the others to try these.
    """

    goal: Goal = "accuracy"
    margin: float = Field(default=2.0, gt=0, le=20)
    """points of accuracy that the setting may lose against the target alone, where that is the goal"""
    acceptance: float = Field(default=0.9, gt=0, lt=1)
    """least mean acceptance rate of an answer, where that is the goal"""
    minutes: float = Field(default=10.0, gt=0, le=10_080)
    """of decoding; what is begun is finished"""
    more_minutes: float = Field(default=0.0, ge=0, le=10_080, exclude_if=lambda minutes: not minutes)
    """granted after these had ended. They go into trying alone, so that what was seen on fresh prompts has no part in
    which finalists there are"""
    choosing: int = Field(default=64, ge=FEWEST_CHOOSING)
    lengths: tuple[Length, ...] = ()
    """draft lengths of which replay proposes one for each setting before anything is measured, so that those of
    ``decodings`` do not count; without any, the settings are measured as they are"""

    @model_validator(mode="after")
    def _enough(self):
        if len(self.seeds) != 1:
            raise InvalidSetting("A calibration has one seed, which draws the order of the prompts.")
        if self.batch != 1:
            raise InvalidSetting("A calibration times each text alone: choose a batch of 1.")
        if not any(one.acceptance.kind == "speculative" for one in self.decodings):
            raise InvalidSetting("A calibration needs exact SD among its settings, to fall back on.")
        if any(one.acceptance.baseline for one in self.decodings):
            raise InvalidSetting("A calibration chooses among settings that draft: leave the baselines out.")
        if self.limit < self.fewest:
            raise InvalidSetting(f"{self.needs}, and there are {self.limit}: take more prompts, or let fewer choose.")
        return self

    @property
    def target(self) -> DecodingConfig:
        """The target alone, sampled as the settings are: what they are held against."""
        first = self.decodings[0]
        return DecodingConfig(acceptance=Autoregressive(), sampling=first.sampling, max_new_tokens=first.max_new_tokens)

    @property
    def all_minutes(self) -> float:
        """Of decoding that may be spent, with those that were granted later."""
        return self.minutes + self.more_minutes

    def asks_as(self, other: CalibrationConfig) -> bool:
        """Whether another asks the same but for the minutes."""
        timeless = {"minutes": 1.0, GRANTED: 0.0}
        return self.model_copy(update=timeless) == other.model_copy(update=timeless)

    @property
    def fewest_fresh(self) -> int:
        """Fresh prompts without which the goal cannot be reached even by a setting that loses none."""
        if self.goal != "accuracy":
            return 2 * FEWEST_CHOOSING
        # Each prompt without a loss turns a capital of 1 into 1 / (1 − margin) at most; one finalist needs 1 / LEVEL.
        share, prompts, capital = self.margin / 100, 0, 1.0
        while capital < 1 / SIGNIFICANCE_LEVEL:
            prompts, capital = prompts + 1, capital * (1 + share / (1 - share))
        return prompts

    @property
    def fewest(self) -> int:
        """Prompts in all without which the goal cannot be reached."""
        return self.choosing + self.fewest_fresh

    @property
    def needs(self) -> str:
        """How many prompts there must be, as a sentence begins."""
        what = f"within {self.margin:g} points" if self.goal == "accuracy" else f"the goal '{self.goal}'"
        return (
            f"To be sure of {what} takes at least {self.fewest_fresh} prompts beside the {self.choosing} that choose, "
            f"{self.fewest} in all"
        )

    def runs(self) -> list[RunConfig]:
        """None to begin with: what is run follows from what was seen."""
        return []

    def turn(self, decodings: Sequence[DecodingConfig], start: int, end: int) -> list[RunConfig]:
        """The runs of some settings on the prompts from ``start`` to before ``end``, in the order that is drawn."""
        (seed,) = self.seeds
        prompts = {"task": self.task, "first": start, "limit": end - start, "shuffled": True, "seed": seed}
        return [
            RunConfig(
                setting=SettingConfig(pair=self.pair, decoding=decoding),
                dtype=self.dtype,
                device=self.device,
                **prompts,
            )
            for decoding in decodings
        ]


def candidates(chosen: Mapping[str, Any], named: Named = in_python) -> list[DecodingConfig]:
    """The settings that options choose from, as :func:`methods` makes them, with exact ones beside them. Without rules:
    every rule for single drafts that has a knob and forgives anything at the temperature.

    Raises ``InvalidSetting`` as ``methods`` does, and for a rule that drafts nothing.
    """
    given = by_name(chosen)
    if not given.get("acceptance"):
        greedy = not given.get("temperature", METHOD_OPTIONS["temperature"].default)
        given["acceptance"] = [kind for kind, rule in RULES.items() if rule.knob and not (greedy and rule.greedy_note)]
    kinds = [given["acceptance"]] if isinstance(given["acceptance"], str) else given["acceptance"]
    if alone := next((kind for kind in kinds if kind in RULES and RULES[kind].baseline), None):
        raise InvalidSetting(
            f"The rule '{alone}' drafts nothing, so a calibration cannot choose it: leave it out. The target alone is "
            "always measured."
        )
    return exact_beside(methods(given, named))


def read_sweep(value: Mapping[str, Any]) -> SweepConfig:
    """A stored sweep or calibration. Raises ``ValidationError``."""
    return (CalibrationConfig if "goal" in value else SweepConfig).model_validate(value)
