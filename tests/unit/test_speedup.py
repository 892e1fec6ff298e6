"""The predicted speed-up, and what is told of a run's bounds."""

from __future__ import annotations

import pytest

from dashboard.tables.run_record import gaps_html, of_run, rates
from fsd_plugins.theory import page as theory
from tests.tools.run_views import decoding, metrics, run_view

BOUNDS = {
    "temperature": 1.0,
    "positions": 48,
    "seed": 0,
    "optima": {
        sampling: [{"drafts": n, "rate": 0.5 + 0.05 * n, "low": 0.4, "high": 0.99} for n in range(1, 9)]
        for sampling in ("with_replacement", "without_replacement", "greedy")
    },
    "verifiers": {
        "rrs": [{"drafts": n, "rate": 0.5 + 0.04 * n, "low": 0.4, "high": 0.9} for n in range(1, 9)],
        "spec-hub": [{"drafts": 2, "rate": 0.6, "low": 0.5, "high": 0.7}],
    },
}


@pytest.mark.parametrize(
    ("acceptance", "length", "cost", "expected"),
    [(0.0, 5, 0.0, 1.0), (1.0, 5, 0.0, 6.0), (1.0, 4, 0.25, 2.5), (0.5, 1, 0.5, 1.0), (0.8, 2, 0.1, 2.44 / 1.2)],
)
def test_the_prediction_is_tokens_a_round_over_its_cost(acceptance, length, cost, expected):
    assert theory.predicted(acceptance, length, cost) == pytest.approx(expected)


def test_a_run_is_laid_over_the_curve_of_its_draft_length():
    """Speculative decoding at acceptance 0.8: 600 rounds of γ 5 that drafted 3,000 tokens in one second."""
    alone = run_view(decoding("autoregressive"), metrics(speed=100))
    fast = run_view(decoding("speculative"), metrics(speed=250, acceptance=0.8))
    (point,) = theory.measured_speedups([alone, fast])
    assert (point.length, point.speedup) == (5, 2.5)
    assert point.acceptance == pytest.approx(0.8)
    assert point.cost == pytest.approx(1.0 / 3000 * 100)
    drawn = theory.draw_speedup([point])
    curve, marks = drawn.data
    assert curve.y[48] == pytest.approx(theory.predicted(0.8, 5, point.cost))
    assert list(marks.y) == [2.5]
    assert "measured 2.50 ×" in marks.hovertext[0]


def test_without_the_target_alone_there_is_nothing_to_be_faster_than():
    fast = run_view(decoding("speculative"), metrics(speed=250, acceptance=0.8))
    other = run_view(decoding("autoregressive"), metrics(speed=100), task="gsm8k")
    assert theory.measured_speedups([other, fast]) == []
    assert "was measured beside the target alone" in theory.draw_speedup([]).layout.annotations[0].text


def test_gaps_stand_below_each_verifier():
    run = run_view(
        decoding("speculative"), metrics(acceptance=0.8) | {"bounds": [BOUNDS | {"temperature": 2.0}, BOUNDS]}
    )
    assert [found["temperature"] for found in of_run(run)] == [1.0, 2.0]
    optima, verifiers = rates(BOUNDS)
    assert optima["greedy"][7] == pytest.approx(0.9)
    assert verifiers["rrs"][1:] == ("with_replacement", {n: 0.5 + 0.04 * n for n in range(1, 9)})
    html = gaps_html(BOUNDS)
    assert "58.0<br><small>−2.0</small>" in html  # RRS with two drafts, where 60 % could be
    gone = BOUNDS | {"verifiers": BOUNDS["verifiers"] | {"of-a-package-that-is-gone": BOUNDS["verifiers"]["rrs"]}}
    assert gaps_html(gone) == html
    assert rates(gone) == (optima, verifiers)
    assert html.count("<td") == 5 * 9
