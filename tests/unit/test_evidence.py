"""A calibration as evidence: its turns on fresh prompts, pooled by prompt, and none of those that chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from fsd_core.analysis.cells import against
from fsd_core.config import DecodingConfig, SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.errors import UnfitEvidence
from fsd_core.metrics import METRICS
from fsd_core.review.evidence import fresh_rounds, grouped, pooled
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.statistics.paired import paired_difference
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Proposed, Requirements
from tests.tools.copies import copy_of
from tests.tools.plausible import add_finished, filled_file, finish

ANN = Person("Ann", "author")
ASKED = Requirements(margin=20, least_speedup=1.1, longest_answers=2)
CHOOSING, FRESH = ((0, 8), (8, 16)), ((16, 32), (32, 48), (48, 64))
FOUND = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.2", "draft_length": [5]})
LOSSY = next(one for one in FOUND if not one.acceptance.lossless)


class Calibrated(NamedTuple):
    """A calibration that is done."""

    id: str
    config: CalibrationConfig
    repository: Repository

    def setting(self, one: DecodingConfig) -> str:
        return SettingConfig(pair=self.config.pair, decoding=one).id

    def runs(self, one: DecodingConfig, *, fresh: bool) -> list[RunView]:
        """The turns of a setting, by their place in the order of prompts alone."""
        every = self.repository.experiment(self.id).runs
        return [run for run in every if run.decoding == one and (run.config.first >= 16) == fresh]

    def ids(self, one: DecodingConfig, *, fresh: bool = True) -> list[str]:
        return [run.id for run in self.runs(one, fresh=fresh)]


def calibration(
    repository: Repository, rounds: Sequence[tuple[int, int]] = (*CHOOSING, *FRESH), seed: int = 0
) -> Calibrated:
    config = CalibrationConfig(
        name="Sums", decodings=tuple(FOUND), goal="speed", limit=64, choosing=16, seeds=(seed,)
    )  # fmt: skip
    id = repository.create_experiment(config, enqueue=False)
    for start, end in rounds:
        ids = repository.extend_experiment(id, config.round_runs([config.target, LOSSY], start, end))
        for run in repository.runs(ids, limit=None):
            finish(repository, run)
    return Calibrated(id, config, repository)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Calibrated]:
    """The file of a database with a calibration, and that calibration."""
    return filled_file(tmp_path_factory.mktemp("measured"), calibration)


@pytest.fixture
def repository(measured: tuple[Path, Calibrated], database_url: str) -> Iterator[Repository]:
    with copy_of(measured[0], database_url) as repository:
        yield repository


@pytest.fixture
def done(measured: tuple[Path, Calibrated], repository: Repository) -> Calibrated:
    return measured[1]._replace(repository=repository)


@pytest.fixture
def service(repository: Repository) -> ReviewService:
    service = ReviewService(repository)
    service.describe(ANN, "Sums", requirements=ASKED)
    return service


def outcomes(repository: Repository, ids: Sequence[str]) -> dict[int, bool]:
    return {g.position: g.outcome == "correct" for id in ids for g in repository.generations(id)}


def test_fresh_turns_are_one_measurement_paired_by_prompt(
    service: ReviewService, repository: Repository, done: Calibrated
) -> None:
    runs, baselines = done.ids(LOSSY), done.ids(done.config.target)
    review = service.review(service.propose(ANN, "sums", runs[::-1], baselines))
    (one,) = review.evidence
    assert ([run.id for run in one.setting_pool.runs], [run.id for run in one.baseline_pool.runs]) == (runs, baselines)
    ours, theirs = (outcomes(repository, ids) for ids in (runs, baselines))
    assert ours.keys() == theirs.keys() == {*done.config.round_runs([LOSSY], 16, 64)[0].positions(600)}
    expected = paired_difference(ours, theirs)
    assert one.shared == expected.n == 48
    assert expected.difference < 0
    assert f"{100 * expected.difference:.1f} points".replace("-", "−") in one.findings[0].text
    assert "on 48 prompts" in one.findings[0].text
    assert one.setting_pool.calibration == done.id
    metrics = one.run.metrics or {}
    assert (metrics["n"], one.run.prompts_done, one.run.prompts_total) == (48, 48, 48)
    assert metrics["correct"] == sum(ours.values())
    # The ratio of all prompts, not the mean of the turns' ratios.
    tokens, seconds = (
        [sum(getattr(g, name) for id in ids for g in repository.generations(id)) for ids in (runs, baselines)]
        for name in ("tokens", "seconds")
    )
    ratio = against(one.run, one.baseline, METRICS["tokens_per_second"], one.prompts)
    assert ratio is not None
    assert ratio.value == pytest.approx(tokens[0] / seconds[0] / (tokens[1] / seconds[1]))


def test_the_prompts_that_chose_are_refused_and_where_they_got_in_they_do_not_count(
    service: ReviewService, repository: Repository, done: Calibrated
) -> None:
    chose, fresh, target = done.ids(LOSSY, fresh=False), done.ids(LOSSY), done.ids(done.config.target)
    assert len(chose) == 2
    with pytest.raises(UnfitEvidence, match="helped to choose the setting"):
        service.propose(ANN, "sums", [*fresh, chose[0]], target)
    # As it was proposed before that was refused: the log has them, the evidence has not.
    use, all_targets = service.use("sums"), [*done.ids(done.config.target, fresh=False), *target]
    old = Proposed(
        proposal="a" * 32, setting=done.setting(LOSSY), requirements=ASKED, runs=(*chose, *fresh),
        baselines=tuple(all_targets),
    )  # fmt: skip
    repository.append_events("sums", Person("Ann", "author"), [old], use.sequence)
    before = service.review("a" * 32)
    (one,) = before.evidence
    assert one.shared == 48
    assert one.setting_pool.prompts.keys().isdisjoint(outcomes(repository, chose))
    assert before.evidence[0].findings == service.review(desk_proposed(service, fresh, target)).evidence[0].findings
    # All of them would have been 64: what is left out matters.
    every = [*done.runs(LOSSY, fresh=False), *done.runs(LOSSY, fresh=True)]
    assert len(pooled(repository, every, repository.prompts([*chose, *fresh]))[0].prompts) == 64


def desk_proposed(service: ReviewService, runs: list[str], baselines: list[str]) -> str:
    service.describe(ANN, "Again", requirements=ASKED)
    return service.propose(ANN, "again", runs, baselines)


def test_no_prompt_counts_twice(repository: Repository) -> None:
    done = calibration(repository, (*CHOOSING, (16, 32), (24, 40)))  # turns that overlap, as after a repair
    runs = done.runs(LOSSY, fresh=True)
    prompts = repository.prompts(run.id for run in runs)
    (pool,) = pooled(repository, [*runs, runs[0]], prompts)
    assert len(pool.prompts) == 24 == (pool.run.metrics or {})["n"]
    assert len(pool.runs) == 2
    overlap = prompts[runs[0].id].keys() & prompts[runs[1].id].keys()
    assert {pool.writers[position] for position in overlap} == {runs[1].id}


@pytest.mark.wide
def test_another_calibration_and_an_ordinary_run_are_measurements_of_their_own(
    service: ReviewService, repository: Repository, done: Calibrated
) -> None:
    first, second = done, calibration(repository)  # the same seed, so the same prompts
    ordinary = repository.experiment(add_finished(repository)).runs
    plain = next(run for run in ordinary if run.decoding == LOSSY)
    target = next(run for run in ordinary if run.label == "Target alone")
    runs = [*first.ids(LOSSY), plain.id, *second.ids(LOSSY)]
    baselines = [target.id, *second.ids(second.config.target), *first.ids(first.config.target)]
    review = service.review(service.propose(ANN, "sums", runs, baselines))
    assert [(one.setting_pool.calibration, one.baseline_pool.calibration, one.shared) for one in review.evidence] == [
        (first.id, first.id, 48), (None, None, 24), (second.id, second.id, 48),
    ]  # fmt: skip
    assert [len(group) for group in grouped(repository.runs(runs, limit=None))] != [1] * 7


def test_a_measurement_stands_under_all_conditions_of_its_turns(repository: Repository, done: Calibrated) -> None:
    runs = done.runs(LOSSY, fresh=True)
    prompts = repository.prompts(run.id for run in runs)
    assert pooled(repository, runs, prompts)[0].run.speed_mixed == ()
    other = replace(
        runs[1].measurement_sessions[0],
        conditions={**runs[1].measurement_sessions[0].conditions, "cpu": "Another processor"},
    )
    mixed = [runs[0], replace(runs[1], measurement_sessions=(other,)), runs[2]]
    assert pooled(repository, mixed, prompts)[0].run.speed_mixed != ()


def test_turns_that_can_be_evidence_are_found_by_calibration_and_setting(
    repository: Repository, done: Calibrated
) -> None:
    assert [run.id for run in grouped(fresh_rounds(repository, done.id, done.setting(LOSSY)))[0]] == done.ids(LOSSY)
    sweep = add_finished(repository)
    assert fresh_rounds(repository, sweep, repository.experiment(sweep).runs[0].setting_id) == []
    assert fresh_rounds(repository, "nothing", done.setting(LOSSY)) == []
    only = calibration(repository, CHOOSING)
    assert fresh_rounds(repository, only.id, only.setting(LOSSY)) == []


def test_votes_and_comments_name_the_run_that_wrote_the_prompt(
    service: ReviewService, repository: Repository, done: Calibrated
) -> None:
    runs = done.ids(LOSSY)
    review = service.review(service.propose(ANN, "sums", runs, done.ids(done.config.target)))
    wrote: Callable[[str], int] = lambda id: next(iter(repository.prompts([id])[id]))  # noqa: E731
    service.vote(ANN, review, wrote(runs[2]), "setting", "setting")
    (vote,) = service.review(review.proposal.id).proposal.votes.values()
    assert (vote.run, vote.position) == (runs[2], wrote(runs[2]))
    with pytest.raises(UnfitEvidence, match="have this prompt"):
        service.vote(ANN, review, wrote(done.ids(LOSSY, fresh=False)[0]), "setting", "setting")
