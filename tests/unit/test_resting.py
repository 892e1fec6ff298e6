"""Whoever deletes is told which uses rest on what is deleted, at every door, and what is over cannot be cancelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dashboard.experiments.experiments_page import experiments_html
from dashboard.runs.opened_run import header_html
from dashboard.ui import components
from fsd_core.actions.action import Ask
from fsd_core.actions.runs import delete
from fsd_core.errors import NotGiven, Taken
from fsd_core.review.review_service import ReviewService, resting_on
from fsd_core.roles import LOCAL, Person
from fsd_core.settings import get_settings
from fsd_core.storage.records import ExperimentView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import RunRow
from tests.tools.plausible import add_finished
from tests.tools.tracking_examples import sweep

Call = Callable[..., tuple[int, str, str]]
ANN, BOB = Person("Ann", "author"), Person("Bob", "admin")
APPROVED = "Evidence of it is lost, on which these rest: an approval in force for “Support <b>”."


@pytest.fixture
def experiment(repository: Repository) -> ExperimentView:
    return repository.experiment(add_finished(repository))


def propose(repository: Repository, experiment: ExperimentView, name: str, *, approve: bool) -> str:
    baseline, *_, run = experiment.runs
    service = ReviewService(repository)
    with repository._database.session() as session:
        for each in (run, baseline):
            session.get_one(RunRow, each.id).provenance = {"weights": {"target": "t1"}}
    use = service.describe(ANN, name, requirements=Requirements(margin=None))
    review = service.review(service.propose(ANN, use.id, [run.id], [baseline.id]))
    if approve:
        service.submit_review(BOB, review, "approve", "", review.use.sequence)
    return review.proposal.id


def test_uses_that_rest_on_a_run_are_named_and_others_are_not(
    repository: Repository, experiment: ExperimentView
) -> None:
    baseline, between, *_, run = experiment.runs
    assert resting_on(repository, [run.id]) == ""
    propose(repository, experiment, "Support <b>", approve=True)
    assert resting_on(repository, [run.id]) == resting_on(repository, [baseline.id]) == APPROVED
    assert resting_on(repository, [between.id]) == ""
    id = propose(repository, experiment, "Code", approve=False)
    both = APPROVED.replace("rest: ", "rest: a proposal for “Code”, ")
    assert resting_on(repository, [each.id for each in experiment.runs]) == both
    service = ReviewService(repository)
    service.withdraw(ANN, service.review(id))
    assert resting_on(repository, [run.id]) == APPROVED


@pytest.mark.wide
def test_the_page_and_the_command_line_ask_with_the_names_of_the_uses(
    repository: Repository, experiment: ExperimentView, call: Call
) -> None:
    propose(repository, experiment, "Support <b>", approve=True)
    run, escaped = experiment.runs[-1], APPROVED.replace("<b>", "&lt;b&gt;")

    def resting(e: ExperimentView) -> str:
        return resting_on(repository, (run.id for run in e.runs))

    assert escaped in str(experiments_html([experiment], {}, resting=resting))
    assert escaped in str(header_html(run, None, resting_on(repository, [run.id])))
    for id in (run.id, experiment.id):
        status, _, err = call("delete", id)
        assert (status, f"? {APPROVED} This cannot be undone." in err) == (2, True)
    status, out, _ = call("delete", run.id, "--yes")
    assert (status, out) == (0, f"The run {run.id} was deleted. {APPROVED}\n")


@pytest.mark.wide
def test_a_call_that_would_lose_evidence_is_refused_with_the_names_of_the_uses(
    repository: Repository, experiment: ExperimentView
) -> None:
    propose(repository, experiment, "Support <b>", approve=True)
    ask = Ask(get_settings(), BOB, repository)
    for kind, id in (("run", experiment.runs[-1].id), ("experiment", experiment.id)):
        with pytest.raises(NotGiven) as refused:
            delete(ask, kind, id)
        assert str(refused.value).startswith(APPROVED)
    assert delete(ask, "run", experiment.runs[1].id)  # nothing rests on it
    assert delete(ask, "experiment", experiment.id, evidence=True)
    assert len(repository.experiments(1000)) == 0


def test_what_is_over_is_not_cancelled(repository: Repository) -> None:
    id = repository.create_experiment(sweep("Once"))
    home = get_settings().home
    assert (
        components.perform(repository, home, LOCAL, "cancel", "experiment", id)
        == "Once stops after its current prompt."
    )
    over = "Once has ended already (cancelled), so there is nothing to cancel."
    assert components.perform(repository, home, LOCAL, "cancel", "experiment", id) == over


def test_the_name_of_a_use_that_exists_is_told_as_it_is_written(repository: Repository) -> None:
    service = ReviewService(repository)
    service.describe(ANN, "Support chat")
    with pytest.raises(Taken, match="Support chat"):
        service.describe(BOB, "SUPPORT  chat!")
