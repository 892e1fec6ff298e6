"""One quantity has one name, method and number of digits wherever compared runs are shown."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dashboard.compare.compare_page import WITHOUT_EXPERIMENT, picker_html, short_names
from dashboard.compare.compared_runs import ComparedRuns, compare, experiment_runs
from dashboard.compare.comparison_html import answers_html, comparison_html
from dashboard.compare.export import csv_text, latex, markdown, matched_csv
from dashboard.experiments.experiments_page import experiments_html
from dashboard.review.opened_proposal import evidence_html
from dashboard.runs.opened_run import further_tiles_html, tiles_html
from dashboard.runs.run_list import RUNS
from dashboard.settings import setting_page
from fsd_core.analysis.cells import speedup, throughput_ratio
from fsd_core.calibration.findings import Measurements, SettingResult
from fsd_core.calibration.findings import speedup as calibrated_speedup
from fsd_core.calibration.summary import finding_text
from fsd_core.cli import output
from fsd_core.config import Autoregressive, DecodingConfig, FuzzyReducible, Speculative, SweepConfig
from fsd_core.evaluation.aggregate import summarise
from fsd_core.metrics import METRICS
from fsd_core.review.evidence import evidence
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import sqlite_url
from fsd_core.statistics.intervals import Interval
from fsd_core.statistics.paired import paired_difference, verdict
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import RunName, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import NO_INTERVAL, ROUGH_MARK
from tests.tools import plausible
from tests.tools.plausible import PROVENANCE
from tests.tools.tracking_examples import generation
from tests.unit.test_components import Reader

ROOT = Path(__file__).parents[2]
GOLDEN_FILE = ROOT / "tests" / "golden" / "database.sql"
N = 12
ANN = Person("Ann", "admin")
TARGET, EXACT, WORDY = (
    DecodingConfig(acceptance=rule) for rule in (Autoregressive(), Speculative(), FuzzyReducible(threshold=0.3))
)


@pytest.fixture
def runs(repository: Repository) -> list[RunView]:
    """The target alone, exact SD with its texts in half of the time, and a rule with answers twice as long, at three
    times the tokens per second."""
    config = SweepConfig(name="One", limit=N, decodings=(TARGET, EXACT, WORDY))
    id = repository.create_experiment(config, enqueue=False)
    for run in repository.experiment(id).runs:
        seconds, tokens = {"autoregressive": (1.0, 10), "speculative": (0.5, 10)}.get(
            run.decoding.acceptance.kind, (2 / 3, 20)
        )
        repository.start_run(run.id, PROVENANCE)
        done = []
        for i in range(N):
            text = f"so #### {i}" if tokens == 10 else f"so, as one may see, #### {i}"
            jitter = 1 + 0.01 * ((i * 7 + run.position) % 5 - 2)
            done.append(replace(generation(i, text), tokens=tokens, seconds=seconds * jitter, drafted=8, accepted=6))
            repository.record_generation(run.id, done[-1])
        repository.finish_run(run.id, summarise(done, (g.records for g in done)))
    return list(repository.experiment(id).runs)


def test_times_as_fast_is_of_the_time_per_answer_wherever_it_stands(
    repository: Repository, runs: list[RunView]
) -> None:
    target, _, wordy = runs
    prompts = repository.prompts(run.id for run in runs)
    fast = speedup(wordy, target, prompts)
    tokens = throughput_ratio(wordy, target, prompts)
    assert fast is not None
    assert tokens is not None
    assert fast.value == pytest.approx(1.5, rel=0.02)
    assert tokens.value == pytest.approx(3.0, rel=0.02)  # the tokens of longer answers gain nobody time

    measured = Measurements(range(N), {run.decoding: prompts[run.id] for run in runs})
    assert calibrated_speedup(measured, WORDY, TARGET, 0, N) == pytest.approx(tuple(fast))
    comparison = compare(repository, [run.id for run in runs], target.id)
    row = pd.read_csv(io.StringIO(csv_text(comparison))).iloc[2]
    assert row["speedup"] == pytest.approx(fast.value)
    assert (row["speedup_low"], row["speedup_high"]) == pytest.approx((fast.low, fast.high))
    assert "1.50× as fast" in Reader(comparison_html(comparison)).text
    (found,) = evidence(Requirements(margin=None, least_speedup=2.0), [wordy], [target], prompts)
    (check,) = found.findings
    assert (check.outcome, "1.50 times as fast" in check.text, "by time per answer" in check.text) == (
        "not met", True, True,
    )  # fmt: skip
    page = Reader(setting_page(repository, wordy.setting_id)).text
    assert "1.50 ×" in page  # beside the target
    assert "Tokens/s" not in page


def test_a_proposal_says_times_as_fast_by_time_per_answer(repository: Repository, runs: list[RunView]) -> None:
    service = ReviewService(repository)
    use = service.describe(ANN, "One", requirements=Requirements(margin=20.0)).id
    proposal = service.propose(ANN, use, [runs[2].id], [runs[0].id])
    text = Reader(evidence_html(service.review(proposal))).text
    assert "Times as fast" in text
    assert "1.50 ×" in text
    assert "by time per answer" in text


def test_identical_texts_are_told_as_identical_and_nothing_is_tested(
    repository: Repository, runs: list[RunView]
) -> None:
    comparison = compare(repository, [run.id for run in runs], runs[0].id)
    exact, wordy = (comparison.rows[i].verdict for i in (1, 2))
    assert exact is not None
    assert wordy is not None
    assert (exact.kind, exact.p_value, exact.prompts) == ("identical", None, None)
    assert exact.sentence(2.0) == f"Texts identical on all {N} prompts"
    assert wordy.kind == "undecided"  # other texts with the same answers: twelve show nothing within 2 points
    html = Reader(comparison_html(comparison)).text
    assert "Texts identical on all 12 prompts" in html
    service = ReviewService(repository)
    use = service.describe(ANN, "Exact", requirements=Requirements(margin=2.0)).id
    review = service.review(service.propose(ANN, use, [runs[1].id], [runs[0].id]))
    (check,) = review.evidence[0].findings
    assert check.outcome == "met"
    assert check.text.startswith("Texts identical on all 12 prompts")
    assert "Not enough" not in check.text


@pytest.mark.parametrize("change", [{"text": "another"}, {"outcome": "failed", "text": ""}])
def test_one_other_text_or_a_failure_is_not_identical(repository: Repository, change: dict[str, Any]) -> None:
    config = SweepConfig(name="Two", limit=2, decodings=(TARGET, EXACT))
    runs = repository.experiment(repository.create_experiment(config, enqueue=False)).runs
    for run in runs:
        repository.start_run(run.id, PROVENANCE)
        done = [generation(i, "so #### 5") for i in range(2)]
        done[1] = replace(done[1], **change) if run.position or change["text"] == "" else done[1]
        for record in done:
            repository.record_generation(run.id, record)
        repository.finish_run(run.id, summarise(done, (g.records for g in done)))
    found = compare(repository, [run.id for run in runs], runs[0].id).rows[1].verdict
    assert found is not None
    assert found.kind == "undecided"


def test_a_number_of_prompts_says_what_they_would_show() -> None:
    few = verdict(paired_difference({0: True, 1: True, 2: False}, {0: True, 1: True, 2: True}), 2.0)
    assert (
        few.sentence(2.0) == f"Not enough prompts: about {few.prompts:,} in all would show it within 2 points, or worse"
    )
    assert few.sentence(0.0).endswith("in all would show it better, or worse")


def test_a_finalist_says_of_what_its_points_are() -> None:
    found = SettingResult(WORDY, 224, True, -0.004, -0.02, 0.92, 2.19, Interval(2.1, 2.3), 3.4)
    assert finding_text(found) == (
        "−0.4 points of accuracy against the target (at least −2.0 with 95 % confidence), 92 % of drafted tokens "
        "accepted, on 224 fresh prompts; 2.19 × [2.10, 2.30] as fast as exact SD and 3.40 × as fast as the target "
        "alone, by time per answer"
    )


def test_a_run_of_before_has_its_time_per_answer_in_lists(tmp_path: Path) -> None:
    """It was measured before that was a metric: the migration computes it from the prompts that did not fail."""
    url = sqlite_url(tmp_path / "old.db")
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.executescript(GOLDEN_FILE.read_text(encoding="utf-8"))
        stored = [json.loads(row[0]) for row in old.execute("SELECT metrics FROM runs WHERE metrics IS NOT NULL")]
    old.close()
    assert stored
    assert all("seconds_per_answer" not in metrics for metrics in stored)
    upgrade(url)
    database = open_database(url)
    repository = Repository(database)
    measured = [run for run in repository.runs(limit=None) if run.metrics]
    assert len(measured) == len(stored)
    for run in measured:
        done = [count.seconds for count in repository.prompts([run.id])[run.id].values() if count.outcome != "failed"]
        assert (run.metrics or {}).get("seconds_per_answer") == pytest.approx(sum(done) / len(done))
        assert {count.cpu_seconds for count in repository.prompts([run.id])[run.id].values()} == {None}
    database.close()


def test_texts_of_an_experiment_are_not_called_prompts(repository: Repository) -> None:
    id = plausible.add_finished(repository, limit=3)
    card = Reader(experiments_html([repository.experiment(id)], {})).text
    assert "21 of 21 texts (7 runs × 3 prompts)" in card
    assert "21 of 21 prompts" not in card


def test_a_file_says_the_unit_of_what_is_no_share(repository: Repository) -> None:
    id = plausible.add_finished(repository)
    comparison = compare(repository, [run.id for run in repository.experiment(id).runs], None, 2.0)
    table = pd.read_csv(io.StringIO(csv_text(comparison)))
    assert set(table["margin_share"]) == {0.02}  # in the unit of accuracy_difference
    assert max(abs(value) for value in table["accuracy_difference"].dropna()) <= 1
    assert table["lenient_tokens"].tolist() == table["fuzzy_tokens"].tolist()
    matched = pd.read_csv(io.StringIO(matched_csv(comparison)))
    assert set(matched[matched.point == "ratio"]["at_unit"]) == {"times"}
    assert set(matched[matched.point == "margin"]["at_unit"]) == {"points"}
    assert set(matched["difference_unit"]) == {"share"}


def test_the_terms_have_a_row_for_each_figure_with_its_title_and_its_key() -> None:
    section = (
        (ROOT / "docs" / "terms.md").read_text(encoding="utf-8").split("### One figure, one name")[1].split("###")[0]
    )
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:3]] for line in section.splitlines() if line.startswith("| ")
    ]
    assert rows[1:] == [[metric.title, key] for key, metric in METRICS.items()]


def test_no_table_of_ours_calls_the_acceptance_length_otherwise() -> None:
    """A run's generated cards and what a serving engine's test writes keep the words of their day."""
    former = re.compile(r"tokens (a|per) (round|pass)", re.IGNORECASE)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    heads = [
        (page.name, head)
        for page in pages
        if page.name != "engines.md"
        for head in re.findall(r"^(\|.*)\n\|[-| :]+\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert heads
    assert not [(name, head) for name, head in heads if former.search(head)]


MARK = ROUGH_MARK.strip()


@pytest.fixture(scope="module")
def rough_repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    repository = plausible.new_repository(tmp_path_factory.mktemp("home"))
    yield repository
    repository._database.close()


def comparison(repository: Repository, limit: int) -> ComparedRuns:
    experiment = plausible.add_finished(repository, f"Of {limit}", limit=limit)
    return compare(repository, experiment_runs(repository, experiment), None)


@pytest.fixture(scope="module")
def few(rough_repository: Repository) -> ComparedRuns:
    """Runs of two prompts, which are too few for an interval of a ratio."""
    return comparison(rough_repository, 2)


@pytest.fixture(scope="module")
def many(rough_repository: Repository) -> ComparedRuns:
    return comparison(rough_repository, plausible.PROMPTS)


def strict(compared: ComparedRuns) -> RunView:
    """The run of exact speculative decoding."""
    return next(run for run in compared.runs if run.decoding.acceptance.kind == "speculative")


def hints(html: str) -> int:
    """How many marks there are, each of which says what it means."""
    elements = [attributes for tag, attributes in Reader(html).elements if tag == "span"]
    return [attributes.get("aria-label") for attributes in elements].count(NO_INTERVAL)


@pytest.mark.parametrize("key", ["accuracy", "same_text", "seconds_per_answer", "mean_tokens", "excess_nll"])
def test_a_figure_whose_kind_has_an_interval_is_rough_without_one(key: str) -> None:
    assert METRICS[key].is_rough(0.5, None)
    assert not METRICS[key].is_rough(0.5, 0.4)


@pytest.mark.parametrize("key", ["seconds", "tokens", "seconds_per_solved_task", "time_to_first_token", "peak_memory"])
def test_a_figure_whose_kind_never_has_one_stays_bare(key: str) -> None:
    assert METRICS[key].written(0.5).with_ends(" [{}, {}]") == METRICS[key].written(0.5).value


def test_one_token_a_pass_is_what_decoding_without_drafts_has_by_definition() -> None:
    assert METRICS["mean_acceptance_length"].written(1.0).mark == ""
    assert METRICS["mean_acceptance_length"].written(1.5).mark == ROUGH_MARK


@pytest.mark.wide
def test_the_command_line_marks_it(few: ComparedRuns, many: ComparedRuns, capsys: pytest.CaptureFixture[str]) -> None:
    run = strict(few)
    output.print_runs([run])
    assert capsys.readouterr().out.count(ROUGH_MARK) == 5  # all but accuracy, time per solved, and the count of tokens
    output.print_runs([strict(many)])
    assert MARK not in capsys.readouterr().out
    assert MARK not in str(output.run_json(run))


@pytest.mark.wide
def test_a_run_s_page_and_the_list_mark_it_and_say_why(few: ComparedRuns, many: ComparedRuns) -> None:
    run = strict(few)
    for html, marks in ((tiles_html(run), 3), (RUNS.html([run], columns=",".join(RUNS.columns)), 5)):
        assert Reader(html).text.count(MARK) == hints(html) == marks
    assert MARK in Reader(further_tiles_html(run)).text
    whole = strict(many)
    assert MARK not in tiles_html(whole) + RUNS.html([whole])


def test_compare_and_its_files_for_readers_mark_it(few: ComparedRuns, many: ComparedRuns) -> None:
    assert hints(comparison_html(few)) > len(few.rows)
    assert f". {NO_INTERVAL}" in answers_html(few)
    assert MARK in Reader(answers_html(few)).text
    assert ROUGH_MARK in markdown(few, "Few")
    assert r"\ensuremath{\approx}" in latex(few)
    assert MARK not in answers_html(many)
    of_likelihood = len(many.rows)  # every text here is as likely, which says nothing about others
    assert hints(comparison_html(many)) == markdown(many, "Many").count(ROUGH_MARK) == of_likelihood


def test_files_for_programs_have_the_number_alone(few: ComparedRuns) -> None:
    assert MARK not in csv_text(few)


MOMENT = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
HOSTILE = "<img src=x>${alert(1)}"


def name(
    id: str, label: str, seed: int = 0, experiment: str | None = "Knee", task: str = "arithmetic", pair: str = "bundled"
) -> RunName:
    return RunName(id * 32, label, seed, experiment, task, MOMENT, pair)


def test_a_run_is_called_by_what_tells_it_from_its_neighbours() -> None:
    runs = [name("a", "SD"), name("b", "FSD", 0), name("c", "FSD", 1), name("d", "FSD", 1)]
    assert list(short_names(runs, tasks=False).values()) == [
        "SD", "FSD · seed 0", "FSD · seed 1 · 04 Mar 05:06 · cccccc", "FSD · seed 1 · 04 Mar 05:06 · dddddd",
    ]  # fmt: skip
    assert short_names(runs[:1], tasks=True) == {"a" * 32: "SD · arithmetic"}


def test_runs_stand_under_their_experiment_and_the_chosen_ones_are_ticked() -> None:
    html = picker_html([name("a", "SD"), name("b", HOSTILE), name("c", "SD", experiment=None)], ["b" * 32])
    assert html.count("<fieldset") == 2
    assert WITHOUT_EXPERIMENT in html
    assert f'value="{"b" * 32}" checked' in html
    assert html.count(" checked") == 1
    assert "1 run chosen" in html
    assert '<details class="pick" data-list="" data-chosen' in html
    assert "open" not in html.partition(">")[0]
    assert " open>" in picker_html([name("a", "SD")], [])
    assert "<img" not in html
    assert "${" not in html
    assert picker_html([], []) == ""


def test_the_pair_stands_once_above_a_group_or_beside_each_run_where_they_differ() -> None:
    alike = picker_html([name("a", "SD"), name("b", "FSD")], [])
    assert alike.count("Bundled arithmetic pair") == 2  # on the heading, and in what the search reads of it
    assert "04 Mar 2026 05:06 · Bundled arithmetic pair</span>" in alike
    mixed = [name("a", "SD", experiment=None), name("b", "SD", experiment=None, pair="path:elsewhere")]
    assert list(short_names(mixed, tasks=False).values()) == ["SD · Bundled arithmetic pair", "SD · path:elsewhere"]
