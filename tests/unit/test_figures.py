"""What the figures show, apart from how plotly draws it, and that what is drawn is safe and complete."""

from __future__ import annotations

import json

import pytest

from fsd_core.analysis.cells import families, run_names, speedup
from fsd_core.plots import acceptance, style, trade_offs
from fsd_core.plots.trade_offs import comparison_figures
from tests.tools.run_views import decoding, metrics, prompts, run_view

TARGET = run_view(decoding("autoregressive"), metrics(47, speed=100))
DRAFT = run_view(decoding("draft-only"), metrics(20, speed=400))
SD = run_view(decoding("speculative"), metrics(47, speed=180, acceptance=0.7))
JS = [
    run_view(decoding("fsd-reducible", divergence="js", threshold=t), metrics(correct, speed=speed, acceptance=rate))
    for t, correct, speed, rate in ((0.3, 38, 260, 0.93), (0.05, 46, 210, 0.8), (0.1, 44, 205, 0.85))
]
RUNS = [TARGET, DRAFT, SD, *JS]
PROMPTS = prompts(*RUNS)
BASIC_TRACES = {"scatter", "bar"}


def by_name(info: trade_offs.TradeoffInfo) -> dict[str, trade_offs.TradeoffGroup]:
    return {group.name: group for group in info.groups}


def test_runs_that_differ_in_threshold_and_seed_alone_are_one_family_sorted_by_threshold():
    again = run_view(JS[1].decoding, metrics(acceptance=0.8), seed=1)
    found = families([*JS, again, SD])
    assert [family.name for family in found] == ["FSD reducible · js · γ 5", "SD · γ 5"]
    assert [(run.decoding.threshold, run.seed) for run in found[0].runs] == [(0.05, 0), (0.05, 1), (0.1, 0), (0.3, 0)]
    assert found[0].colour != found[1].colour


def test_a_family_has_the_marks_of_its_rule():
    found = families(RUNS)
    rules = [family.runs[0].decoding.acceptance for family in found]
    assert [family.symbol for family in found] == [rule.symbol for rule in rules]
    assert all(family.colour == rule.colour for family, rule in zip(found, rules, strict=True) if rule.colour)


def test_families_with_one_label_are_told_apart():
    method = decoding("speculative")
    nucleus = method.model_copy(update={"sampling": method.sampling.model_copy(update={"top_p": 0.9})})
    names = [family.name for family in families([SD, run_view(nucleus, metrics(acceptance=0.7))])]
    assert len(set(names)) == 2


def test_run_names_are_as_long_as_they_must_be_and_never_equal():
    assert run_names([SD])[SD.id] == SD.label
    seeds = [run_view(SD.decoding, metrics(), seed=seed) for seed in (0, 1)]
    assert [run_names(seeds)[run.id] for run in seeds] == [f"{SD.label} · seed 0", f"{SD.label} · seed 1"]
    twice = [run_view(SD.decoding, metrics(), id=letter * 32) for letter in "ab"]
    assert len(set(run_names(twice).values())) == 2


def test_tradeoff_takes_percent_and_marks_the_pareto_front():
    info = trade_offs.tradeoff_info(RUNS)
    point = by_name(info)["Target alone"].points[0]
    assert (point.speed, point.quality) == (100, 94)
    assert point.quality_low < 94 < point.quality_high <= 100
    # SD is as accurate as the target and faster; T = 0.1 is slower and less accurate than T = 0.05.
    assert [p.name for p in info.front] == [SD.label, JS[1].label, JS[0].label, "Draft alone"]
    assert not point.on_front


def test_where_nothing_is_scored_likeness_to_the_target_stands_for_accuracy():
    unscored = {"accuracy": None, "accuracy_low": None, "accuracy_high": None}
    likeness = {"same_text": 0.8, "same_text_low": 0.7, "same_text_high": 0.9}
    loose = run_view(decoding("fsd", threshold=0.3), metrics(1, speed=200) | unscored | likeness)
    alone = run_view(decoding("autoregressive"), metrics(1, speed=100) | unscored)
    drafted = run_view(decoding("draft-only"), metrics(1, speed=900) | unscored)
    info = trade_offs.tradeoff_info([alone, loose, drafted])
    points = {point.run_id: point for group in info.groups for point in group.points}
    assert (points[alone.id].quality, points[loose.id].quality, points[loose.id].quality_low) == (100, 80, 70)
    assert info.left_out == 1
    assert trade_offs.draw_tradeoff(info).layout.yaxis.title.text == "Same text as the greedy target (% of prompts)"
    assert trade_offs.tradeoff_info([alone, loose, TARGET]).measure is trade_offs.ACCURACY_AXIS


def test_tradeoff_leaves_out_what_was_not_scored_and_counts_it():
    unscored = run_view(decoding("speculative"), metrics() | {"accuracy": None})
    info = trade_offs.tradeoff_info([TARGET, unscored, run_view(decoding("fsd"))])
    assert info.left_out == 2
    assert list(by_name(info)) == ["Target alone"]


def test_threshold_lines_have_references_without_a_threshold_and_no_baselines():
    info = trade_offs.threshold_info(RUNS, trade_offs.ACCEPTANCE_RATE)
    (line,) = info.lines
    assert [(v.threshold, v.value) for v in line.values] == [(0.05, 80), (0.1, 85), (0.3, 93)]
    assert all(v.low < v.value < v.high for v in line.values)
    assert [reference.name for reference in info.references] == ["SD · γ 5"]


def test_a_threshold_that_is_off_or_infinite_has_no_place_on_the_axis():
    extremes = [
        run_view(decoding("fsd", divergence="kl", threshold=t), metrics(acceptance=rate))
        for t, rate in ((None, 0.7), (0.5, 0.8), (float("inf"), 1.0))
    ]
    info = trade_offs.threshold_info(extremes, trade_offs.ACCEPTANCE_LENGTH)
    assert [line.name for line in info.lines] == ["FSD · kl · γ 5"]
    assert [line.name for line in info.references] == ["FSD · kl · γ 5, T off", "FSD · kl · γ 5, T = ∞"]
    assert trade_offs.draw_threshold(info).layout.xaxis.range == (0.45, 0.55)


def test_every_seed_is_a_point_and_the_line_passes_through_their_mean():
    runs = [run_view(JS[0].decoding, metrics(acceptance=rate), seed=seed) for seed, rate in ((0, 0.8), (1, 0.9))]
    (line,) = trade_offs.threshold_info(runs, trade_offs.ACCEPTANCE_RATE).lines
    assert len(line.values) == 2
    assert line.means == [(0.3, pytest.approx(85))]


def test_speedup_is_a_ratio_over_the_prompts_that_both_have():
    counts = prompts(SD, TARGET)
    noisy = {i: one._replace(seconds=one.seconds * (1.3 if i % 7 else 0.8)) for i, one in counts[SD.id].items()}
    ratio = speedup(SD, TARGET, counts | {SD.id: noisy})
    assert ratio is not None
    assert 1.3 < ratio.low < ratio.value < ratio.high < 1.6  # type: ignore[operator]
    assert speedup(TARGET, TARGET, counts) == (1, None, None)
    assert speedup(SD, TARGET, {}) is None


def test_throughput_without_a_measured_baseline_is_empty():
    assert trade_offs.throughput_info(RUNS, run_view(decoding("fsd")), PROMPTS).bars == []
    assert trade_offs.throughput_info(RUNS, None, PROMPTS).bars == []
    assert [bar.run_id for bar in trade_offs.throughput_info(RUNS, TARGET, PROMPTS).bars] == [run.id for run in RUNS]


def test_the_mark_at_one_is_at_the_bars_alone_and_the_labels_name_the_ratios():
    drawn = trade_offs.draw_throughput(trade_offs.throughput_info(RUNS, TARGET, PROMPTS))
    bar, labels = drawn.data
    marks = [(shape.x0, shape.x1, shape.y0, shape.y1) for shape in drawn.layout.shapes]
    assert marks == [(1, 1, i + trade_offs.MARK_PLACE[0], i + trade_offs.MARK_PLACE[1]) for i in range(len(RUNS))]
    assert trade_offs.MARK_PLACE[0] < bar.offset < bar.offset + bar.width < trade_offs.MARK_PLACE[1]
    told = [text.split("<br>") for text in labels.text[:2]]  # on two lines, since a name is too long for one
    assert told == [["Target alone", "100 tokens/s · baseline"], ["Draft alone", "400 tokens/s · 4.00×"]]


def test_positions_are_of_runs_that_draft():
    info = acceptance.positions_info(RUNS)
    assert [curve.name for curve in info.curves] == [run.label for run in (SD, JS[1], JS[2], JS[0])]
    assert info.curves[0].unconditional[1] == pytest.approx(0.49)


def test_answers_are_relative_to_the_baseline_and_a_draft_alone_asks_no_target():
    info = acceptance.answers_info(RUNS, TARGET, PROMPTS)
    assert info.baseline == "Target alone"
    assert [row.name for row in info.rows] == ["Draft alone", SD.label, *(run.label for run in JS)]
    assert [set(row.ratios) for row in info.rows[:2]] == [{"mean_tokens"}, {"mean_tokens", "target_passes"}]
    assert info.rows[1].ratios["mean_tokens"] == (1, None, None)  # no answer differs
    passes = info.rows[1].ratios["target_passes"]
    assert passes.value == pytest.approx(1 / 4.5, rel=0.03)
    assert passes.low < passes.value < passes.high  # type: ignore[operator]
    assert acceptance.answers_info(RUNS, TARGET, {}).rows == acceptance.answers_info(RUNS, None, PROMPTS).rows == []


def test_requests_are_of_runs_that_draft_from_the_least_to_the_most():
    curves = acceptance.requests_info(RUNS).curves
    assert [curve.name for curve in curves] == [run.label for run in (SD, JS[1], JS[2], JS[0])]
    drawn = acceptance.draw_requests(acceptance.requests_info([SD]))
    assert (drawn.data[0].x[0], drawn.data[0].x[-1]) == pytest.approx((35, 70))
    assert (drawn.data[0].y[0], drawn.data[0].y[-1]) == (0, 100)
    earlier = run_view(SD.decoding, {key: value for key, value in (SD.metrics or {}).items() if "deciles" not in key})
    assert acceptance.requests_info([earlier]).curves == []


def test_divergence_colours_the_bars_below_the_threshold():
    drawn = acceptance.draw_divergence(acceptance.divergence_info(JS[2]))  # threshold 0.1
    assert list(drawn.data[0].marker.color) == [acceptance.BELOW, acceptance.ABOVE, acceptance.ABOVE]
    assert drawn.layout.shapes[0].x0 == 0.1


@pytest.mark.parametrize(
    "drawn",
    [
        *comparison_figures(RUNS, TARGET, PROMPTS),
        *comparison_figures([], None, {}),
        *comparison_figures([run_view(decoding("fsd"))], None, {}),
        acceptance.draw_divergence(acceptance.divergence_info(SD)),
        acceptance.draw_divergence(acceptance.divergence_info(TARGET)),
    ],
    ids=lambda drawn: drawn.layout.title.text,
)
def test_figures_have_title_axes_height_and_only_basic_traces(drawn):
    assert drawn.layout.title.text
    assert drawn.layout.height >= 260
    assert drawn.layout.xaxis.title.text
    assert {trace.type for trace in drawn.data} <= BASIC_TRACES
    assert drawn.data or drawn.layout.annotations
    json.loads(drawn.to_json())


def test_names_are_shown_literally_never_as_markup():
    evil = '<a href="javascript:alert(1)">x</a> & %{x}'
    runs = [
        run_view(decoding(kind), metrics(acceptance=rate), label=evil, pair=evil)
        for kind, rate in (("speculative", 0.7), ("fsd", 0.8))
    ] + [TARGET]
    drawn = [
        *comparison_figures(runs, runs[0], prompts(*runs)),
        acceptance.draw_divergence(acceptance.divergence_info(runs[0])),
    ]
    text = "".join(figure.to_json() for figure in drawn)
    assert "javascript:alert" in text  # it is there, escaped
    assert "<a " not in text.replace("\\u003c", "<")
    assert all(trace.hovertemplate is None for figure in drawn for trace in figure.data)


def test_escape_leaves_plain_text_alone():
    assert style.escape("FSD · js ≤ 0.1") == "FSD · js ≤ 0.1"
    assert style.escape("<b>&") == "&lt;b&gt;&amp;"
