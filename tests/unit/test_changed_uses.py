"""What a use asks for is changed, and a proposal rests on other runs: no former approval passes for it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboard.server.api import api_routes
from fsd_core.cli.commands import app
from fsd_core.errors import FsdError, InvalidSetting, Overtaken, Refused, WrongState
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.worker import run_actions
from tests.tools.plausible import add_finished

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
