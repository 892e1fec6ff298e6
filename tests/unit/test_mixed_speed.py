"""A speed that is not one figure says so at every door: pages, files, figures, the command line, the library."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import pytest

from dashboard.compare.compared_runs import MARKED, ComparedRuns, compare, experiment_runs
from dashboard.compare.comparison_html import comparison_html, warnings_html
from dashboard.compare.export import csv_text, markdown
from dashboard.experiments.experiments_page import experiments_html
from dashboard.runs.opened_run import further_tiles_html, provenance_html, sittings_html, tiles_html
from dashboard.runs.run_list import runs_html
from fsd_core.analysis.cells import compared
from fsd_core.cli import output
from fsd_core.evaluation.aggregate import summarise
from fsd_core.library.measuring import Comparison
from fsd_core.metrics import EXECUTOR, MIXED_MARK, SHARED_DEVICE, SHARED_EXECUTOR, conditions_of
from fsd_core.plots import trade_offs
from fsd_core.review.evidence import _findings as review_evidence
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_plugins.theory import page as theory
from tests.tools import plausible
from tests.unit.test_components import Reader

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
    html = runs_html([repository.run(runs[2])], filtered=False)
    (mark,) = [attributes for tag, attributes in Reader(html).elements if tag == "sup"]  # of s/answer alone
    assert mark == {"class": "fsd-mark", "role": "img", "tabindex": "0", "title": WHY, "aria-label": WHY}
    assert Reader(html).text.count(MIXED_MARK) == 1
    assert marks(runs_html([repository.run(runs[1])], filtered=False)) == []


def test_a_run_says_which_prompts_were_measured_how(repository: Repository, runs: list[str]) -> None:
    run, whole = (repository.run(id) for id in (runs[2], runs[1]))
    # time per answer; throughput, time per solved task, time to first token
    assert (marks(tiles_html(run)), marks(further_tiles_html(run))) == ([WHY], [WHY] * 3)
    assert SENTENCE in Reader(sittings_html(run, repository.session_positions(run.id))).text
    facts = Reader(provenance_html(run, repository.session_positions(run.id))).text
    assert "Sitting 1" in facts
    assert "prompts 5 to 6: on cpu, on Some processor, in float32, with 1 thread and at commit c0ffeec0ffee" in facts
    assert marks(tiles_html(whole) + further_tiles_html(whole)) == []
    positions = repository.session_positions(whole.id)
    assert sittings_html(whole, positions) == ""
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
    titles = [metric.title for metric, cell in zip(compared(), comparison.rows[2].cells, strict=True) if cell.mixed]
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
