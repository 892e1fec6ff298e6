"""Predicted against measured: which settings stand on one line, and that both sides are drawn."""

from __future__ import annotations

from fsd_core.config import ChainTopology, DecodingConfig, FuzzyReducible, Speculative
from fsd_core.plots import curves
from fsd_core.statistics.intervals import Estimate


def point(threshold: float, length: int, passes: float) -> curves.Point:
    decoding = DecodingConfig(acceptance=FuzzyReducible(threshold=threshold), topology=ChainTopology(length=length))
    return decoding, Estimate(passes, passes - 1, passes + 1), Estimate(passes + 0.5)


def test_settings_with_a_draft_length_each_are_one_line_over_the_knob() -> None:
    exact = DecodingConfig(acceptance=Speculative()), Estimate(9.0), Estimate(9.0)
    (rule,) = curves.by_rule([point(0.3, 16, 5.0), exact, point(0.1, 8, 7.0)])
    assert list(rule.curves) == [None]
    assert [(one.knob, one.length) for one in rule.curves[None]] == [(0.1, 8), (0.3, 16)]
    band, line, points = curves.draw_predicted([rule]).data
    assert list(line.y) == [7.0, 5.0]
    assert list(points.y) == [7.5, 5.5]
    assert (max(band.y), min(band.y)) == (8.0, 4.0)
    assert "predicted: 7 (6 to 8) target passes per answer" in points.hovertext[0]


def test_several_draft_lengths_of_a_knob_are_a_line_each() -> None:
    (rule,) = curves.by_rule([point(0.1, 8, 7.0), point(0.1, 4, 8.0), point(0.3, 8, 5.0)])
    assert {length: len(held) for length, held in rule.curves.items()} == {4: 1, 8: 2}
    drawn = curves.draw_predicted([rule])
    assert [trace.name for trace in drawn.data if trace.showlegend] == [
        "Predicted, γ 4", "Measured, γ 4", "Predicted, γ 8", "Measured, γ 8"
    ]  # fmt: skip


def test_without_predictions_it_says_where_they_come_from() -> None:
    assert "calibration" in curves.draw_predicted(curves.info([])).layout.annotations[0].text
