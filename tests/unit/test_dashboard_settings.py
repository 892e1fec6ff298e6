"""Settings on their page: a calibration is one measurement, and other weights are another setting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from dashboard.compare.compared_runs import compare
from dashboard.review.opened_proposal import evidence_html
from dashboard.review.review_page import use_html
from dashboard.runs.opened_experiment import header_html
from dashboard.settings import measurements, runs_of, setting_page
from dashboard.tables.run_record import on_same_prompts, sibling_runs
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import RunRow
from tests.tools.copies import copy_of
from tests.tools.plausible import PROVENANCE, add_finished, filled_file, finish

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
def turn_repository(measured: tuple[Path, str], database_url: str) -> Iterator[Repository]:
    with copy_of(measured[0], database_url) as repository:
        yield repository


@pytest.fixture
def calibration_id(measured: tuple[Path, str]) -> str:
    return measured[1]


def setting(decoding: DecodingConfig) -> str:
    return SettingConfig(pair=CONFIG.pair, decoding=decoding).id


@pytest.mark.wide
def test_turns_are_one_row_against_the_baselines_on_the_same_prompts(
    turn_repository: Repository, calibration_id: str
) -> None:
    (one,) = measurements(turn_repository, runs_of(turn_repository, setting(KEPT)))
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
    (dropped,) = measurements(turn_repository, runs_of(turn_repository, setting(DROPPED)))
    assert dropped.speculative is not None
    assert dropped.measured.prompts.keys() <= dropped.speculative.prompts.keys()
    html = unescape(setting_page(turn_repository, setting(KEPT)))
    assert "Measured in 4 runs" in html
    assert (
        f'<a href="runs?experiment={calibration_id}">arithmetic</a><span class="range">4 turns of a calibration</span>'
        in html
    )
    assert "64/64" in html
    assert len(re.findall(r"<td[^>]*>\d\.\d+ ×<span", html)) == 2  # × target, × fastest SD
    assert "A proposal rests on the fresh ones alone." in html


@pytest.mark.wide
def test_a_setting_of_calibrations_alone_leads_to_the_calibration_and_not_to_compare(
    turn_repository: Repository, calibration_id: str
) -> None:
    html = setting_page(turn_repository, setting(KEPT))
    assert "compare?runs=" not in html
    assert f'<a href="runs?experiment={calibration_id}">Its calibration</a>' in html
    # An ordinary run of it can be compared, and its turns are left out.
    run = turn_repository.create_run(
        turn_repository.runs(experiment_id=calibration_id)[0].config.model_copy(update={"shuffled": False})
    )
    finish(turn_repository, turn_repository.run(run))
    html = setting_page(turn_repository, turn_repository.run(run).setting_id)
    assert f'<a href="compare?runs={run}">Compare its runs</a>' in html
    assert "Its calibration" in html


def test_the_link_to_compare_says_how_many_runs_it_takes(turn_repository: Repository) -> None:
    first = turn_repository.experiment(add_finished(turn_repository, limit=1)).runs[3]
    for _ in range(20):
        finish(turn_repository, turn_repository.run(turn_repository.create_run(first.config)))
    html = setting_page(turn_repository, first.setting_id)
    assert "Compare its newest 20 runs" in html
    assert len(re.findall(r"compare\?runs=([0-9a-f,]+)", html)[0].split(",")) == 20


def test_a_turn_is_held_against_the_target_on_its_prompts(turn_repository: Repository, calibration_id: str) -> None:
    for run in turn_repository.runs(experiment_id=calibration_id, setting_id=setting(KEPT), limit=None):
        (target,) = on_same_prompts(run, sibling_runs(turn_repository, run, "autoregressive"))
        assert target.decoding == CONFIG.target
        assert (target.config.first, target.config.limit) == (run.config.first, run.config.limit)


def test_runs_are_found_with_and_without_turns(turn_repository: Repository, calibration_id: str) -> None:
    own = turn_repository.experiment(add_finished(turn_repository, limit=1)).runs
    alone = turn_repository.create_run(own[0].config)
    turns = len(turn_repository.experiment(calibration_id).runs)
    assert {run.id for run in turn_repository.runs(calibration_rounds=False)} == {alone, *(run.id for run in own)}
    counts = [turn_repository.count_runs(calibration_rounds=asked) for asked in (None, True, False)]
    assert counts == [turns + 8, turns, 8]
    assert turn_repository.count_runs(calibration_rounds=False, experiment_id=calibration_id) == 0


def test_settings_that_were_only_measured_while_a_calibration_chose_can_be_left_out(
    turn_repository: Repository, calibration_id: str
) -> None:
    every, kept = turn_repository.settings(), turn_repository.settings(dropped=False)
    assert {one.id for one in kept} == {setting(one) for one in (CONFIG.target, EXACT[0], KEPT)}
    assert (len(every), turn_repository.count_settings()) == (len(FOUND) + 1,) * 2
    assert turn_repository.count_settings(dropped=False) == 3
    assert next(one.runs for one in kept if one.id == setting(KEPT)) == 4  # with the turns that chose
    # Measured in a run of its own it is there.
    runs = turn_repository.runs(setting_id=setting(DROPPED))
    turn_repository.create_run(runs[0].config.model_copy(update={"shuffled": False}))
    assert setting(DROPPED) in {one.id for one in turn_repository.settings(dropped=False)}


def test_a_picker_offers_no_turns_and_a_calibration_only_what_can_be_compared(
    turn_repository: Repository, calibration_id: str
) -> None:
    """Its fresh prompts, pooled by setting."""
    alone = turn_repository.create_run(RunConfig(setting=SettingConfig(pair=CONFIG.pair, decoding=KEPT)))
    assert [run.id for run in turn_repository.run_names(99)] == [alone]
    experiment = turn_repository.experiment(calibration_id)
    assert f'<a href="compare?experiment={calibration_id}">Compare its settings</a>' in header_html(
        experiment, turn_repository
    )
    compared = compare(turn_repository, [run.id for run in experiment.runs], None).runs
    assert [(run.decoding, run.prompts_done) for run in compared] == [
        (one, 48) for one in (CONFIG.target, EXACT[0], KEPT)
    ]


ANN, BOB = Person("Ann", "author"), Person("Bob", "reviewer")
OURS = PROVENANCE["weights"]
CHANGED = "The models of this pair have changed: its runs measured 2 sets of weights."


@pytest.fixture
def runs(repository: Repository) -> list[RunView]:
    return list(repository.experiment(add_finished(repository)).runs)


def measured_with(repository: Repository, run: RunView, **weights: str) -> None:
    with repository._database.session() as session:
        session.get_one(RunRow, run.id).provenance = PROVENANCE | {"weights": weights}


@pytest.mark.wide
def test_a_settings_page_keeps_runs_of_other_weights_apart(repository: Repository, runs: list[RunView]) -> None:
    setting = runs[3].setting_id
    (again,) = (run for run in repository.experiment(add_finished(repository)).runs if run.setting_id == setting)
    html = setting_page(repository, setting)
    assert "Measured in 2 runs" in html
    assert CHANGED not in html
    assert f"weights={OURS}" in unescape(html)
    measured_with(repository, again, target="<b>t2</b> https://huggingface.co/a/b/tree/c0ffee", draft=OURS["draft"])
    waiting = repository.create_run(again.config)  # measures nothing yet, so of no other weights
    html = setting_page(repository, setting)
    assert CHANGED in html
    assert [part in html for part in ("Measured in 2 runs", "Measured in 1 run<", waiting)] == [True, True, True]
    assert "target <code>&lt;b&gt;t2&lt;/b&gt;</code> (https://huggingface.co/a/b/tree/c0ffee)" in html
    assert f"target <code>{OURS['target']}</code>, draft <code>{OURS['draft']}</code>." in html


def test_a_settings_page_says_why_an_engine_has_no_form(repository: Repository, runs: list[RunView]) -> None:
    html = setting_page(repository, runs[3].setting_id)
    for engine, reason in (("vLLM", "is given models of the Hugging Face hub"), ("SGLang", "has no equivalent of FSD")):
        assert f'<summary>{engine}</summary><p class="set-refused">{engine} {reason}' in html
    assert html.count('<pre class="set-form"') == 3


def test_a_baseline_of_other_weights_is_no_company(repository: Repository, runs: list[RunView]) -> None:
    target, run = runs[0], runs[3]
    assert target.id in {other.id for other in sibling_runs(repository, run)}
    measured_with(repository, target, target="t2", draft="d2")
    assert target.id not in {other.id for other in sibling_runs(repository, run)}


@pytest.mark.wide
def test_a_proposal_and_its_use_tell_the_weights(repository: Repository, runs: list[RunView]) -> None:
    service, target, run = ReviewService(repository), runs[0], runs[3]
    service.describe(ANN, "Chat", requirements=Requirements(margin=None))
    proposal = service.propose(ANN, "chat", [run.id], [target.id])
    told = f"target <code>{OURS['target']}</code>, draft <code>{OURS['draft']}</code>"
    assert f"Measured with {told}" in evidence_html(service.review(proposal))
    assert told not in use_html(service.use("chat"), {}, None)
    measured_with(repository, target, target="t2", draft="d2")
    assert "The runs were measured with different models: the target" in evidence_html(service.review(proposal))
    measured_with(repository, target, **OURS)
    review = service.review(proposal)
    service.submit_review(BOB, review, "approve", "", review.use.sequence)
    assert f"with {told}</li>" in use_html(service.use("chat"), {}, None)
