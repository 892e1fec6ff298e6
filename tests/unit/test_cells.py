"""Runs beside each other: differences, verdicts, warnings, and speeds that are not one figure."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import pytest
import torch

from dashboard.compare.compared_runs import MARKED, ComparedRuns, comparability, compare, experiment_runs
from dashboard.compare.comparison_html import comparison_html, p_values, warnings_html
from dashboard.compare.export import csv_text, markdown
from dashboard.experiments.experiments_page import experiments_html
from dashboard.runs.opened_run import further_tiles_html, provenance_html, sessions_html, tiles_html
from dashboard.runs.run_list import RUNS
from dashboard.tables.prompt_pairs import difference
from dashboard.tables.run_record import settings_table
from fsd_core.analysis.cells import Cell, cell, cells, delta_columns, delta_text, ratio_mixed
from fsd_core.cli import output
from fsd_core.config import DIVERGENCES
from fsd_core.config.options import effective_settings
from fsd_core.evaluation.aggregate import summarise
from fsd_core.library.measuring import Comparison
from fsd_core.metrics import EXECUTOR, METRICS, MIXED_MARK, SHARED_DEVICE, SHARED_EXECUTOR, compared, conditions_of
from fsd_core.ops.distributions import divergence
from fsd_core.plots import trade_offs
from fsd_core.review.evidence import _findings as review_evidence
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.paired import paired_difference
from fsd_core.storage.records import MeasurementSession, PromptCounts
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import decimals, number_text, p_value
from fsd_plugins.theory import page as theory
from tests.tools import plausible
from tests.tools.run_views import decoding, metrics, prompts, run_view
from tests.unit.test_components import Reader

TARGET = run_view(decoding("autoregressive"), metrics(47))
LOOSE = run_view(decoding("fsd", divergence="js", threshold=0.3), metrics(30, acceptance=0.9), seed=3)
ACCURACY, THROUGHPUT, RATE = (METRICS[key] for key in ("accuracy", "tokens_per_second", "acceptance_rate"))
TIME, NLL = METRICS["seconds_per_solved_task"], METRICS["negative_log_likelihood"]


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (94.0, 83.8, 97.9, "94"),
        (1.8123, 1.70, 1.91, "1.8"),
        (0.25031, 0.2493, 0.2513, "0.250"),
        (0.25031, None, None, "0.250"),
        (12345.6, 12000, 13000, "12,346"),
        (0.0, 0.0, 0.0, "0"),
        (-1e-7, -1.1e-7, -0.9e-7, "0"),
    ],
)
def test_numbers_have_the_digits_that_their_interval_supports(value, low, high, shown):
    assert number_text(value, decimals(value, low, high)) == shown


def test_signs_are_true_signs_and_zero_has_none():
    assert number_text(-2.4, 1, signed=True) == "−2.4"
    assert number_text(2.4, 0, signed=True) == "+2"
    assert number_text(-0.04, 1, signed=True) == "0.0"


def test_p_values():
    assert [p_value(p) for p in (0.0004, 0.0312, 1.0)] == ["p < 0.001", "p = 0.031", "p = 1"]


@pytest.mark.parametrize(
    ("metric", "delta", "verdict"),
    [
        (THROUGHPUT, Estimate(1.5, 1.2, 1.8), 1),
        (THROUGHPUT, Estimate(0.5, 0.4, 0.6), -1),
        (THROUGHPUT, Estimate(1.1, 0.9, 1.3), 0),
        (RATE, Estimate(20, 10, 30), 0),  # neither direction is good in itself
        (TIME, Estimate(0.5), 0),  # no interval, no verdict
    ],
)
def test_a_difference_is_good_or_bad_only_where_its_interval_says_so(metric, delta, verdict):
    assert Cell(metric, Estimate(1), delta).verdict == verdict


@pytest.mark.parametrize(("losses", "verdict"), [(5, 0), (6, -1)])  # p = 0.0625 and 0.03125
def test_of_accuracy_the_exact_test_decides_not_the_interval(losses, verdict):
    baseline, run = ({n: solved or n >= losses for n in range(50)} for solved in (True, False))
    paired = paired_difference(run, baseline)
    assert paired.interval.high < 0
    points = Estimate(100 * paired.difference, *(100 * end for end in paired.interval))
    assert Cell(ACCURACY, Estimate(80), points, paired).verdict == verdict


def test_likelihoods_are_compared_under_one_model_alone():
    draft, other = run_view(decoding("draft-only"), metrics()), run_view(LOOSE.decoding, metrics(), pair="other")
    again = run_view(draft.decoding, metrics(), seed=1)
    counts = prompts(LOOSE, TARGET, draft, other, again)
    assert cell(LOOSE, TARGET, NLL, counts).delta == Estimate(0)
    assert cell(draft, TARGET, NLL, counts) == Cell(NLL, Estimate(0.25), comment="under the draft")
    assert cell(TARGET, draft, NLL, counts) == Cell(NLL, Estimate(0.25))
    assert cell(draft, draft, NLL, counts).comment == "under the draft"
    assert cell(again, draft, NLL, counts).delta == Estimate(0)
    assert cell(other, TARGET, NLL, counts).delta is None


def test_runs_are_compared_on_the_prompts_that_both_have():
    counts = prompts(LOOSE, TARGET)
    half = {LOOSE.id: {i: one for i, one in counts[LOOSE.id].items() if i >= 25}, TARGET.id: counts[TARGET.id]}
    found = cell(LOOSE, TARGET, ACCURACY, half)
    assert found.paired is not None
    assert (found.paired.n, found.delta and found.delta.value) == (25, pytest.approx(-68))  # 5 of 25 against 22
    slow = {i: replace(one, seconds=9.0) if i < 25 else one for i, one in counts[TARGET.id].items()}
    assert (
        cell(LOOSE, TARGET, THROUGHPUT, half | {TARGET.id: slow}).delta == cell(LOOSE, TARGET, THROUGHPUT, half).delta
    )


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.key)
def test_runs_without_a_prompt_in_common_have_no_difference(metric):
    elsewhere = run_view(LOOSE.decoding, metrics(30, acceptance=0.9), task="other")
    assert cell(elsewhere, TARGET, metric, prompts(elsewhere, TARGET)).delta is None
    disjoint = {LOOSE.id: {9: prompts(LOOSE)[LOOSE.id][9]}, TARGET.id: {8: prompts(TARGET)[TARGET.id][8]}}
    assert cell(LOOSE, TARGET, metric, disjoint).delta is None


def test_what_leniency_does_to_answers_is_a_paired_ratio_and_of_runaways_a_difference():
    counts = prompts(LOOSE, TARGET)
    longer = {
        i: replace(one, tokens=2 * one.tokens + i % 4, stop_reason="length" if i < 10 else "eos")
        for i, one in counts[LOOSE.id].items()
    }
    length, passes, runaways = (
        cell(LOOSE, TARGET, METRICS[key], counts | {LOOSE.id: longer}).delta
        for key in ("mean_tokens", "target_passes", "runaway_rate")
    )
    assert length is not None
    assert 2 < length.low < length.value < length.high < 2.05  # type: ignore[operator]
    assert passes == cell(LOOSE, TARGET, METRICS["target_passes"], counts).delta
    assert runaways is not None
    assert runaways.value == pytest.approx(20)
    assert 8 < runaways.low < 20 < runaways.high < 35  # type: ignore[operator]


def test_the_passes_of_a_draft_alone_are_not_the_targets():
    draft = run_view(decoding("draft-only"), metrics())
    found = cell(draft, TARGET, METRICS["target_passes"], prompts(draft, TARGET))
    assert (found.delta, found.comment) == (None, "of the draft")


def test_several_thresholds_against_one_baseline_are_corrected_by_holm():
    runs = [
        run_view(decoding("fsd", threshold=0.1 * n), metrics(correct)) for n, correct in ((1, 41), (2, 40), (3, 47))
    ]
    found = cells([TARGET, *runs], TARGET, prompts(TARGET, *runs))
    first, second, third = (found[run.id][0] for run in runs)
    assert [one.paired.p_value for one in (first, second)] == pytest.approx([2 / 2**6, 2 / 2**7])  # type: ignore[union-attr]
    assert [one.corrected_p for one in (first, second, third)] == pytest.approx([4 / 2**6, 6 / 2**7, 1.0])
    assert [one.verdict for one in (first, second, third)] == [0, -1, 0]  # 0.0625, 0.047
    assert p_values(second) == ["p = 0.016", "Holm p = 0.047"]
    assert delta_columns(found[runs[1].id])["mcnemar_p_holm"] == pytest.approx(6 / 2**7)
    assert found[TARGET.id][0].corrected_p is None


def test_deltas_are_told_as_differences_or_ratios():
    assert delta_text(Estimate(-4, -10, 2), ACCURACY, 0) == ("−4 pts", "−10 to +2")
    assert delta_text(Estimate(1.84, 1.75, 1.93), THROUGHPUT, 0) == ("1.84×", "1.75 to 1.93")
    assert delta_text(Estimate(0.0), NLL, 3) == ("0.000", "")  # no prompt differs
    assert delta_text(Estimate(1.84), THROUGHPUT, 0) == ("≈ 1.84×", "")
    assert delta_text(Estimate(1.84), TIME, 0) == ("1.84×", "")  # it never has one


def names(*runs):
    return {run.id: f"run {index}" for index, run in enumerate(runs)}


def test_equal_ground_needs_no_warning():
    assert comparability([TARGET, LOOSE], names(TARGET, LOOSE), {}) == []


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (run_view(LOOSE.decoding, metrics(), task="other"), "differ in task"),
        (run_view(LOOSE.decoding, metrics(), pair="other"), "differ in model pair"),
        (run_view(LOOSE.decoding, metrics(), limit=20), "differ in number of prompts"),
        (run_view(LOOSE.decoding, metrics(), provenance={"device": "cuda"}), "differ in device"),
        (run_view(LOOSE.decoding, metrics(), provenance={"cpu": "another"}), "differ in processor"),
        (run_view(LOOSE.decoding, metrics(), provenance={"dtype": "bfloat16"}), "differ in dtype"),
        (run_view(LOOSE.decoding, metrics(), provenance={"threads": 1}), "differ in number of threads (1, 2): ratios"),
        (run_view(LOOSE.decoding, metrics(), provenance={"git_revision": "b" * 40}), "commit (aaaaaaaaaaaa, bbbbbbb"),
        (
            run_view(LOOSE.decoding, metrics(), provenance={"cpu": "another", "versions": {"torch": "3"}}),
            "differ in processor (another, one) and version of torch (2, 3): ratios of their speeds",
        ),
        (run_view(LOOSE.decoding), "1 run is not finished: run 1"),
        (run_view(LOOSE.decoding, status="failed"), "1 run failed"),
    ],
)
def test_what_does_not_stand_on_equal_ground_is_said(other, sentence):
    about = {"device": "cpu", "dtype": "float32", "cpu": "one", "threads": 2, "git_revision": "a" * 40}
    here = run_view(TARGET.decoding, metrics(47), provenance=about | {"versions": {"torch": "2"}})
    (warning,) = comparability([here, other], names(here, other), {})
    assert sentence in warning


def test_dtypes_that_were_asked_for_are_compared_on_purpose():
    runs = [
        run_view(decoding("fsd"), metrics(), seed=seed, provenance={"dtype": dtype}) for seed, dtype in enumerate("ab")
    ]
    chosen = [replace(run, config=run.config.model_copy(update={"dtype": "float32"})) for run in runs]
    assert len(comparability(runs, names(*runs), {})) == 1
    assert comparability(chosen, names(*chosen), {}) == []
    assert (ratio_mixed(*runs), ratio_mixed(*chosen)) == (("dtype",), ())


def asked(*hashes, stops=()):
    """Counts of prompts that were rendered to tokens of these hashes."""
    stops = stops or ["eos"] * len(hashes)
    return {
        position: replace_counts(prompt_hash=prompt, stop_reason=stop)
        for position, (prompt, stop) in enumerate(zip(hashes, stops, strict=True))
    }


def replace_counts(**values):
    return replace(PromptCounts("correct", "eos", 10, 5, 10, 5, 0, 1.0, 1.0, 0.1), **values)


def test_prompts_that_were_rendered_otherwise_are_told():
    runs, old = [TARGET, LOOSE], asked(None, None, None)
    same, other = asked("a", "b", "c"), asked("a", "x", "y")
    for ours, theirs, is_told in ((same, same, False), (same, old, False), (same, other, True)):
        told = comparability(runs, names(*runs), {TARGET.id: ours, LOOSE.id: theirs})
        assert len(told) == is_told
        assert all(sentence.startswith("2 prompts are not the same tokens in all runs") for sentence in told)


def test_answers_that_only_one_context_ended_are_told():
    runs = [TARGET, LOOSE]
    short, long = asked("a", "b", stops=["context", "eos"]), asked("a", "b")
    assert comparability(runs, names(*runs), {TARGET.id: short, LOOSE.id: short}) == []
    (told,) = comparability(runs, names(*runs), {TARGET.id: long, LOOSE.id: short})
    assert "different numbers of answers to the same prompts (0 of run 0, 1 of run 1)" in told


def test_weights_are_compared_by_role():
    """Runs of before the files beside the weights were recorded lack that role."""
    known = {"target": "t", "draft": "d"}
    runs = [
        run_view(TARGET.decoding, metrics(), provenance={"weights": weights})
        for weights in (known, known | {"configuration": "c"}, known | {"configuration": "e"}, known | {"target": "u"})
    ]
    assert comparability(runs[:2], names(*runs), {}) == []
    assert "weights (configuration c, configuration e)" in comparability(runs[1:3], names(*runs), {})[0]
    assert "weights (target t, target u)" in comparability([runs[0], runs[3]], names(*runs), {})[0]


def test_speeds_and_times_alone_carry_the_mark():
    about = {"device": "cpu", "threads": 2}
    here, there = replace(TARGET, provenance=about), replace(LOOSE, provenance=about | {"threads": 1})
    measurement_sessions = tuple(MeasurementSession(i, about | {"threads": i}, None) for i in (1, 2))
    resumed = replace(LOOSE, measurement_sessions=measurement_sessions)
    counts, timed = prompts(TARGET, LOOSE), [metric.key for metric in compared() if metric.timed]
    assert timed == ["seconds_per_answer", "tokens_per_second", "seconds_per_solved_task"]
    for metric in compared():
        threads = ("number of threads",) if metric.timed else ()
        assert (cell(there, here, metric, counts).mixed, cell(there, here, metric, counts).delta_mixed) == ((), threads)
        assert cell(resumed, here, metric, counts).mixed == threads
        assert cell(here, resumed, metric, counts).delta_mixed == threads
        assert cell(here, resumed, metric, counts).mixed == ()
    columns = delta_columns(cells([here, resumed], here, counts)[resumed.id])
    assert (columns["speed_mixed"], columns["speed_ratio_mixed"]) == ("number of threads", "number of threads")
    columns = delta_columns(cells([here, there], here, counts)[there.id])
    assert (columns["speed_mixed"], columns["speed_ratio_mixed"]) == (None, "number of threads")
    assert columns["runaways_at_most"] == pytest.approx(1 - 0.05 ** (1 / len(counts[there.id])))
    assert delta_columns(cells([here], here, counts)[here.id])["runaways_at_most"] is None


def test_settings_table_shows_differences_only_on_demand():
    everything = settings_table([TARGET, LOOSE], differences_only=False)
    differing = settings_table([TARGET, LOOSE], differences_only=True)
    assert "Temperature" in everything.columns
    assert "Temperature" not in differing.columns
    assert len(everything.columns) == len(differing.columns) + differing.hidden
    told = dict(zip(differing.columns, zip(*differing.rows, strict=True), strict=True))
    assert told["Rule"] == ("autoregressive", "fsd")
    assert told["Threshold"] == ("–", "0.3")
    assert told["Seed"] == ("0", "3")


def test_the_top_k_of_a_divergence_is_a_setting_only_where_it_is_read():
    full, top = (run_view(decoding("fsd", divergence=name), metrics()) for name in ("js", "top-k-js"))
    title = "Divergence over top"
    assert title not in settings_table([TARGET, full], differences_only=False).columns
    told = settings_table([full, top], differences_only=True)
    assert [row[told.columns.index(title)] for row in told.rows] == ["–", "50"]


@pytest.mark.parametrize("name", DIVERGENCES)
def test_which_divergences_read_top_k_is_what_computing_them_says(name):
    p, q = torch.tensor([0.5, 0.3, 0.15, 0.05]), torch.tensor([0.1, 0.2, 0.3, 0.4])
    one, two = (divergence(name, p, q, torch.tensor(0.5), top_k) for top_k in (1, 2))
    read = effective_settings(run_view(decoding("fsd", divergence=name, threshold=0.1), metrics()).config)
    assert ("setting.decoding.acceptance.divergence_top_k" in read) == (not torch.equal(one, two))


def test_a_threshold_that_is_off_is_told_as_off():
    off = run_view(decoding("fsd", threshold=None), metrics())
    table = settings_table([off], differences_only=False)
    assert table.rows[0][table.columns.index("Threshold")] == "off"


@pytest.mark.parametrize(
    ("a", "b"), [("", ""), ("one two", "one  three\n"), ("a b c", "a c"), ("x " * 3000, "y " * 3000)]
)
def test_the_pieces_of_a_difference_are_the_texts(a, b):
    left, right = difference(a, b)
    assert ("".join(piece.text for piece in left), "".join(piece.text for piece in right)) == (a, b)
    assert any(piece.changed for piece in left + right) == (a != b)


PROMPTS = 6
WHY = "Measured under conditions that differ in number of threads: not one figure."
SENTENCE = "Prompts 1 to 4 were measured with 2 threads, the other 2 with 1 thread."


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    repository = plausible.new_repository(tmp_path_factory.mktemp("home"))
    yield repository
    repository._database.close()


@pytest.fixture(scope="module")
def runs(repository: Repository) -> list[str]:
    """The runs of an experiment; the third went on after four prompts with one thread in place of two."""
    experiment = repository.create_experiment(plausible.sweep("Resumed", limit=PROMPTS), enqueue=False)
    for place, run in enumerate(repository.experiment(experiment).runs):
        if place != 2:
            plausible.finish(repository, run)
            continue
        written = plausible.do_prompts(repository, run, 4)
        for position, problem in list(enumerate(plausible.generators.held_out_long(PROMPTS)))[4:]:
            written.append(plausible.generation(run, position, problem))
            repository.record_generation(run.id, written[-1], conditions_of(plausible.PROVENANCE | {"threads": 1}))
        repository.finish_run(run.id, summarise(written, (g.records for g in written)))
    return experiment_runs(repository, experiment)


@pytest.fixture(scope="module")
def comparison(repository: Repository, runs: list[str]) -> ComparedRuns:
    return compare(repository, runs, None)


def marks(html: str) -> list[str | None]:
    return [attributes["title"] for tag, attributes in Reader(html).elements if tag == "sup"]


@pytest.mark.wide
def test_a_mark_is_one_letter_with_a_description(repository: Repository, runs: list[str]) -> None:
    html = RUNS.html([repository.run(runs[2])])
    (mark,) = [attributes for tag, attributes in Reader(html).elements if tag == "sup"]  # of s/answer alone
    assert mark == {"class": "fsd-mark", "role": "img", "tabindex": "0", "title": WHY, "aria-label": WHY}
    assert Reader(html).text.count(MIXED_MARK) == 1
    assert marks(RUNS.html([repository.run(runs[1])])) == []


def test_a_run_says_which_prompts_were_measured_how(repository: Repository, runs: list[str]) -> None:
    run, whole = (repository.run(id) for id in (runs[2], runs[1]))
    # time per answer; throughput, time per solved task, time to first token
    assert (marks(tiles_html(run)), marks(further_tiles_html(run))) == ([WHY], [WHY] * 3)
    assert SENTENCE in Reader(sessions_html(run, repository.session_positions(run.id))).text
    facts = Reader(provenance_html(run, repository.session_positions(run.id))).text
    assert "Measurement session 1" in facts
    assert "prompts 5 to 6: on cpu, on Some processor, in float32, with 1 thread and at commit c0ffeec0ffee" in facts
    assert marks(tiles_html(whole) + further_tiles_html(whole)) == []
    positions = repository.session_positions(whole.id)
    assert sessions_html(whole, positions) == ""
    assert "prompts 1 to 6: on cpu, on Some processor" in Reader(provenance_html(whole, positions)).text


def test_a_run_of_an_experiment_under_way_carries_the_mark(repository: Repository, runs: list[str]) -> None:
    experiment = repository.experiment(str(repository.run(runs[0]).experiment_id))
    assert marks(experiments_html([replace(experiment, status="running")], {})) == [WHY]


def test_compare_marks_speeds_times_and_their_ratios(comparison: ComparedRuns) -> None:
    (warning,) = comparison.warnings
    assert warning == ("The runs differ in number of threads (1, 2): ratios of their speeds and times are marked †.")
    assert warnings_html(comparison.warnings).count("fsd-notice") == 1
    html = comparison_html(comparison)
    assert marks(html) == [WHY] * 6  # three metrics, each with its ratio to the baseline
    assert MARKED in Reader(html).text
    titles = [cell.metric.title for cell in comparison.rows[2].cells if cell.mixed]
    assert titles == ["Time per answer", "Throughput", "Time per solved"]


def test_against_a_mixed_baseline_every_ratio_is_marked(repository: Repository, runs: list[str]) -> None:
    html = comparison_html(compare(repository, runs[:3], runs[2]))
    assert len(marks(html)) == 3 + 2 * 3  # its own three figures, and the ratios of the two others


def test_runs_that_are_alike_carry_no_mark(repository: Repository, runs: list[str]) -> None:
    alike = compare(repository, runs[:2], None)
    assert alike.warnings == []
    assert MIXED_MARK not in comparison_html(alike) + markdown(alike, "Alike")
    assert pd.read_csv(io.StringIO(csv_text(alike)))["speed_mixed"].isna().all()


def test_speeds_of_a_shared_executor_are_marked_beside_any_other(repository: Repository, runs: list[str]) -> None:
    lent = repository.create_experiment(plausible.sweep("Lent", limit=PROMPTS), enqueue=False)
    run = repository.experiment(lent).runs[1]
    about = conditions_of(plausible.PROVENANCE | {EXECUTOR: "ZeroGPU"})
    repository.start_run(run.id, plausible.PROVENANCE)
    written = []
    for position, problem in enumerate(plausible.generators.held_out_long(PROMPTS)):
        written.append(plausible.generation(run, position, problem))
        repository.record_generation(run.id, written[-1], about)
    repository.finish_run(run.id, summarise(written, (g.records for g in written)))
    found = compare(repository, [runs[0], run.id], None)
    (warning,) = found.warnings
    assert warning == f"{found.rows[1].name}: {SHARED_DEVICE} Their speeds and times are marked {MIXED_MARK}."
    assert marks(comparison_html(found)) == [SHARED_DEVICE] * 6
    assert SHARED_DEVICE in markdown(found, "Lent")
    table = pd.read_csv(io.StringIO(csv_text(found)))
    assert table["speed_mixed"].fillna("").tolist() == ["", SHARED_EXECUTOR]
    assert table["speed_ratio_mixed"].fillna("").tolist() == ["", SHARED_EXECUTOR]
    fast = Requirements(margin=None, least_speedup=1.0)
    evidence = review_evidence(fast, found.runs[1], found.runs[0], found.prompts)
    assert [finding.outcome for finding in evidence] == ["undecided"]
    again = repository.run(run.id)
    assert marks(tiles_html(again) + further_tiles_html(again)) == [SHARED_DEVICE] * 4
    assert "by ZeroGPU, on cpu" in Reader(provenance_html(again, repository.session_positions(run.id))).text


def test_files_name_what_differs(comparison: ComparedRuns) -> None:
    read = pd.read_csv(io.StringIO(csv_text(comparison)))
    mixed = [place == 2 for place in range(len(read))]
    for column in ("speed_mixed", "speed_ratio_mixed"):
        assert read[column].fillna("").tolist() == ["number of threads" if place else "" for place in mixed]
    text = markdown(comparison, "Resumed")
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert [line.count(MIXED_MARK) for line in rows] == [6 if place == 2 else 0 for place in range(len(rows))]
    assert f"{MARKED}\n\n- {comparison.rows[2].name}: {WHY}" in text
    assert "1 CPU threads" in text
    assert "2 CPU threads" in text


def test_figures_say_so_where_a_speed_is_shown(comparison: ComparedRuns) -> None:
    line = f"{MIXED_MARK} Conditions differ: number of threads"
    bars = trade_offs.draw_throughput(
        trade_offs.throughput_info(comparison.runs, comparison.baseline, comparison.prompts)
    )
    labels = [text for text in bars.data[1].text if MIXED_MARK in text]
    assert len(labels) == 1
    assert labels[0].count(MIXED_MARK) == 2
    assert [line in text for text in bars.data[0].hovertext] == [place == 2 for place in range(len(comparison.runs))]
    points = trade_offs.draw_tradeoff(trade_offs.tradeoff_info(comparison.runs))
    hovers = [text for trace in points.data for text in trace.hovertext or ()]
    assert sum(line in text for text in hovers) == 1
    predicted = theory.draw_speedup(theory.measured_speedups(comparison.runs))
    hovers = [text for trace in predicted.data for text in trace.hovertext or ()]
    assert sum(line in text for text in hovers) == 1


def test_the_command_line_marks_its_table_and_names_it_in_json(
    comparison: ComparedRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_runs(comparison.runs)
    table, note = capsys.readouterr().out.rsplit(f"\n{MIXED_MARK} ", 1)
    assert table.count(MIXED_MARK) == 3
    assert note == f"{comparison.rows[2].run.label}: {WHY}\n"
    found = output.run_json(comparison.runs[2])
    assert found["speed_mixed"] == ["number of threads"]
    assert [sitting["threads"] for sitting in found["sittings"]] == [2, 1]
    assert output.run_json(comparison.runs[0])["speed_mixed"] == []


def test_the_librarys_table_names_it(comparison: ComparedRuns) -> None:
    frame = Comparison(tuple(comparison.runs), comparison.prompts).to_frame()
    for column in ("speed_mixed", "speed_ratio_mixed"):
        assert frame[column].fillna("").tolist()[:4] == ["", "", "number of threads", ""]
