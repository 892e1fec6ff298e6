"""A calibration's summary: one bound at every door, and no rank where the machine tells no times apart."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dashboard.compare.compared_runs import ComparedRuns, compare, experiment_runs, selected_runs
from dashboard.compare.comparison_html import answers_html, comparison_html
from dashboard.compare.export import markdown, named_runs, query_of
from dashboard.compare.export import record as exported
from dashboard.review.opened_proposal import evidence_html
from dashboard.settings import measurements, runs_html, runs_of
from dashboard.tables.run_record import calibration_html
from dashboard.ui.components import perform
from fsd_core.analysis.cells import speedup
from fsd_core.calibration.findings import Measurements, TargetAccuracy
from fsd_core.calibration.planning import Outcome, best_exact, next_step
from fsd_core.calibration.summary import as_json, calibration_status, headline, verdict
from fsd_core.calibration.summary import verdict as verdict_of
from fsd_core.config import (
    ChainTopology,
    DecodingConfig,
    FuzzyReducible,
    RunConfig,
    SettingConfig,
    Speculative,
    SweepConfig,
)
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.errors import NotApplicable, Refused, WrongState
from fsd_core.evaluation.aggregate import summarise
from fsd_core.evaluation.versus import equal_text, rank_by_time
from fsd_core.metrics import MOST_TAKEN, taken, taken_sentence
from fsd_core.review.approvals import check_setting
from fsd_core.review.evidence import fresh_rounds, pooled
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.statistics.intervals import wilson
from fsd_core.statistics.paired import LEVEL, p_value, paired_difference, sequential_difference
from fsd_core.statistics.paired import verdict as paired_verdict
from fsd_core.storage.records import PromptCounts, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import number_text
from tests.tools.plausible import PROVENANCE, new_repository
from tests.tools.searched import CHOOSING, FRESH, LOSSY, MARGIN, ONE_LOST, SOLVED, Searched, search
from tests.tools.tracking_examples import generation, sweep
from tests.unit.test_components import Reader

N = 40
ANN, VIEWER = Person("Ann", "author"), Person("Vic", "viewer")
EXACT = {n: DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=n)) for n in (4, 8, 16)}


def side(seconds: float, rounds: int, *, spread: float = 0.1, taken: float | None = None, start: int = 0) -> dict:
    """Prompts whose times differ by chance, the fewer of which the processor was ours."""
    made = {}
    for i in range(N):
        wall = seconds * (1 + spread * (((start + 7 * i) % 11) / 5 - 1))
        cpu = None if taken is None else wall * (1 - taken)
        made[i] = PromptCounts("correct", "eos", 40, rounds, 40, 30, 0, 1.0, wall, 0.01, cpu_seconds=cpu)
    return made


def test_what_differs_by_less_than_the_noise_is_ranked_by_target_passes() -> None:
    near = {"γ 8": side(1.0, 12), "γ 12": side(1.01, 10, start=3), "γ 16": side(1.02, 8, start=5), "γ 2": side(2.0, 20)}
    found = rank_by_time(near)
    assert (found.first, found.equal) == ("γ 16", ("γ 12", "γ 8"))  # fewest passes first; γ 2 is surely slower
    assert 0 < found.within < 0.03
    clear = rank_by_time({"a": side(1.0, 12, spread=0.01), "b": side(1.2, 8, spread=0.01)})
    assert (clear.first, clear.equal, clear.within) == ("a", (), 0.0)


def test_what_other_programs_took_could_have_fallen_on_either() -> None:
    """A fifth slower, beyond doubt by the prompts: a quiet machine tells it, one that lost 40 % does not."""
    quiet = rank_by_time({"fast": side(1.0, 12, spread=0.01, taken=0.0), "few": side(1.2, 8, spread=0.01, taken=0.0)})
    busy = rank_by_time({"fast": side(1.0, 12, spread=0.01, taken=0.4), "few": side(1.2, 8, spread=0.01, taken=0.4)})
    assert (quiet.first, quiet.taken) == ("fast", 0.0)
    assert (busy.first, busy.equal) == ("fast", ("few",))  # not told apart, and still the one to prefer
    assert busy.taken == pytest.approx(0.4)


def test_the_share_that_was_taken() -> None:
    assert taken([(2.0, 1.5), (2.0, 3.5), (1.0, None)]) == pytest.approx(0.5 / 4)  # threads of one text hide no other
    assert taken([(1.0, None)]) is None
    assert taken_sentence(None) == ""
    assert taken_sentence(0.02) == "Other programs took 2 % of the decoding time."
    assert "time it again when the machine is quiet" in taken_sentence(MOST_TAKEN + 0.01)


def test_settings_that_differ_in_their_draft_length_are_named_by_it() -> None:
    labels = [EXACT[n].label for n in (16, 8, 4)]
    assert equal_text(labels, 0.024) == "SD: γ 4 to 16 are equal within 3 % in time per answer"
    assert equal_text(["A", "B · γ 4"], 0.001) == "A and B · γ 4 are equal within 1 % in time per answer"


def test_a_verdict_names_the_lengths_that_are_as_fast_and_what_was_taken() -> None:
    config = CalibrationConfig(decodings=tuple(EXACT.values()), goal="speed", limit=N, choosing=8)
    sides = (2.0, 40), (1.0, 12), (1.01, 9), (1.02, 7)
    settings = config.target, *EXACT.values()
    counts = {
        one: side(seconds, rounds, taken=0.01, start=2 * i)
        for i, (one, (seconds, rounds)) in enumerate(zip(settings, sides, strict=True))
    }
    evidence = Measurements(range(N), counts)
    assert best_exact(evidence, list(EXACT.values()), 8) == EXACT[16]
    outcome = next_step(config, evidence)
    assert isinstance(outcome, Outcome)
    assert outcome.chosen.decoding == EXACT[16]
    assert outcome.equal == (EXACT[8], EXACT[4])  # fewest target passes first
    told = verdict(config, outcome)
    assert (
        "SD: γ 4 to 16 are equal within 3 % in time per answer; of those that may be the "
        "fastest, what is chosen needs the fewest target passes." in told
    )
    assert told.endswith("Other programs took 1 % of the decoding time.")
    data = as_json(config, outcome)
    assert [one["label"] for one in data["equal_in_time"]] == [one.label for one in outcome.equal]
    assert data["taken_share"] == pytest.approx(0.01)


# --- in a database: a calibration, its finalists timed again, Compare, a proposal


def asked() -> CalibrationConfig:
    found = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.1,0.3", "draft_length": [5]})
    return CalibrationConfig(decodings=tuple(found), goal="speed", limit=40, choosing=8)


def seconds_of(decoding: DecodingConfig, busy: bool) -> float:
    """Of an answer: on the busy machine the better rule lost what it gains."""
    kind = decoding.acceptance.kind
    if kind == "autoregressive":
        return 1.0
    if decoding.acceptance.lossless:
        return 0.5
    return 0.4 if busy or decoding.threshold == 0.1 else 0.25


def write(repository: Repository, run: RunView, *, busy: bool) -> None:
    repository.start_run(run.id, PROVENANCE)
    done = []
    for i in run.config.positions(600):
        seconds = seconds_of(run.decoding, busy) * (1 + 0.02 * (i % 5 - 2))
        record = replace(generation(i, f"so #### {i}"), seconds=seconds, cpu_seconds=seconds * (0.6 if busy else 0.99))
        done.append(record)
        repository.record_generation(run.id, record)
    repository.finish_run(run.id, summarise(done, (g.records for g in done)))


def outcome_of(repository: Repository, id: str) -> Outcome:
    experiment = repository.experiment(id)
    assert isinstance(experiment.config, CalibrationConfig)
    status = calibration_status(repository, experiment.config, experiment.runs)
    assert isinstance(status, Outcome)
    return status


@pytest.fixture
def calibration(repository: Repository) -> str:
    """One that ended on a busy machine."""
    config = asked()
    id = repository.create_experiment(config, enqueue=False)
    while not isinstance(at := calibration_status(repository, config, repository.experiment(id).runs), Outcome):
        for run in repository.runs(
            repository.extend_experiment(id, config.round_runs(at.decodings, at.start, at.end)), limit=None
        ):
            write(repository, run, busy=True)
    return id


def test_finalists_are_timed_again_and_only_times_change(
    repository: Repository, calibration: str, tmp_path: Path
) -> None:
    before = outcome_of(repository, calibration)
    assert before.taken == pytest.approx(0.4)
    card = calibration_html(repository, repository.experiment(calibration))
    assert card is not None
    assert "time-again" in card
    assert "took 40 % of the decoding time: time it again when the machine is quiet." in Reader(card).text

    (tmp_path / "runs").mkdir()
    with pytest.raises(Refused):
        perform(repository, tmp_path, VIEWER, "time-again", "experiment", calibration)
    said = perform(repository, tmp_path, ANN, "time-again", "experiment", calibration)
    again = [run for run in repository.experiment(calibration).runs if run.config.again]
    assert [run.decoding for run in again] == [*before.timed]
    assert {(run.config.first, run.config.limit) for run in again} == {(8, before.chosen.prompts)}
    assert said.endswith(f"are timed again on {before.chosen.prompts} prompts.")
    assert repository.find_job(calibration) is not None  # the worker does them
    with pytest.raises(WrongState):
        repository.time_again(calibration, [run.config for run in again])
    for run in again:
        write(repository, run, busy=False)

    after = outcome_of(repository, calibration)
    assert after.timed_again
    assert after.taken == pytest.approx(0.01)
    assert after.chosen.decoding.threshold == 0.3
    assert after.chosen.over_exact == pytest.approx(2.0, rel=0.02)
    assert [one.prompts for one in after.finalists] == [one.prompts for one in before.finalists]
    assert after.reason == before.reason
    config = repository.experiment(calibration).config
    assert isinstance(config, CalibrationConfig)
    assert "Its times are those of a second time. Other programs took 1 %" in verdict(config, after)

    setting = SettingConfig(pair="bundled", decoding=after.chosen.decoding).id
    target = SettingConfig(pair="bundled", decoding=config.target).id
    sides = [fresh_rounds(repository, calibration, one) for one in (setting, target)]
    prompts = repository.prompts(run.id for one in sides for run in one)
    pool, reference = (pooled(repository, one, prompts)[0] for one in sides)
    both = {pool.run.id: pool.prompts, reference.run.id: reference.prompts}
    fast = speedup(pool.run, reference.run, both)
    assert fast is not None
    assert fast.value == pytest.approx(after.chosen.over_target)  # of the verdict and of its proposal
    assert pool.run.prompts_done == pool.run.prompts_total == after.chosen.prompts

    use = ReviewService(repository).describe(Person("Ada", "admin"), "Fast", requirements=Requirements(margin=20)).id
    service = ReviewService(repository)
    proposal = service.propose(ANN, use, [run.id for run in sides[0]], [run.id for run in sides[1]])
    text = Reader(evidence_html(service.review(proposal))).text
    assert "Taken by other programs1 %" in text


def test_a_second_time_on_the_prompts_that_chose_is_read(repository: Repository, calibration: str) -> None:
    """As where near ties of the verdict have done no fresh prompts."""
    before, config = outcome_of(repository, calibration), repository.experiment(calibration).config
    assert isinstance(config, CalibrationConfig)
    ids = repository.extend_experiment(calibration, config.round_runs(before.timed, 0, 8, again=True))
    for run in repository.runs(ids, limit=None):
        write(repository, run, busy=False)
    after = outcome_of(repository, calibration)
    assert after.timed_again
    for one in (after.chosen, *after.finalists):
        assert math.isfinite(one.over_exact)
        assert math.isfinite(one.over_target)
    assert after.chosen.over_target == pytest.approx(4.0, rel=0.02)
    assert "nan" not in verdict(config, after)
    unknown = replace(after, chosen=replace(after.chosen, over_exact=None, over_target=None))
    assert "nan" not in verdict(config, unknown)


def test_a_run_of_a_second_time_is_stored_apart_and_older_runs_keep_their_hash() -> None:
    config = asked()
    (first,) = config.round_runs([config.target], 8, 16)
    (second,) = config.round_runs([config.target], 8, 16, again=True)
    assert "again" not in first.as_json()
    assert second.as_json()["again"] is True
    assert RunConfig.model_validate(first.as_json()) == first


def test_only_an_ended_calibration_is_timed_again(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    ordinary = repository.create_experiment(sweep(), enqueue=False)
    with pytest.raises(NotApplicable):
        perform(repository, tmp_path, ANN, "time-again", "experiment", ordinary)
    begun = repository.create_experiment(asked(), enqueue=False)
    with pytest.raises(WrongState):
        perform(repository, tmp_path, ANN, "time-again", "experiment", begun)


def test_compare_and_a_proposal_doubt_the_times_of_a_busy_machine(repository: Repository) -> None:

    rules = (*EXACT.values(), DecodingConfig(acceptance=FuzzyReducible(threshold=0.3)))
    id = repository.create_experiment(SweepConfig(name="Busy", limit=12, decodings=rules), enqueue=False)
    for run in repository.experiment(id).runs:
        write(repository, run, busy=True)
    runs = [run.id for run in repository.experiment(id).runs]
    comparison = compare(repository, runs[:3], runs[0])
    text = Reader(comparison_html(comparison)).text
    assert "SD: γ 4 to 16 are equal within 1 % in time per answer" in text
    assert "Other programs took 40 % of the decoding time: time it again" in text
    assert "Other programs took 40 %" in markdown(comparison, "Busy")
    service = ReviewService(repository)
    use = service.describe(Person("Ada", "admin"), "Fast", requirements=Requirements(margin=None, least_speedup=1.1)).id
    review = service.review(service.propose(ANN, use, [runs[3]], [runs[0]]))
    (check,) = review.evidence[0].findings
    assert check.outcome == "undecided"
    assert check.text.endswith("but other programs took 40 % of the time")


BOUND_ANN = Person("Ann", "admin")


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
    assert paired_verdict(fixed, MARGIN).kind == "non-inferior"
    assert first.at_least is not None
    assert first.at_least < -MARGIN / 100


def test_a_proposal_and_its_check_say_what_the_calibration_says(searched: Searched) -> None:
    service = ReviewService(searched.repository)
    use = service.describe(BOUND_ANN, "Sums", requirements=Requirements(margin=MARGIN)).id
    runs, baselines = (searched.runs(one) for one in (searched.outcome.finalists[0].decoding, searched.config.target))
    review = service.review(service.propose(BOUND_ANN, use, runs, baselines))
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
    use = service.describe(BOUND_ANN, "Sums", requirements=Requirements(margin=10.0)).id
    told = sure.outcome.chosen
    proposal = service.propose(BOUND_ANN, use, sure.runs(told.decoding), sure.runs(sure.config.target))
    ((finding,),) = [one.findings for one in service.review(proposal).evidence]
    assert (finding.outcome, told.sure) == ("met", True)
    gains = dict(enumerate([-1.0] * 12 + [0.0] * 20))
    ruined = sequential_difference(gains, {}, {}, 1, 0.475, 3)
    assert paired_verdict(ruined, MARGIN).kind == "worse"
    assert ruined.interval.low < ruined.difference < ruined.interval.high < 0
    assert (
        paired_verdict(sequential_difference(dict(enumerate([-1.0, 0.0])), {}, {}, 1, 0.475, 3), MARGIN).kind
        == "undecided"
    )


@pytest.mark.wide
def test_prompts_that_are_added_until_they_suffice_fool_the_fixed_interval_and_not_the_bets() -> None:
    """A setting that loses just the margin, looked at after each 16 prompts. Once of twenty may be wrong."""
    rng, fooled, worlds = np.random.default_rng(5), np.zeros(2), 100
    for _ in range(worlds):
        lost = rng.random(480) < 0.1
        fooled[0] += any(p_value(0, int(lost[:end].sum()), end, 0.1) < LEVEL for end in range(32, 481, 16))
        bets = sequential_difference(dict(enumerate((-lost.astype(float)).tolist())), {}, {}, 1, 0.45, 1)
        fooled[1] += paired_verdict(bets, 10).kind == "non-inferior"  # its capital is the highest at any look
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
