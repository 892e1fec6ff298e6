"""A figure without the interval that its kind has does not look exact; files for programs have the number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboard.compare.compared_runs import ComparedRuns, compare, experiment_runs
from dashboard.compare.comparison_html import answers_html, comparison_html
from dashboard.compare.export import csv_text, latex, markdown
from dashboard.runs.opened_run import further_tiles_html, tiles_html
from dashboard.runs.run_list import COLUMNS, runs_html
from fsd_core.cli import output
from fsd_core.metrics import METRICS
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.texts import NO_INTERVAL, ROUGH_MARK
from tests.tools import plausible
from tests.unit.test_components import Reader

MARK = ROUGH_MARK.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    repository = plausible.new_repository(tmp_path_factory.mktemp("home"))
    yield repository
    repository._database.close()


def comparison(repository: Repository, limit: int) -> ComparedRuns:
    experiment = plausible.add_finished(repository, f"Of {limit}", limit=limit)
    return compare(repository, experiment_runs(repository, experiment), None)


@pytest.fixture(scope="module")
def few(repository: Repository) -> ComparedRuns:
    """Runs of two prompts, which are too few for an interval of a ratio."""
    return comparison(repository, 2)


@pytest.fixture(scope="module")
def many(repository: Repository) -> ComparedRuns:
    return comparison(repository, plausible.PROMPTS)


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
    for html, marks in ((tiles_html(run), 3), (runs_html([run], filtered=False, columns=tuple(COLUMNS)), 5)):
        assert Reader(html).text.count(MARK) == hints(html) == marks
    assert MARK in Reader(further_tiles_html(run)).text
    whole = strict(many)
    assert MARK not in tiles_html(whole) + runs_html([whole], filtered=False)


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
