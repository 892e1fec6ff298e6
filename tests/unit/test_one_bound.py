"""One question has one bound: what a calibration shows of a setting is the same figure, and decides, at every door."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dashboard.compare.compared_runs import ComparedRuns, compare, experiment_runs, selected_runs
from dashboard.compare.comparison_html import answers_html
from dashboard.compare.export import named_runs, query_of
from dashboard.compare.export import record as exported
from dashboard.settings import measurements, runs_html, runs_of
from dashboard.tables.run_record import calibration_html
from fsd_core.calibration.findings import TargetAccuracy
from fsd_core.calibration.summary import as_json, headline
from fsd_core.calibration.summary import verdict as verdict_of
from fsd_core.config import SettingConfig
from fsd_core.review.approvals import check_setting
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.statistics.intervals import wilson
from fsd_core.statistics.paired import LEVEL, p_value, paired_difference, sequential_difference, verdict
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import number_text
from tests.tools.plausible import new_repository
from tests.tools.searched import CHOOSING, FRESH, LOSSY, MARGIN, ONE_LOST, SOLVED, Searched, search

ANN = Person("Ann", "admin")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """112 fresh prompts, of which the fastest settings lose one: too few for a margin of 5, looked at as often."""
    return search(new_repository(tmp_path_factory.mktemp("searched")), dict.fromkeys(LOSSY, ONE_LOST))


def bound(searched: Searched) -> str:
    """The lower bound in points that the calibration tells of its first finalist."""
    told = searched.outcome.finalists[0].at_least
    assert told is not None
    return number_text(100 * told, 1, signed=True)


def test_the_world_is_one_in_which_the_two_intervals_differ(searched: Searched) -> None:
    first = searched.outcome.finalists[0]
    assert (searched.outcome.reason, first.sure, first.prompts) == ("hopeless", False, FRESH)
    solved = {place: SOLVED(place) for place in range(CHOOSING, CHOOSING + FRESH)}
    fixed = paired_difference({place: ONE_LOST(place) for place in solved}, solved)
    assert first.difference == pytest.approx(fixed.difference)
    assert verdict(fixed, MARGIN).kind == "non-inferior"
    assert first.at_least is not None
    assert first.at_least < -MARGIN / 100


def test_a_proposal_and_its_check_say_what_the_calibration_says(searched: Searched) -> None:
    service = ReviewService(searched.repository)
    use = service.describe(ANN, "Sums", requirements=Requirements(margin=MARGIN)).id
    runs, baselines = (searched.runs(one) for one in (searched.outcome.finalists[0].decoding, searched.config.target))
    review = service.review(service.propose(ANN, use, runs, baselines))
    ((finding,),) = [one.findings for one in review.evidence]
    assert finding.outcome == "undecided"
    assert f"−0.9 points [{bound(searched)}, " in finding.text
    assert "on 112 prompts, by the bounds of their calibration" in finding.text
    assert review.open_requirements == ("margin",)
    checked = check_setting(searched.repository, service.use(use), review.proposal.setting)
    assert any(f"[{bound(searched)}, " in reason for reason in checked.reasons)


def test_the_page_of_a_setting_shows_the_bound(searched: Searched) -> None:
    setting = SettingConfig(pair="bundled", decoding=searched.outcome.finalists[0].decoding).id
    runs = runs_of(searched.repository, setting)
    assert f"−0.9 points [{bound(searched)}, " in runs_html(measurements(searched.repository, runs), {})


def test_what_is_sure_is_met_and_what_is_ruined_is_not(tmp_path: Path) -> None:
    """The bound of the choice itself decides: the search named the one, and gave up on none of these by chance."""
    sure = search(new_repository(tmp_path), {}, margin=10.0)
    assert sure.outcome.reason == "sure"
    service = ReviewService(sure.repository)
    use = service.describe(ANN, "Sums", requirements=Requirements(margin=10.0)).id
    told = sure.outcome.chosen
    proposal = service.propose(ANN, use, sure.runs(told.decoding), sure.runs(sure.config.target))
    ((finding,),) = [one.findings for one in service.review(proposal).evidence]
    assert (finding.outcome, told.sure) == ("met", True)
    gains = dict(enumerate([-1.0] * 12 + [0.0] * 20))
    ruined = sequential_difference(gains, {}, {}, 1, 0.475, 3)
    assert verdict(ruined, MARGIN).kind == "worse"
    assert ruined.interval.low < ruined.difference < ruined.interval.high < 0
    assert verdict(sequential_difference(dict(enumerate([-1.0, 0.0])), {}, {}, 1, 0.475, 3), MARGIN).kind == "undecided"


@pytest.mark.wide
def test_prompts_that_are_added_until_they_suffice_fool_the_fixed_interval_and_not_the_bets() -> None:
    """A setting that loses just the margin, looked at after each 16 prompts. Once of twenty may be wrong."""
    rng, fooled, worlds = np.random.default_rng(5), np.zeros(2), 100
    for _ in range(worlds):
        lost = rng.random(480) < 0.1
        fooled[0] += any(p_value(0, int(lost[:end].sum()), end, 0.1) < LEVEL for end in range(32, 481, 16))
        bets = sequential_difference(dict(enumerate((-lost.astype(float)).tolist())), {}, {}, 1, 0.45, 1)
        fooled[1] += verdict(bets, 10).kind == "non-inferior"  # its capital is the highest at any look
    assert fooled[0] > 0.075 * worlds
    assert fooled[1] <= 0.05 * worlds


def compared(searched: Searched, ids: list[str] | None = None) -> ComparedRuns:
    return compare(searched.repository, ids or experiment_runs(searched.repository, searched.id), None)


def test_the_whole_calibration_is_compared_as_one_body_of_evidence(searched: Searched) -> None:
    """Also from one round of it, and by the margin of its promise."""
    whole, first = compared(searched), searched.outcome.finalists[0]
    fresh = [run for run in searched.repository.experiment(searched.id).runs if run.config.first >= CHOOSING]
    assert len(whole.rows) == len({run.decoding for run in fresh}) < len(fresh)
    assert whole.margin == MARGIN
    for comparison in (
        whole,
        compared(searched, [searched.runs(one)[2] for one in (searched.config.target, first.decoding)]),
    ):
        row = next(row for row in comparison.rows if row.run.decoding == first.decoding)
        assert row.verdict is not None
        assert (row.verdict.kind, row.verdict.p_value, row.verdict.n) == ("undecided", None, FRESH)
        (paired,) = [cell.paired for cell in row.cells if cell.paired]
        assert paired.interval.low == pytest.approx(first.at_least)
        told = comparison.recommendation
        assert told is not None
        assert f"the calibration has not decided on {row.name}." in told.sentence
        assert told.sentence.endswith(" On 112 prompts.")
        assert told.undecided_id is None
    assert answers_html(whole).count("on 112 prompts, by the bounds of their calibration") >= len(whole.rows) - 1
    assert {exported(row, whole.margin)["mcnemar_p"] for row in whole.rows} == {None}
    again = query_of(whole.runs, whole.baseline, whole.margin)
    assert "margin" not in again
    assert [
        run.ids for run in selected_runs(searched.repository, named_runs(again.removeprefix("runs=").partition("&")[0]))
    ] == [run.ids for run in whole.runs]


def test_what_did_no_fresh_prompts_is_left_out_and_named(tmp_path: Path) -> None:
    slow = search(new_repository(tmp_path), dict.fromkeys(LOSSY, lambda place: place % 2 > 0))
    comparison = compared(slow)
    assert slow.outcome.finalists == ()
    assert [row.run.ids for row in comparison.rows if len(row.run.ids) > 1]  # the turns that chose, as one
    assert {row.verdict for row in comparison.rows if not row.run.decoding.acceptance.lossless} == {None}
    told = comparison.recommendation
    assert told is not None
    assert "no fresh prompt of theirs is scored" in told.sentence


def test_the_search_says_what_the_target_solves(searched: Searched) -> None:
    told = verdict_of(searched.config, searched.outcome)
    assert "The target alone solves 115 of 128 prompts (90 %, 83 to 94)." in told
    answer = as_json(searched.config, searched.outcome)
    assert (answer["target"]["solved"], answer["target"]["prompts"]) == (115, 128)


def test_where_the_target_solves_next_to_nothing_that_is_the_verdict(tmp_path: Path) -> None:
    """It is no setting that keeps the promise, for whatever loses everything would do so, too."""
    lost = search(new_repository(tmp_path), {}, lambda place: place == 3)
    assert lost.outcome.target is not None
    told = f"The target alone solves {lost.outcome.target.text}"
    assert (lost.outcome.reason, lost.outcome.chosen.sure, lost.outcome.more) == ("unsolved", False, None)
    assert headline(lost.config, lost.outcome) == f"{told}: too few to hold a setting against."
    answer = verdict_of(lost.config, lost.outcome)
    assert "The prompts may lack the form that the pair knows" in answer
    assert "Use " not in answer
    card = calibration_html(lost.repository, lost.repository.experiment(lost.id))
    assert card is not None
    assert "Propose" not in card
    assert TargetAccuracy(1, 8, wilson(1, 8)).is_next_to_nothing(2)
    assert not TargetAccuracy(2, 8, wilson(2, 8)).is_next_to_nothing(2)
    assert not TargetAccuracy(60, 600, wilson(60, 600)).is_next_to_nothing(2)  # a hard task
