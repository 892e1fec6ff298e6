"""The form that proposes a setting begins with what its calibration found, and replaces nothing that was typed."""

from __future__ import annotations

import gradio as gr
import pytest

from dashboard.review.propose_form import ProposeForm
from dashboard.tables.run_record import calibration_text
from dashboard.ui.view import Asked
from fsd_core.calibration.planning import CalibrationStep
from fsd_core.calibration.summary import calibration_status
from fsd_core.calibration.summary import verdict as verdict_of
from fsd_core.config import SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.repository import Repository
from tests.tools.asking import asked
from tests.tools.built import built
from tests.tools.plausible import add_finished, finish, new_repository

FOUND = tuple(candidates({"acceptance": ["fsd-reducible"], "threshold": "0.2", "draft_length": [5]}))
CONFIG = CalibrationConfig(name="Sums", decodings=FOUND, goal="speed", limit=64, choosing=16)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return new_repository(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def calibration(repository: Repository) -> str:
    """The id of a calibration that has ended."""
    id = repository.create_experiment(CONFIG, enqueue=False)
    while isinstance(step := calibration_status(repository, CONFIG, repository.experiment(id).runs), CalibrationStep):
        ids = repository.extend_experiment(id, CONFIG.round_runs(step.decodings, step.start, step.end))
        for run in repository.runs(ids, limit=None):
            finish(repository, run)
    return id


def opened(repository: Repository, calibration: str, rationale: str = "") -> tuple[ProposeForm, Asked]:
    def build() -> ProposeForm:
        with gr.Blocks(analytics_enabled=False):
            return ProposeForm(ReviewService(repository))

    form = built(build)
    run = max(repository.experiment(calibration).runs, key=lambda run: run.config.first)
    values = dict.fromkeys((form.use, *form.evidence.both)) | {form.rationale: rationale}
    question = asked(values, {"propose": run.setting_id, "calibration": calibration})
    form.redraw(question, SettingConfig(pair=run.pair, decoding=run.decoding).id)
    return form, question


@pytest.mark.wide
def test_the_rationale_begins_with_the_verdict_of_the_calibration(repository: Repository, calibration: str) -> None:
    verdict = calibration_text(repository, repository.experiment(calibration), verdict_of)
    assert verdict.startswith("Use ")
    form, question = opened(repository, calibration)
    assert question.filled[form.rationale] == verdict


def test_what_was_typed_stays(repository: Repository, calibration: str) -> None:
    form, question = opened(repository, calibration, "Because.")
    assert form.rationale not in question.filled


def test_other_experiments_have_no_verdict(repository: Repository) -> None:
    assert calibration_text(repository, repository.experiment(add_finished(repository, limit=3)), verdict_of) == ""
    waiting = repository.create_experiment(CONFIG, enqueue=False)
    assert calibration_text(repository, repository.experiment(waiting), verdict_of) == ""
