"""The measurement beside the bundled pair's card: what it calls free, and a whole run at toy size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsd_core.training import counting
from fsd_core.training.counting import fastest, with_leniency_verdicts

N = 400


def row(rule: str, speed: float, threshold: float | None = None) -> dict:
    return {"acceptance": rule, "tokens_per_second": speed} | ({} if threshold is None else {"threshold": threshold})


def solving(count: int) -> dict[int, bool]:
    return {i: i < count for i in range(N)}


def test_a_setting_is_free_traded_or_ruined_beside_the_fastest_exact_one():
    rows = [
        row("autoregressive", 100), row("speculative", 200), row("speculative", 250), row("fsd-reducible", 300, 0.05),
        row("fsd-reducible", 375, 0.1), row("fsd-reducible", 400, 0.3), row("fsd-reducible", 425, 0.6),
    ]  # fmt: skip
    told = with_leniency_verdicts(rows, [solving(count) for count in (390, 390, 390, 390, 388, 372, 300)])
    assert [r["region"] for r in told] == ["free", "free", "free", "free", "free", "traded", "ruined"]
    assert [r["speedup"] for r in told] == pytest.approx([0.4, 0.8, 1, 1.2, 1.5, 1.6, 1.7])
    assert told[5]["difference"] == pytest.approx(-18 / N)
    assert told[5]["low"] < told[5]["difference"] < told[5]["high"] < 0
    assert fastest(told, "speculative")["tokens_per_second"] == 250
    assert fastest(told, "fsd-reducible", "free")["threshold"] == 0.1
    assert fastest(told, "fsd-official") == {}


def test_too_few_problems_leave_a_small_loss_open():
    """Three problems lost and two won are no loss of four hundred; of forty nobody can tell."""
    for problems, region in ((400, "free"), (40, "open")):
        ours, theirs = {i: i >= 3 for i in range(problems)}, {i: i not in (5, 6) for i in range(problems)}
        told = with_leniency_verdicts([row("speculative", 1), row("fsd-reducible", 2, 0.2)], [theirs, ours])
        assert told[1]["region"] == region


@pytest.mark.wide
def test_a_calibration_holds_every_setting_and_the_best(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(counting, "EXACT_LENGTHS", (2, 4))
    monkeypatch.setattr(counting, "LENIENT_LENGTHS", (4,))
    monkeypatch.setattr(counting, "THRESHOLDS", (0.05, 0.6))
    rows: list[dict] = []
    file = counting.sweep_thresholds(limit=2, timed=1, file=tmp_path / "calibration.json", report=rows.append)
    told = json.loads(file.read_text())
    assert (told["pair"], told["task"], told["prompts"]) == ("bundled", "arithmetic", 2)
    assert [*told["samplings"]] == [*counting.SWEPT_SAMPLINGS]
    assert [r for part in told["samplings"].values() for r in part["rows"]] == rows
    for name, part in told["samplings"].items():
        assert [r["acceptance"] for r in part["rows"]] == ["autoregressive"] + 2 * ["speculative"] + 2 * [
            "fsd-reducible"
        ]
        assert all(counting.SWEPT_SAMPLINGS[name].items() <= r.items() for r in part["rows"])
        assert part["exact"] in part["rows"]
        assert part["exact"]["speedup"] == 1
        assert part["free"] == {} or part["free"] in part["rows"]
        assert all(0 <= r["accuracy"] <= 1 and r["mean_tokens"] > 0 for r in part["rows"])
