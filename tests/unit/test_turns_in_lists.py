"""A calibration's turns: one measurement on the page of a setting, and left out of the lists of runs and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from dashboard.compare.compared_runs import compare
from dashboard.runs.opened_experiment import header_html
from dashboard.settings import measurements, runs_of, setting_page
from dashboard.tables.run_record import on_same_prompts, sibling_runs
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.storage.repository import Repository
from tests.tools.copies import copy_of
from tests.tools.plausible import add_finished, filled_file, finish

FOUND = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.1, 0.2", "draft_length": [4, 5]})
EXACT = [one for one in FOUND if one.acceptance.lossless]
LOSSY = [one for one in FOUND if not one.acceptance.lossless]
CONFIG = CalibrationConfig(
    name="Narrowed", decodings=tuple(FOUND), goal="speed", limit=64, choosing=16, seeds=(0,)
)  # fmt: skip
KEPT, DROPPED = LOSSY[0], LOSSY[-1]


def calibration(repository: Repository) -> str:
    """A calibration that is done: all do 8 prompts, some 8 more, one finalist is tried on fresh ones; its id."""
    id = repository.create_experiment(CONFIG, enqueue=False)
    kept = [CONFIG.target, EXACT[0], KEPT]
    for decodings, start, end in (([CONFIG.target, *FOUND], 0, 8), (kept, 8, 16), (kept, 16, 32), (kept, 32, 64)):
        for run in repository.runs(
            repository.extend_experiment(id, CONFIG.round_runs(decodings, start, end)), limit=None
        ):
            finish(repository, run)
    return id


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The file of a database with such a calibration, and its id."""
    return filled_file(tmp_path_factory.mktemp("measured"), calibration)


@pytest.fixture
def repository(measured: tuple[Path, str], database_url: str) -> Iterator[Repository]:
    with copy_of(measured[0], database_url) as repository:
        yield repository


@pytest.fixture
def id(measured: tuple[Path, str]) -> str:
    return measured[1]


def setting(decoding: DecodingConfig) -> str:
    return SettingConfig(pair=CONFIG.pair, decoding=decoding).id


@pytest.mark.wide
def test_turns_are_one_row_against_the_baselines_on_the_same_prompts(repository: Repository, id: str) -> None:
    (one,) = measurements(repository, runs_of(repository, setting(KEPT)))
    assert one.target is not None
    assert one.speculative is not None
    assert len(one.measured.runs) == 4
    assert one.measured.prompts.keys() == one.target.prompts.keys() == one.speculative.prompts.keys()
    assert (len(one.measured.prompts), one.measured.run.prompts_done, (one.measured.run.metrics or {})["n"]) == (
        64,
        64,
        64,
    )
    assert one.speculative.run.decoding == EXACT[0]  # not the one that has 8 of these prompts
    # One that was dropped is held against the turns on its 8 prompts, of either SD.
    (dropped,) = measurements(repository, runs_of(repository, setting(DROPPED)))
    assert dropped.speculative is not None
    assert dropped.measured.prompts.keys() <= dropped.speculative.prompts.keys()
    html = unescape(setting_page(repository, setting(KEPT)))
    assert "Measured in 4 runs" in html
    assert f'<a href="runs?experiment={id}">arithmetic</a><span class="range">4 turns of a calibration</span>' in html
    assert "64/64" in html
    assert len(re.findall(r"<td[^>]*>\d\.\d+ ×<span", html)) == 2  # × target, × fastest SD
    assert "A proposal rests on the fresh ones alone." in html


@pytest.mark.wide
def test_a_setting_of_calibrations_alone_leads_to_the_calibration_and_not_to_compare(
    repository: Repository, id: str
) -> None:
    html = setting_page(repository, setting(KEPT))
    assert "compare?runs=" not in html
    assert f'<a href="runs?experiment={id}">Its calibration</a>' in html
    # An ordinary run of it can be compared, and its turns are left out.
    run = repository.create_run(repository.runs(experiment_id=id)[0].config.model_copy(update={"shuffled": False}))
    finish(repository, repository.run(run))
    html = setting_page(repository, repository.run(run).setting_id)
    assert f'<a href="compare?runs={run}">Compare its runs</a>' in html
    assert "Its calibration" in html


def test_the_link_to_compare_says_how_many_runs_it_takes(repository: Repository) -> None:
    first = repository.experiment(add_finished(repository, limit=1)).runs[3]
    for _ in range(20):
        finish(repository, repository.run(repository.create_run(first.config)))
    html = setting_page(repository, first.setting_id)
    assert "Compare its newest 20 runs" in html
    assert len(re.findall(r"compare\?runs=([0-9a-f,]+)", html)[0].split(",")) == 20


def test_a_turn_is_held_against_the_target_on_its_prompts(repository: Repository, id: str) -> None:
    for run in repository.runs(experiment_id=id, setting_id=setting(KEPT), limit=None):
        (target,) = on_same_prompts(run, sibling_runs(repository, run, "autoregressive"))
        assert target.decoding == CONFIG.target
        assert (target.config.first, target.config.limit) == (run.config.first, run.config.limit)


def test_runs_are_found_with_and_without_turns(repository: Repository, id: str) -> None:
    own = repository.experiment(add_finished(repository, limit=1)).runs
    alone = repository.create_run(own[0].config)
    turns = len(repository.experiment(id).runs)
    assert {run.id for run in repository.runs(calibration_rounds=False)} == {alone, *(run.id for run in own)}
    counts = [repository.count_runs(calibration_rounds=asked) for asked in (None, True, False)]
    assert counts == [turns + 8, turns, 8]
    assert repository.count_runs(calibration_rounds=False, experiment_id=id) == 0


def test_settings_that_were_only_measured_while_a_calibration_chose_can_be_left_out(
    repository: Repository, id: str
) -> None:
    every, kept = repository.settings(), repository.settings(dropped=False)
    assert {one.id for one in kept} == {setting(one) for one in (CONFIG.target, EXACT[0], KEPT)}
    assert (len(every), repository.count_settings()) == (len(FOUND) + 1,) * 2
    assert repository.count_settings(dropped=False) == 3
    assert next(one.runs for one in kept if one.id == setting(KEPT)) == 4  # with the turns that chose
    # Measured in a run of its own it is there.
    runs = repository.runs(setting_id=setting(DROPPED))
    repository.create_run(runs[0].config.model_copy(update={"shuffled": False}))
    assert setting(DROPPED) in {one.id for one in repository.settings(dropped=False)}


def test_a_picker_offers_no_turns_and_a_calibration_only_what_can_be_compared(repository: Repository, id: str) -> None:
    """Its fresh prompts, pooled by setting."""
    alone = repository.create_run(RunConfig(setting=SettingConfig(pair=CONFIG.pair, decoding=KEPT)))
    assert [run.id for run in repository.run_names(99)] == [alone]
    experiment = repository.experiment(id)
    assert f'<a href="compare?experiment={id}">Compare its settings</a>' in header_html(experiment, repository)
    compared = compare(repository, [run.id for run in experiment.runs], None).runs
    assert [(run.decoding, run.prompts_done) for run in compared] == [
        (one, 48) for one in (CONFIG.target, EXACT[0], KEPT)
    ]
