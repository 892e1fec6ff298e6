"""Which settings a calibration measures of those that replay has told of."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fsd_core.calibration.running import _worth_measuring
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.replays.prediction import Prediction
from fsd_core.statistics.intervals import Estimate

CHOSEN = candidates({"acceptance": ["typical", "cactus", "fsd", "top-n-delta"], "temperature": 1.0, "draft_length": 4})
FIRST = {one.acceptance.kind: one for one in reversed(CHOSEN)}
"""one setting of each rule"""


def told(one: DecodingConfig, speed: float, kept: int) -> Prediction:
    unknown = Estimate(math.nan, None, None)
    counts = np.array([[40.0, 16.0, 64.0, float(kept)]] * 8)
    return Prediction(
        one,
        Estimate(kept / 64, None, None),
        unknown,
        unknown,
        unknown,
        Estimate(speed, None, None),
        (),
        True,
        True,
        counts,
    )


@pytest.mark.parametrize("goal", ["accuracy", "acceptance"])
def test_what_changes_the_text_is_left_out_only_where_it_is_clearly_slower(goal: str) -> None:
    """SmolLM2 at temperature 1: typical acceptance was predicted at 0.92 of exact decoding's speed and had 1.17."""
    config = CalibrationConfig.model_validate({"decodings": tuple(CHOSEN), "lengths": (4,), "goal": goal, "limit": 600})
    predictions = [
        told(FIRST["speculative"], 1.13, 24), told(FIRST["block"], 1.20, 26), told(FIRST["typical"], 1.10, 28),
        told(FIRST["top-n-delta"], 1.40, 30), told(FIRST["cactus"], 1.12, 24), told(FIRST["fsd"], 0.85, 12),
    ]  # fmt: skip
    kept = [one.config.acceptance.kind for one in _worth_measuring(config, predictions)]
    clearly = ["speculative", "block", "typical", "top-n-delta"]
    assert kept == (clearly if goal == "accuracy" else [*clearly, "cactus", "fsd"])
