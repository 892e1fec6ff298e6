"""Stored runs at matched points: which become curves, what is missing, and what is said of a rule's rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dashboard.ui.fields import about
from fsd_core.analysis.comparability import EXCESS_NLL, NOT_RANKED
from fsd_core.analysis.matching import (
    MEASURED,
    MatchedComparison,
    absence,
    behind,
    beside_rows,
    caption,
    match,
    records,
    tables,
)
from fsd_core.config import RULES, DecodingConfig
from fsd_core.config.run_config import baselines_of, missing, with_baselines
from fsd_core.errors import OutOfRange, UnknownName
from fsd_core.evaluation.versus import ComparedText, fidelity
from fsd_core.plots import curves, trade_offs
from fsd_core.statistics.tradeoff import BEHIND, LEADS, OUTSIDE
from fsd_core.storage.records import Prompts, RunView
from tests.tools.run_views import decoding, metrics, prompts, run_view
from tools import rules_behind

N = 400


def run(kind: str, correct: int, acceptance: float | None = None, **fields: object) -> RunView:
    return run_view(decoding(kind, **fields), metrics(correct, N, acceptance=acceptance), limit=N)


TARGET, SD, BLOCK, DRAFT = (
    run("autoregressive", 360),
    run("speculative", 360, 0.5),
    run("block", 360, 0.52),
    run("draft-only", 160),
)
JS = [
    run("fsd-reducible", correct, rate, threshold=t)
    for t, correct, rate in ((0.4, 330, 0.9), (0.1, 360, 0.6), (0.2, 355, 0.75))
]
LENIENT = [run("lenience", correct, rate, lenience=a) for a, correct, rate in ((0.3, 350, 0.6), (0.9, 200, 0.9))]
RUNS = [TARGET, SD, BLOCK, DRAFT, *JS, *LENIENT]


def matched(runs: list[RunView] = RUNS, baseline: RunView = TARGET, cost: str = "target_passes") -> MatchedComparison:
    return match(runs, baseline, prompts(*runs), cost)


def test_rules_with_a_knob_are_curves_from_sd_on_and_the_others_stand_beside():
    found = matched()
    assert [line.name for line in found.compared] == ["FSD reducible · js · γ 5", "Lenience · γ 5"]
    assert [point.knob for point in found.compared[0].points] == [None, 0.1, 0.2, 0.4]
    assert [line.name for line in found.baseline_lines] == ["Target alone", "SD · γ 5", "Block · γ 5", "Draft alone"]
    assert (found.reference, found.target, found.prompts, found.notes) == ("SD · γ 5", "Target alone", N, [])
    assert found.absent == ()


def test_a_knob_that_forgives_more_when_it_falls_begins_at_its_highest_value():
    typical = [run("typical", 360, rate, posterior_threshold=e) for e, rate in ((0.03, 0.9), (0.5, 0.55))]
    (line,) = matched([TARGET, SD, *typical]).compared
    assert [point.knob for point in line.points] == [0.5, 0.03]
    assert not line.is_exact  # no value of ε is SD


def test_figures_of_points_are_ratios_of_sums_and_differences_of_shares():
    found = matched()
    point = next(p for p in found.compared[0].points if p.knob == 0.4)
    ours, theirs = (sum(c.rounds for c in prompts(one)[one.id].values()) for one in (JS[0], SD))
    assert point.ratio is not None
    assert point.ratio.value == pytest.approx(theirs / ours)
    assert point.difference.value == pytest.approx((330 - 360) / N)
    assert point.difference.low is not None
    assert point.difference.low < -30 / N < (point.difference.high or 0)


def test_the_target_has_no_interval_against_itself_and_a_draft_alone_no_passes():
    rows = {name: (times, points) for name, times, points in beside_rows(matched())}
    assert rows["Target alone"][1] == "0 pts"
    assert rows["Draft alone"][0] == "–"
    assert rows["Draft alone"][1].startswith("−50 pts (")
    timed = {line.name: line.points[0].ratio for line in matched(cost="seconds").baseline_lines}
    assert timed["Draft alone"] is not None


def test_no_rule_is_called_fastest_by_times_of_other_conditions():
    here, elsewhere = {"threads": 1}, {"threads": 4}
    runs = [replace(one, provenance=elsewhere if one in LENIENT else here) for one in RUNS]
    found = matched(runs, runs[0], "seconds")
    assert [line.name for line in found.compared] == ["FSD reducible · js · γ 5"]
    assert found.notes == ["2 runs left out: measured under other conditions than the baseline."]
    passes = matched(runs, runs[0])  # which every machine counts alike
    assert ("Lenience · γ 5" in [line.name for line in passes.compared], passes.notes) == (True, [])


def test_at_one_cost_the_rule_that_loses_least_is_named_and_ties_are_not_ranked():
    rows = matched().at_ratio(1.4)
    assert [(row.family, row.rank) for row in rows] == [("FSD reducible · js · γ 5", LEADS), ("Lenience · γ 5", BEHIND)]
    first, second = tables(matched(), [1.4, 3.0], [2.0])
    assert first.verdicts == [
        "1.4× fewer: FSD reducible · js · γ 5 loses least.",
        "3× fewer: no rule was measured there.",
    ]
    assert first.rows[0][1][0].comparison == "loses least"
    assert first.rows[1][1][0].comparison == "loses more"
    assert first.rows[0][1][1].comparison.startswith("measured from 1.00× to")
    assert second.rows[0][1][0].knob == "0.2 to 0.4"
    few = [
        run_view(one.decoding, metrics(36, 40, acceptance=(one.metrics or {})["acceptance_rate"]), limit=40)
        for one in (TARGET, SD, *JS[1:], *LENIENT)
    ]
    (verdict,) = tables(matched(few, few[0]), [1.05], [2.0])[0].verdicts
    assert verdict.startswith("1.05× fewer: not enough prompts to tell")


def test_the_front_names_the_families_that_nothing_beats():
    found = matched()
    assert "FSD reducible · js · γ 5" in found.front
    assert "Lenience · γ 5" not in found.front
    assert "Not beaten in both" in caption(found)


def test_several_seeds_of_a_setting_are_one_point():
    again = run_view(JS[0].decoding, metrics(320, N, acceptance=0.9), seed=1, limit=N)
    found = matched([*RUNS, again])
    point = next(p for p in found.compared[0].points if p.knob == 0.4)
    assert point.difference.value == pytest.approx((325 - 360) / N)
    assert len(found.compared[0].points) == 4


def test_only_runs_on_the_baselines_ground_are_matched_and_the_others_are_told():
    other = run_view(DecodingConfig(max_new_tokens=64), metrics(40, acceptance=0.5))
    queued = run_view(decoding("fsd-reducible", threshold=0.6), None)
    found = matched([*RUNS, other, queued])
    assert found.notes == [
        "1 run without all figures left out.",
        "1 run left out: only runs with the baseline's pair, task, sampling, length limit are matched.",
    ]
    assert len(found.compared[0].points) == 4


def test_what_is_missing_is_named_and_without_any_reference_nothing_is_matched():
    found = matched([TARGET, SD, *JS])
    assert absence(found) == "Not measured on these prompts: Block · γ 5 and Draft alone."
    alone = matched(JS, JS[0])
    assert alone.curves is None
    assert tables(alone) == []
    assert "Neither the target alone nor exact SD" in alone.notes[0]
    assert [one.acceptance.kind for one in alone.absent] == ["autoregressive", "speculative", "block", "draft-only"]


def test_a_short_run_that_leaves_few_prompts_is_told():
    short = run_view(decoding("fsd-reducible", threshold=0.3), metrics(30, 40, acceptance=0.8), limit=40)
    assert matched([*RUNS, short]).notes == ["Only 40 prompts of 400 are in all runs: leave out the shortest."]


def unscored(runs: list[RunView], nats: dict[str, float], seed: int = 0) -> Prompts:
    """The runs' prompts without an outcome; each text is ``nats`` a token less likely, more or less, than the target's.
    Texts of the target, SD and block are the same."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.2, 0.6, N)
    found = {}
    for one in runs:
        lost = rng.normal(nats[one.id], 0.1, N) if one.id in nats else np.zeros(N)
        found[one.id] = {
            i: replace(c, outcome="unscored", negative_log_likelihood=float((base[i] + lost[i]) * c.tokens))
            for i, c in prompts(one)[one.id].items()
        }
    return found


def test_where_nothing_is_scored_rules_are_matched_in_excess_nll():
    nats = {one.id: lost for one, lost in zip([*JS, *LENIENT], (0.2, 0.02, 0.06, 0.3, 0.9), strict=True)}
    given = unscored(RUNS, nats)
    found = match(RUNS, TARGET, given)
    assert (found.quality, found.prompts, found.notes) == (EXCESS_NLL, N, [])
    assert "Draft alone" not in [line.name for line in found.lines]  # its likelihood is of the draft
    assert found.absent == ()
    for one in JS:
        texts = (
            {i: ComparedText([0] * c.tokens, c.negative_log_likelihood) for i, c in given[id].items()}
            for id in (one.id, TARGET.id)
        )
        known = fidelity(*texts, greedy=False)
        point = next(p for p in found.compared[0].points if p.knob == one.decoding.threshold)
        value, low, high = found.quality.displayed(point.difference)
        assert value == pytest.approx(known["excess_nll"])
        assert (low, high) == pytest.approx((known["excess_nll_low"], known["excess_nll_high"]), abs=0.002)
    exact = next(line for line in found.baseline_lines if line.name == "Block · γ 5").points[0].difference
    assert exact == (0, None, None)  # no prompt tells them apart, which says nothing of others
    lost, fast = tables(found, [1.3])
    assert lost.title == "Excess NLL at equal target passes"
    first, second = (cells[0] for _, cells in lost.rows)
    assert first.value.startswith("+0.0")
    assert first.value.endswith(" nats")
    assert (first.comparison, second.comparison) == ("loses least", "loses more")
    assert fast.columns == ["within 0.02 nats a token", "within 0.05 nats a token", "within 0.1 nats a token"]
    assert "Nothing is scored here." in caption(found)
    row = next(row for row in records(found, [1.3]) if row["rank"] == LEADS)
    assert row["quality"] == "excess_nll"
    assert 0 < row["low"] < row["difference"] < row["high"]
    drawn = curves.draw_matched_curves(found)
    bottom, top = drawn.layout.yaxis.range
    assert bottom > top  # less is better, and better is up
    assert drawn.layout.yaxis.title.text == "Excess NLL (nats a token)"


def test_sampled_texts_that_nothing_scores_are_shown_and_not_ranked():
    runs = [
        sampled("autoregressive", 360), sampled("speculative", 360, 0.5),
        *(sampled("fsd-reducible", 350, rate, threshold=t) for t, rate in ((0.1, 0.6), (0.4, 0.8))),
        *(sampled("typical", 350, rate, posterior_threshold=e) for e, rate in ((0.5, 0.55), (0.1, 0.8))),
    ]  # fmt: skip
    nats = {one.id: lost for one, lost in zip(runs[2:], (0.1, 0.5, -0.4, -0.6), strict=True)}
    found = match(runs, runs[0], unscored(runs, nats))
    (table,) = tables(found, [1.1, 1.2])
    assert table.verdicts == [NOT_RANKED]
    assert not any(cell.comparison for _, cells in table.rows for cell in cells if cell.value)
    assert {cell.value[0] for _, cells in table.rows for cell in cells if cell.value} == {"+", "−"}
    assert found.front == ()
    assert {row["rank"] for row in records(found)} <= {None, OUTSIDE}
    assert {row["point"] for row in records(found)} == {"ratio", "beside"}
    assert NOT_RANKED in caption(found)
    assert NOT_RANKED in curves.draw_within(found, 2).layout.annotations[0].text.replace("<br>", " ")


def test_a_setting_without_any_forward_has_no_cost_to_match():
    """As one of a running engine that reports none."""
    given = {**prompts(*RUNS)}
    given[BLOCK.id] = {at: replace(counts, rounds=0) for at, counts in given[BLOCK.id].items()}
    found = match(RUNS, TARGET, given)
    (block,) = (line for line in found.lines if line.kind == "block")
    assert [point.ratio for point in block.points] == [None]
    assert {name: times for name, times, _ in beside_rows(found)}["Block · γ 5"] == "–"


def test_prompts_that_nobody_answered_leave_nothing_to_match():
    failed = {id: {i: replace(c, tokens=0) for i, c in counts.items()} for id, counts in unscored(RUNS, {}).items()}
    found = match(RUNS, TARGET, failed)
    assert found.notes == ["The runs have no prompt in common that all of them answered, so there is nothing to match."]


def sampled(kind: str, correct: int, acceptance: float | None = None, **fields: object) -> RunView:
    method = DecodingConfig.model_validate({"acceptance": {"kind": kind, **fields}, "sampling": {"temperature": 1.0}})
    return run_view(method, metrics(correct, N, acceptance=acceptance), limit=N)


def test_a_truncating_rule_stands_beside_the_target_with_the_same_truncation():
    runs = [
        sampled("autoregressive", 360), sampled("speculative", 360, 0.5),
        *(sampled("top-n-delta", 350, rate, relaxed_delta=d) for d, rate in ((0.3, 0.6), (0.9, 0.8))),
    ]  # fmt: skip
    cut = [one for one in matched(runs, runs[0]).absent if one.sampling.top_k]
    assert [(one.acceptance.kind, one.sampling.top_k) for one in cut] == [("autoregressive", 10)]
    found = matched([*runs, run_view(cut[0], metrics(370, N), limit=N)], runs[0])
    targets = [line.name for line in found.baseline_lines if line.kind == "autoregressive"]
    assert targets == ["Target alone", "Target alone · top-k 10"]
    assert {name: points for name, _, points in beside_rows(found)}["Target alone · top-k 10"].startswith("+2")
    assert not any(one.sampling.top_k for one in found.absent)


def test_a_head_set_is_the_target_s_own_min_p():
    runs = [
        sampled("autoregressive", 360), sampled("speculative", 360, 0.5),
        *(sampled("head", 350, rate, head_width=width) for width, rate in ((None, 0.5), (0.35, 0.6), (0.8, 0.8))),
        sampled("fsd-head", 350, 0.6, threshold=0.1, token_width=0.35),
    ]  # fmt: skip
    found = matched(runs, runs[0])
    assert sorted(one.sampling.min_p for one in found.absent if one.sampling.min_p) == [0.2, 0.65]
    assert not any("no option of sampling" in note for note in found.notes)
    both = runs[3].decoding.sampling.model_copy(update={"min_p": 0.8, "top_p": 0.9})
    assert both.confined(runs[3].decoding.acceptance.truncation) == both  # the stricter of the two


def test_a_truncation_that_sampling_does_not_have_is_told():
    runs = [sampled("autoregressive", 360), sampled("typical", 360, 0.7)]
    (note,) = matched(runs, runs[0]).notes
    assert note.startswith("Typical keeps tokens of a set that no option of sampling has")
    greedy = [TARGET, SD, run("typical", 360, 0.7)]
    assert matched(greedy).notes == []  # greedily no truncation changes the target


def test_records_are_a_row_for_each_rule_at_each_point():
    rows = records(matched(), [1.1, 1.3], [2.0])
    assert [(row["point"], row["at"]) for row in rows] == [("ratio", 1.1)] * 2 + [("ratio", 1.3)] * 2 + [
        ("margin", 2.0)
    ] * 2 + [("beside", None)] * 4
    assert len({tuple(row) for row in rows}) == 1
    assert {row["rank"] for row in rows if row["point"] == "ratio"} <= {LEADS, "tied", BEHIND, OUTSIDE}


def test_what_cannot_be_asked_is_refused():
    found = matched()
    with pytest.raises(OutOfRange):
        found.at_ratio(0)
    with pytest.raises(OutOfRange, match="50 points"):
        found.within(50)
    with pytest.raises(UnknownName, match="money"):
        matched(cost="money")


def test_the_figure_has_a_band_and_a_curve_for_each_rule_and_marks_beside_them():
    drawn = curves.draw_matched_curves(matched())
    names = [trace.name for trace in drawn.data if trace.showlegend is not False]
    assert names == [
        "Not beaten",
        "FSD reducible · js · γ 5",
        "Lenience · γ 5",
        "Target alone, 0.0 points at 0.28×",
        "SD · γ 5",
        "Block · γ 5",
        "Draft alone, −50.0 points",
    ]
    assert sum(trace.fill == "toself" for trace in drawn.data) == 2
    assert "Choose runs of a rule" in curves.draw_matched_curves(matched([TARGET, SD])).layout.annotations[0].text
    reach = curves.draw_within(matched(), 2.0)
    assert [annotation.text for annotation in reach.layout.annotations] == [
        "FSD reducible · js · γ 5",
        "Lenience · γ 5",
    ]


def test_speed_over_the_draft_length_joins_settings_that_differ_in_it_alone():
    def with_length(kind: str, length: int, speed: float) -> RunView:
        method = DecodingConfig.model_validate(
            {"acceptance": {"kind": kind}, "topology": {"kind": "chain", "length": length}}
        )
        return run_view(method, metrics(40, speed=speed, acceptance=0.6))

    target = run_view(decoding("autoregressive"), metrics(40, speed=100))
    runs = [
        target,
        with_length("speculative", 8, 150),
        with_length("speculative", 4, 180),
        with_length("block", 4, 185),
    ]
    found = trade_offs.draft_lengths_info(runs, target, prompts(*runs))
    assert [(curve.name, [mark.at for mark in curve.points]) for curve in found.curves] == [("SD", [4, 8])]
    assert found.curves[0].points[0].value.value == pytest.approx(1.8, rel=0.01)
    assert len(trade_offs.draw_draft_lengths(found).data) == 2
    assert trade_offs.draw_draft_lengths(
        trade_offs.draft_lengths_info(runs[:2], target, prompts(*runs))
    ).layout.annotations


def test_a_sweep_measures_what_stands_beside_its_rules_once():
    swept = [decoding("fsd-reducible", threshold=t) for t in (0.1, 0.3)]
    kinds = [one.acceptance.kind for one in with_baselines(swept, everything=True)]
    assert kinds == ["autoregressive", "speculative", "block", "draft-only", "fsd-reducible", "fsd-reducible"]
    assert [one.acceptance.kind for one in with_baselines(swept)] == ["autoregressive", "speculative", *kinds[4:]]
    assert missing(with_baselines(swept, everything=True)) == []
    copied = decoding("top-n-delta").model_copy(
        update={"drafter": DecodingConfig.model_validate({"drafter": {"kind": "prompt-lookup"}}).drafter}
    )
    assert "block" not in [one.acceptance.kind for one in baselines_of([copied])]  # it needs the draft's distribution


def test_what_is_told_is_what_the_results_hold() -> None:
    assert MEASURED.read_text(encoding="utf-8") == rules_behind.text()


def test_a_rule_that_was_behind_says_by_how_much_and_what_was_better() -> None:
    accuracy, likelihood = (next(one for one in behind("fsd") if word in one) for word in ("accuracy", "nats"))
    assert "sampled at temperature 1" in accuracy
    assert "1.1 × fewer target passes than SD accuracy changes by −10 [−15, −5] points, with Top-n, delta" in accuracy
    assert "greedily" in likelihood
    assert "0.20 [0.13, 0.28] nats a token" in likelihood
    assert "−10 [−15, −5] points" in about("fsd", "js")


def test_most_rules_were_behind_nowhere() -> None:
    assert {kind for kind in RULES if behind(kind)} == {"fsd", "fsd-reducible", "mentored", "ensemble"}
    assert "Measured" not in about("lenience", "js")
