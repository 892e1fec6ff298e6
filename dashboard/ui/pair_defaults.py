"""Defaults of the forms for a pair: values that its calibration chose, or the usual ones without a calibration."""

from __future__ import annotations

from typing import NamedTuple

from fsd_core.config import RULES
from fsd_core.config.options import METHOD_OPTIONS, OPTIONS
from fsd_core.models.calibrations import USUAL_PROMPTS, calibration_of
from fsd_core.models.model_pairs import MODEL_PAIRS

UNCALIBRATED = "Nothing has been measured of this pair yet: these are usual values."
OTHER_TASK = "Nothing has been measured of this pair on this task: these values are of another one."


class PairDefaults(NamedTuple):
    """The values that a form's fields have before anybody changes them."""

    thresholds: str
    """thresholds of an experiment"""
    limit: int
    """prompts of an experiment"""
    lengths: str
    """draft lengths of an experiment: the best one of exact speculative decoding, and the best lenient one"""
    exact_length: int
    """draft length of the Playground's settings: that of exact speculative decoding, so that they differ in the rule
    alone"""
    threshold: float
    """threshold of the Playground's lenient setting"""
    example: str | None
    """id of the prompt that the Playground shows first"""
    measured_on: str | None
    """name of the task that they were measured on, if any"""
    sentence: str
    """the source of the values"""

    def hint(self, task: str | None) -> str:
        """Return the source of the values for a form of this task. What was measured on another one says nothing."""
        return self.sentence if self.measured_on in (None, task) else OTHER_TASK


def pair_defaults(pair: str) -> PairDefaults:
    """Return the defaults of the forms for a pair. Raises what ``calibration_of`` raises."""
    calibration = calibration_of(pair)
    if calibration is None:
        knob = RULES[METHOD_OPTIONS["acceptance"].default].knob
        assert knob is not None
        length = METHOD_OPTIONS["draft_length"].default
        return PairDefaults(
            thresholds=_listed(knob.grid), limit=OPTIONS["limit"].default, lengths=f"{length}", exact_length=length,
            threshold=METHOD_OPTIONS["threshold"].default, example=None, measured_on=None, sentence=UNCALIBRATED,
        )  # fmt: skip
    return PairDefaults(
        thresholds=_listed(calibration.thresholds), limit=USUAL_PROMPTS,
        lengths=_listed((calibration.exact_length, calibration.draft_length)), exact_length=calibration.exact_length,
        threshold=calibration.threshold, example=calibration.example, measured_on=calibration.task,
        sentence=calibration.sentence(),
    )  # fmt: skip


def is_default(field: str, value: object) -> bool:
    """Return whether a field, named as in ``PairDefaults``, still has the default of some pair."""
    return any(value == getattr(pair_defaults(pair), field) for pair in MODEL_PAIRS)


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(dict.fromkeys(f"{value:g}" for value in values))
