"""An approval stands for what was approved: of changed uses, deleted runs and the log that says so."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboard.experiments.experiments_page import experiments_html
from dashboard.review.review_page import links_html, log_routes
from dashboard.runs.opened_run import header_html
from dashboard.server.api import api_routes
from dashboard.ui import components
from fsd_core.actions.action import Ask
from fsd_core.actions.runs import delete
from fsd_core.cli.commands import app
from fsd_core.errors import FsdError, InvalidSetting, NotGiven, Overtaken, Refused, Taken, WrongState
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.review_service import ReviewService, resting_on
from fsd_core.roles import LOCAL, Person
from fsd_core.settings import get_settings
from fsd_core.storage.records import ExperimentView, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import AliasMoved, Commented, Proposed, Requirements, UseDescribed, read_event
from fsd_core.storage.tables import RunRow
from fsd_core.worker import run_actions
from tests.tools.plausible import add_finished
from tests.tools.tracking_examples import run_config, sweep

ANN, BOB, CAT = Person("Ann", "author"), Person("Bob", "reviewer"), Person("Cat", "admin")
NIGHTLY = Person("nightly", "admin", owner="Cat")


@pytest.fixture
def runs(repository: Repository) -> tuple[RunView, ...]:
    return repository.experiment(add_finished(repository)).runs


@pytest.fixture
def service(repository: Repository, runs: tuple[RunView, ...]) -> ReviewService:
    """With the last run proposed for a use that asks for no accuracy."""
    service = ReviewService(repository)
    service.describe(ANN, "Chat", requirements=Requirements(margin=None, longest_answers=50))
    service.propose(ANN, "chat", [runs[-1].id], [runs[0].id])
    return service


def proposal_of(service: ReviewService) -> str:
    return next(iter(service.use("chat").proposals))


def approve(service: ReviewService) -> None:
    review = service.review(proposal_of(service))
    service.submit_review(BOB, review, "approve", "", review.use.sequence)


def test_a_changed_margin_makes_the_approval_stale_everywhere(service: ReviewService, repository: Repository) -> None:
    web = FastAPI()
    web.include_router(api_routes(repository))
    client = TestClient(web)
    approve(service)
    before = client.get("/api/v1/uses/chat/approved")
    assert (before.json()["approved"]["stale"], before.headers["fsd-stale"]) == (False, "false")
    assert client.get("/api/v1/uses/chat/check").json()["pass"] is True
    seen = service.use("chat").sequence
    changed = service.change_use(CAT, "chat", {"requirements": {"longest_answers": 60}}, seen)
    assert changed.requirements == Requirements(margin=None, longest_answers=60)
    assert (changed.log[-1].who, changed.log[-1].role) == ("Cat", "admin")

    after = client.get("/api/v1/uses/chat/approved")
    assert (after.status_code, after.json()["approved"]["stale"], after.headers["fsd-stale"]) == (200, True, "true")
    assert after.json()["approved"]["requirements"]["longest_answers"] == 50  # what it was approved for
    assert after.headers["etag"] != before.headers["etag"]
    told = client.get("/api/v1/uses/chat/check").json()
    assert (told["pass"], told["approval"]["stale"]) == (False, True)
    assert told["reasons"] == ["What the use asks for was changed since it was approved: propose it again."]
    assert [check["requirement"] for check in told["requirements"]] == ["longest_answers"]

    service.change_use(CAT, "chat", {"requirements": {"longest_answers": 50}}, changed.sequence)
    approval = approval_of(repository, service.use("chat"))  # it asks for what was approved again
    assert approval is not None
    assert not approval.stale


@pytest.mark.parametrize(
    ("changes", "stale"), [({"approvals": 2}, True), ({"days": 30}, False), ({"description": "All of it"}, False)]
)
def test_more_people_make_it_stale_as_well_and_words_do_not(
    service: ReviewService, repository: Repository, changes: dict[str, Any], stale: bool
) -> None:
    approve(service)
    service.change_use(CAT, "chat", changes, service.use("chat").sequence)
    assert check_setting(repository, service.use("chat")).passes is not stale


def test_an_open_proposal_is_held_against_what_is_asked_now(service: ReviewService) -> None:
    service.change_use(CAT, "chat", {"approvals": 2}, service.use("chat").sequence)
    approve(service)
    assert service.review(proposal_of(service)).status.approved_by == ("Bob",)
    service.change_use(CAT, "chat", {"requirements": {"least_speedup": 900}}, service.use("chat").sequence)
    review = service.review(proposal_of(service))
    assert (review.status.approved_by, review.status.stale) == ((), ("Bob",))
    assert review.open_requirements == ("least_speedup",)


def test_a_waiver_answers_for_what_was_asked_then(service: ReviewService, repository: Repository) -> None:
    service.change_use(CAT, "chat", {"requirements": {"least_speedup": 800}}, service.use("chat").sequence)
    service.waive(CAT, service.review(proposal_of(service)), "least_speedup", "So be it")
    approve(service)
    assert check_setting(repository, service.use("chat")).passes
    service.change_use(CAT, "chat", {"requirements": {"least_speedup": 900}}, service.use("chat").sequence)
    (speed, _) = check_setting(repository, service.use("chat")).requirements
    assert (speed[0].requirement, speed[1]) == ("least_speedup", "")


def test_two_who_change_a_use_at_once_see_each_other(service: ReviewService) -> None:
    use = service.use("chat")
    service.comment(BOB, service.review(proposal_of(service)), "Meanwhile")  # which changes nothing of the use
    key = "a" * 32
    for _ in range(2):
        service.change_use(CAT, "chat", {"requirements": {"margin": 3}}, use.sequence, key)
    with pytest.raises(Overtaken):
        service.change_use(Person("Dan", "admin"), "chat", {"requirements": {"margin": 9}}, use.sequence)
    assert service.use("chat").requirements.margin == 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "asks for this already"),
        ({"requirements": {"margin": -1}}, "Accuracy is -1: expected at least 0"),
        ({"requirements": {"speed": 2}}, "Speed"),
        ({"approvals": 0}, "Approvals is 0: expected at least 1"),
        ({"name": "  "}, "Name"),
        ({"who": "me"}, "Who"),
    ],
)
def test_what_cannot_be_asked_for_is_told(service: ReviewService, changes: dict[str, Any], told: str) -> None:
    before = service.use("chat").log
    with pytest.raises(InvalidSetting, match=told):
        service.change_use(CAT, "chat", changes, len(before))
    assert service.use("chat").log == before


def test_an_author_chooses_other_evidence(service: ReviewService, repository: Repository, runs: Any) -> None:
    service.change_use(CAT, "chat", {"approvals": 2}, service.use("chat").sequence)
    approve(service)
    repository.delete_run(runs[0].id)
    assert service.review(proposal_of(service)).missing == (runs[0].id,)
    review, key = service.review(proposal_of(service)), "b" * 32
    for _ in range(2):
        service.choose_evidence(ANN, review, [runs[-1].id], [runs[2].id], "The other was deleted", review.hash, key)
    review = service.review(proposal_of(service))
    assert (review.missing, review.proposal.baselines) == ((), (runs[2].id,))
    assert (review.status.approved_by, review.status.stale) == ((), ("Bob",))
    assert [logged.event.kind for logged in review.use.log[-2:]] == ["judged", "evidence-chosen"]


def test_nobody_else_chooses_it_and_nothing_unseen_is_replaced(service: ReviewService, runs: Any) -> None:
    review = service.review(proposal_of(service))
    mine, others = [runs[-1].id], [runs[2].id]
    wrong: list[tuple[Person, list[str], list[str], str, type[FsdError], str]] = [
        (BOB, mine, others, review.hash, Refused, "is for its author, Ann, and for admins"),
        (NIGHTLY, mine, others, review.hash, Refused, "is for its author, Ann, and for admins"),
        (Person("Ann", "viewer"), mine, others, review.hash, Refused, "needs the role author"),
        (ANN, mine, others, "0" * 16, Overtaken, "evidence has changed"),
        (ANN, [runs[-2].id], others, review.hash, InvalidSetting, "of another setting than the proposal's"),
        (ANN, mine, [runs[0].id], review.hash, InvalidSetting, "rests on these runs already"),
        (ANN, [], others, review.hash, InvalidSetting, "Runs"),
    ]
    for person, own, baselines, hash, error, told in wrong:
        with pytest.raises(error, match=told):
            service.choose_evidence(person, review, own, baselines, "", hash)
    with pytest.raises(Refused):
        service.withdraw(NIGHTLY, review)
    service.choose_evidence(CAT, review, mine, others)
    service.withdraw(ANN, service.review(proposal_of(service)))
    with pytest.raises(WrongState, match="withdrawn"):
        service.choose_evidence(ANN, service.review(proposal_of(service)), mine, [runs[0].id])


def test_the_command_line_does_both(
    service: ReviewService,
    repository: Repository,
    runs: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_actions, "open_repository", lambda settings: repository)

    def command(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            app(["review", *arguments])
        assert not ended.value.code
        return capsys.readouterr().out

    assert "“Chat” asks for something else now" in command(
        "change", "chat", "--margin", "4.5", "--answers", "none", "--days", "30"
    )
    use = service.use("chat")
    assert (use.requirements, use.days) == (Requirements(margin=4.5), 30)
    assert use.log[-1].who == "local user"
    command("change", "chat", "--days", "none")
    assert service.use("chat").days is None
    told = command("evidence", proposal_of(service), "--run", runs[-1].id, "--baseline", runs[2].id)
    assert told == "The proposal rests on 1 run and 1 baseline now.\n"
    assert service.review(proposal_of(service)).proposal.baselines == (runs[2].id,)


Call = Callable[..., tuple[int, str, str]]
RESTING_ANN, RESTING_BOB = Person("Ann", "author"), Person("Bob", "admin")
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
    use = service.describe(RESTING_ANN, name, requirements=Requirements(margin=None))
    review = service.review(service.propose(RESTING_ANN, use.id, [run.id], [baseline.id]))
    if approve:
        service.submit_review(RESTING_BOB, review, "approve", "", review.use.sequence)
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
    service.withdraw(RESTING_ANN, service.review(id))
    assert resting_on(repository, [run.id]) == APPROVED


def test_the_commands_change_a_use_and_choose_other_evidence(
    service: ReviewService, runs: tuple[RunView, ...], call: Call
) -> None:
    told = call("review", "change", "chat", "--margin", "3", "--answers", "none", "--days", "30", "--approvals", "2")
    assert told == (0, "“Chat” asks for something else now.\n", "")
    use = service.use("chat")
    assert (use.requirements, use.days, use.approvals) == (Requirements(margin=3, longest_answers=None), 30, 2)
    assert call("review", "change", "chat", "--days", "none")[0] == 0
    assert service.use("chat").days is None
    for option, wrong in (("--margin", "much"), ("--margin", "-1"), ("--days", "soon"), ("--approvals", "0")):
        status, out, err = call("review", "change", "chat", option, wrong)
        assert (status, out, err.startswith("error: ")) == (2, "", True), err
    assert service.use("chat").requirements.margin == 3
    proposal = proposal_of(service)
    told = call("review", "evidence", proposal, "--run", runs[-1].id, "--baseline", runs[1].id, "--comment", "Why")
    assert told == (0, "The proposal rests on 1 run and 1 baseline now.\n", "")
    assert service.use("chat").proposals[proposal].baselines == (runs[1].id,)


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
    ask = Ask(get_settings(), RESTING_BOB, repository)
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
    service.describe(RESTING_ANN, "Support chat")
    with pytest.raises(Taken, match="Support chat"):
        service.describe(RESTING_BOB, "SUPPORT  chat!")


FORMULA = '=HYPERLINK("http://evil.example", "é")'


def test_the_log_of_a_use_as_csv_and_json_lines(repository: Repository) -> None:
    described = UseDescribed(name="Support", description=FORMULA)
    remark = Commented(proposal="a" * 32, words="line\nline, “quoted”")
    repository.append_events("support", Person("=Ann", "admin"), [described, remark], 0)
    repository.append_events("code", Person("nightly", "author", owner="Bob"), [UseDescribed(name="Code")], 0)
    app = FastAPI()
    app.include_router(log_routes(repository))
    client = TestClient(app)
    answer = client.get("/export/review.jsonl?use=support")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="review-support.jsonl"'
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["who"], line["sequence"], read_event(line["act"])) for line in lines] == [
        ("=Ann", 1, described), ("=Ann", 2, remark),
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(client.get("/export/review.csv?use=support").content.decode("utf-8-sig"))))
    assert [(row["who"], row["kind"], row["words"]) for row in rows] == [
        ("'=Ann", "use-described", f"'{FORMULA}"), ("'=Ann", "remarked", remark.words),
    ]  # fmt: skip
    assert rows[1]["proposal"] == "a" * 32
    assert json.loads(rows[1]["act"])["words"] == remark.words
    everything = list(csv.DictReader(io.StringIO(client.get("/export/review.csv").content.decode("utf-8-sig"))))
    assert [row["owner"] for row in everything] == ["", "", "Bob"]
    assert {row["pair"] for row in rows} == {""}
    assert client.get("/export/review.csv").content.startswith(codecs.BOM_UTF8)  # by which Excel reads “ and γ
    missing = client.get("/export/review.csv?use=none%0d%0aX-Evil:1")
    assert missing.status_code == 404
    assert "X-Evil" not in missing.headers
    assert 'href="export/review.csv?use=support" download' in links_html("support")


def test_each_line_about_a_setting_names_its_pair(repository: Repository) -> None:
    run = repository.run(repository.create_run(run_config()))
    proposed = Proposed(
        proposal="b" * 32, setting=run.setting_id, requirements=Requirements(), runs=(run.id,), baselines=("c" * 32,)
    )
    moved = AliasMoved(alias="candidate", setting=run.setting_id, former=None)
    events = [UseDescribed(name="Support"), proposed, Commented(proposal="b" * 32, words="Good."), moved]
    repository.append_events("support", Person("Ann", "admin"), events, 0)
    app = FastAPI()
    app.include_router(log_routes(repository))
    client = TestClient(app)
    rows = list(csv.DictReader(io.StringIO(client.get("/export/review.csv").text)))
    assert [row["pair"] for row in rows] == ["", "bundled", "bundled", "bundled"]
    lines = [json.loads(line) for line in client.get("/export/review.jsonl?use=support").text.splitlines()]
    assert [line.get("pair") for line in lines] == [None, "bundled", "bundled", "bundled"]
