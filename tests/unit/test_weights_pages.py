"""Pages keep runs of other weights apart, and say with which weights something is approved."""

from __future__ import annotations

from html import unescape

import pytest

from dashboard.review.opened_proposal import evidence_html
from dashboard.review.review_page import use_html
from dashboard.settings import setting_page
from dashboard.tables.run_record import sibling_runs
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import RunRow
from tests.tools.plausible import PROVENANCE, add_finished

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
