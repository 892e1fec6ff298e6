"""What pages read of a calibration, and what they begin with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboard.playground.playground_page import examples_of
from dashboard.ui.fields import UNCALIBRATED, pair_defaults
from fsd_core.errors import ModelUnavailable, NotCalibratable, NotEnough, UnfitTask
from fsd_core.models.model_pairs import USUAL_PROMPTS, calibration_of
from fsd_core.testing import save_toy_pair
from fsd_core.training import counting

REGIONS = {0.01: "free", 0.05: "free", 0.1: "free", 0.2: "open", 0.3: "traded", 0.35: "traded", 0.4: "ruined"}


def rows(length: int) -> list[dict[str, Any]]:
    return [
        {"acceptance": "fsd-reducible", "threshold": threshold, "draft_length": length, "region": region}
        for threshold, region in REGIONS.items()
    ]


def written(folder: Path, pair: str | None = None, **changed: Any) -> str:
    """A local pair that was calibrated; its name."""
    save_toy_pair(folder)
    exact = {"acceptance": "speculative", "draft_length": 4, "region": "free"}
    free = rows(12)[1] | {"speedup": 1.5}
    greedy = {"exact": exact, "free": free, "example": "arithmetic-0003", "rows": [exact, *rows(6), *rows(12)]}
    told = ({"pair": pair} if pair else {}) | {
        "task": "arithmetic",
        "prompts": 600,
        "samplings": {"greedy": greedy | changed},
    }
    (folder / "calibration.json").write_text(json.dumps(told))
    return f"path:{folder}"


def test_the_telling_thresholds_are_the_best_and_the_ends_of_each_region(tmp_path: Path) -> None:
    told = calibration_of(written(tmp_path))
    assert told is not None
    assert told.thresholds == (0.01, 0.05, 0.1, 0.2, 0.3, 0.35, 0.4)
    assert (told.threshold, told.draft_length, told.exact_length, told.speedup) == (0.05, 12, 4, 1.5)
    assert (told.free_until, told.ruinous, told.example) == (0.1, 0.4, "arithmetic-0003")
    assert told.sentence() == (
        "Measured on 600 prompts of arithmetic, greedily: up to js ≤ 0.1 FSD solves as many as SD within 2 points, and "
        "from js ≤ 0.4 it loses 15 points or more."
    )


def test_where_nothing_is_free_or_measured_the_usual_values_stand(tmp_path: Path) -> None:
    assert calibration_of(written(tmp_path, free={})) is None
    assert calibration_of("smollm2-135m") is None
    assert calibration_of(written(tmp_path / "mine", pair="path:elsewhere")) is not None  # the folder was moved
    assert calibration_of(written(tmp_path / "copy", pair="bundled")) is None  # whatever is in it by now
    usual = pair_defaults("smollm2-135m")
    assert usual.sentence == UNCALIBRATED
    assert (usual.threshold, usual.limit, usual.example) == (0.1, 50, None)


@pytest.mark.parametrize("text", ["", "[]", '{"samplings": {}}'])
def test_a_damaged_calibration_is_told(tmp_path: Path, text: str) -> None:
    pair = written(tmp_path)
    (tmp_path / "calibration.json").write_text(text)
    with pytest.raises(ModelUnavailable, match="cannot be read: delete it"):
        calibration_of(pair)


def test_the_shipped_pair_begins_with_what_was_measured_of_it() -> None:
    told = calibration_of("bundled")
    assert told is not None
    assert told.speedup >= 1.4
    assert 0 < told.threshold <= told.free_until < (told.ruinous or 1)
    begun = pair_defaults("bundled")
    assert (begun.threshold, begun.exact_length) == (told.threshold, told.exact_length)
    assert begun.limit == USUAL_PROMPTS
    examples = examples_of("bundled")
    assert len(examples) == len({prompt for _, prompt in examples}) == 8
    assert examples[0][1] == f"Question: {examples[0][0]}\nAnswer:"


def test_a_pair_that_knows_only_problems_is_asked_problems():
    assert all(prompt.startswith("Question: ") for _, prompt in examples_of("bundled-linear"))
    assert not any(prompt.startswith("Question: ") for _, prompt in examples_of("smollm2-135m"))


def test_150_prompts_without_a_loss_decide_within_two_points() -> None:
    assert 0.98**USUAL_PROMPTS < 0.05 < 0.98 ** (USUAL_PROMPTS - 3)


def test_a_pair_without_a_folder_or_answers_is_not_calibrated(tmp_path: Path) -> None:
    with pytest.raises(NotCalibratable, match="bundled or path:FOLDER"):
        counting.sweep_thresholds("smollm2-135m")
    save_toy_pair(tmp_path)
    with pytest.raises(NotEnough, match="100"):
        counting.sweep_thresholds(limit=3)
    with pytest.raises(UnfitTask, match="has no answers"):
        counting.sweep_thresholds(f"path:{tmp_path}")
