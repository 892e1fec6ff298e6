"""One question has one bound: what a calibration shows of a setting is the same figure, and decides, at every door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dashboard.settings.measurements import measurements, runs_of
from dashboard.settings.setting_html import runs_html
from fsd_core.calibration.planning import CalibrationStep, Outcome
from fsd_core.calibration.status import calibration_status
from fsd_core.config import DecodingConfig, SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.evaluation.aggregate import summarise
from fsd_core.formatting import number
from fsd_core.review.approvals import check_setting
from fsd_core.review.pooling import fresh_rounds
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.statistics.noninferiority import LEVEL, p_value, verdict
from fsd_core.statistics.paired import paired_difference, sequential_difference
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.tasks.generators import long_problems
from tests.tools.plausible import PROVENANCE, generation, new_repository, record

ANN = Person("Ann", "admin")
CHOOSING, FRESH, MARGIN = 16, 112, 5.0
FOUND = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.1, 0.2, 0.4", "draft_length": [5]})
LOSSY = [one for one in FOUND if not one.acceptance.lossless]
SOLVED: Callable[[int], bool] = lambda place: place % 10 > 0  # noqa: E731
"""by the place of a prompt in the order of its use: what the target solves"""
ONE_LOST: Callable[[int], bool] = lambda place: SOLVED(place) and place != 61  # noqa: E731


class Searched(NamedTuple):
    """A calibration that has ended."""

    repository: Repository
    id: str
    config: CalibrationConfig
    outcome: Outcome

    def runs(self, decoding: DecodingConfig) -> list[str]:
        setting = SettingConfig(pair=self.config.pair, decoding=decoding).id
        return [run.id for run in fresh_rounds(self.repository, self.id, setting)]


def search(
    repository: Repository, solved: Mapping[DecodingConfig, Callable[[int], bool]],
    target: Callable[[int], bool] = SOLVED, margin: float = MARGIN,
) -> Searched:  # fmt: skip
    """A calibration in which the lossy settings solve these prompts, and everything exact what the target does."""
    config = CalibrationConfig(
        name="Sums", decodings=tuple(FOUND), margin=margin, limit=CHOOSING + FRESH, choosing=CHOOSING, minutes=1000
    )  # fmt: skip
    id, problems = repository.create_experiment(config, enqueue=False), long_problems.held_out(600)
    places = {position: place for place, position in enumerate(config.round_runs(FOUND, 0, 600)[0].positions(600))}
    while isinstance(at := calibration_status(repository, config, repository.experiment(id).runs), CalibrationStep):
        for run in repository.runs(repository.extend_experiment(id, config.round_runs(at.decodings, at.start, at.end))):
            repository.start_run(run.id, PROVENANCE)
            speed = 4.0 if run.decoding == config.target else 2.0 if run.decoding.acceptance.lossless else 1.0
            texts = []
            for position in run.config.positions(600):
                right = solved.get(run.decoding, target)(places[position])
                text = generation(run, position, problems[position])
                seconds = speed * (1 + 0.01 * (position % 7))
                texts.append(
                    replace(text, outcome="correct" if right else "wrong", seconds=seconds, cpu_seconds=seconds)
                )
            record(repository, run.id, texts)
            repository.finish_run(run.id, summarise(texts, (text.records for text in texts)))
    return Searched(repository, id, config, at)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """112 fresh prompts, of which the fastest settings lose one: too few for a margin of 5, looked at as often."""
    return search(new_repository(tmp_path_factory.mktemp("searched")), dict.fromkeys(LOSSY, ONE_LOST))


def bound(searched: Searched) -> str:
    """The lower bound in points that the calibration tells of its first finalist."""
    told = searched.outcome.finalists[0].at_least
    assert told is not None
    return number(100 * told, 1, signed=True)


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
