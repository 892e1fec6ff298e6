"""Who may still vote on a prompt reads no answer with its name, on a ballot or at any other door."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import gradio as gr
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from dashboard.review.blind_vote import Ballot, next_ballot, pairing_of
from dashboard.review.review_page import csv_text, json_lines, log_routes
from dashboard.runs.opened_run import OpenedRun
from dashboard.server.mlflow_pages import HIDDEN, MLFLOW_STARTING, mlflow_routes
from dashboard.tables.prompt_pairs import PairReader, RunPair, pair_up
from fsd_core.accounts import KEY
from fsd_core.errors import Refused
from fsd_core.review.blinding import blinded, hidden_answers
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import LOCAL, Person
from fsd_core.settings import Settings
from fsd_core.storage.records import GenerationView, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from tests.tools.asking import asked
from tests.tools.built import built
from tests.tools.plausible import add_finished, new_repository
from tests.tools.tracking_examples import generation

ANN, BOB, EVE = Person("Ann", "author"), Person("Bob", "reviewer"), Person("Eve", "viewer")
BOT = Person("bot", "viewer", owner="Bob")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = new_repository(tmp_path)
    add_finished(repository, limit=12)
    return repository


@pytest.fixture
def runs(repository: Repository) -> tuple[RunView, RunView]:
    """The run of a lenient setting, and of the target alone."""
    (experiment,) = repository.experiments()
    target, *_, lenient = repository.experiment(experiment.id).runs
    return lenient, target


@pytest.fixture
def service(repository: Repository) -> ReviewService:
    return ReviewService(repository)


@pytest.fixture
def proposal(service: ReviewService, runs: tuple[RunView, RunView]) -> str:
    use = service.describe(ANN, "Support chat", requirements=Requirements(margin=20))
    return service.propose(ANN, use.id, [runs[0].id], [runs[1].id])


def differing(repository: Repository, runs: tuple[RunView, RunView]) -> frozenset[int]:
    return frozenset(pair.a.position for pair in pair_up(repository, runs[0].id, runs[1].id).filtered("text"))


def vote_once(service: ReviewService, proposal: str, person: Person) -> int:
    review = service.review(proposal)
    pairing = pairing_of(service, review)
    ballot = pairing and next_ballot(review, pairing, person)
    assert ballot is not None
    service.vote(person, review, ballot.left.position, "tie", ballot.left_side)
    return ballot.left.position


def test_what_may_be_voted_on_is_hidden_until_it_was(
    repository: Repository, service: ReviewService, runs: tuple[RunView, RunView], proposal: str
) -> None:
    ids, voted_on = [run.id for run in runs], differing(repository, runs)
    assert 2 < len(voted_on) <= 12

    def hidden(person: Person) -> set[frozenset[int]]:
        found = hidden_answers(repository, person, ids)
        assert found.proposals == ((proposal,) if found.by_run else ())
        return {found.of(id) for id in ids}

    for person in (ANN, BOB, BOT, LOCAL):
        assert hidden(person) == {voted_on}
    assert hidden(EVE) == {frozenset()}  # who may not vote
    first = vote_once(service, proposal, BOB)
    assert hidden(BOB) == hidden(BOT) == {voted_on - {first}}  # a program reads for its owner
    assert hidden(ANN) == {voted_on}
    service.stop_voting(ANN, service.review(proposal))
    assert hidden(ANN) == {frozenset()}
    with pytest.raises(Refused):
        service.vote(ANN, service.review(proposal), first, "tie", "setting")
    with pytest.raises(Refused, match="Voting"):
        service.stop_voting(BOT._replace(role="author"), service.review(proposal))
    others = [run.id for run in repository.runs() if run.id not in ids]
    assert hidden_answers(repository, BOB, others).by_run == {}
    service.withdraw(ANN, service.review(proposal))
    assert hidden(BOB) == {frozenset()}


def test_the_log_says_who_stopped_voting_and_a_verdict_is_not_kept_up_by_it(
    service: ReviewService, proposal: str
) -> None:
    review = service.review(proposal)
    for _ in range(2):
        service.stop_voting(ANN, service.review(proposal), key="a" * 32)
    service.stop_voting(ANN, service.review(proposal))
    use = service.use("support-chat")
    assert [entry.event.kind for entry in use.log].count("voting-stopped") == 1
    service.submit_review(BOB, service.review(proposal), "request changes", "More prompts.", review.use.sequence)


def test_no_door_of_the_log_quotes_an_answer_that_may_be_voted_on(
    repository: Repository, service: ReviewService, runs: tuple[RunView, RunView], proposal: str
) -> None:
    """Somebody who has voted comments on a passage; whoever has not sees the comment without it."""
    at = vote_once(service, proposal, BOB)
    quote = repository.generations(runs[0].id, position=at)[0].text[:12]
    service.comment(BOB, service.review(proposal), "This word", run=runs[0].id, position=at, quote=(0, quote))
    log = repository.review_log()
    assert quote in json_lines(blinded(repository, BOB, log), [""] * len(log))
    for write in (json_lines, csv_text):
        told = write(blinded(repository, ANN, log), [""] * len(log))
        assert "This word" in told
        assert '"passage"' not in told
        assert '""passage""' not in told
    application = FastAPI()
    application.include_router(log_routes(repository))

    @application.middleware("http")
    async def as_ann(request: Request, call_next):
        request.scope[KEY] = ANN
        return await call_next(request)

    client = TestClient(application)
    for kind in ("csv", "jsonl"):
        assert "passage" not in client.get(f"/export/review.{kind}").text


def test_the_reader_shows_what_was_voted_on_alone(
    repository: Repository, service: ReviewService, runs: tuple[RunView, RunView], proposal: str
) -> None:
    def build() -> PairReader:
        with gr.Blocks(analytics_enabled=False):
            return PairReader(repository, "all")

    reader, pair = built(build), RunPair(runs[0].id, runs[1].id, "The setting", "The target")

    def read(person: Person, linked: int | None = None, **address: str) -> tuple[str, str]:
        question = asked({reader.filter: "text", reader.size: 50}, address)
        question.person = person
        updates = reader.redraw(question, pair, linked=linked)
        return str(updates[reader.summary]), str(updates[reader.pairs])

    number = len(differing(repository, runs))
    summary, pairs = read(BOB, linked=min(differing(repository, runs)))
    assert (f"{number} prompts are not shown" in summary, f"review?proposal={proposal}" in summary) == (True, True)
    assert "The setting" not in pairs
    assert "shown here." in read(BOB, proposal=proposal)[0]  # the page that one is on already is no link
    summary, pairs = read(EVE)
    assert ("not shown" in summary, pairs.count("<article")) == (False, number)
    first = vote_once(service, proposal, BOB)
    summary, pairs = read(BOB)
    assert (f"{number - 1} prompts are not shown" in summary, pairs.count("<article")) == (True, 1)
    assert f"Prompt {first + 1}" in pairs


def test_the_page_of_a_run_neither_shows_nor_finds_what_is_voted_on(
    repository: Repository, runs: tuple[RunView, RunView], proposal: str
) -> None:
    def build() -> OpenedRun:
        with gr.Blocks(analytics_enabled=False):
            return OpenedRun(repository, None)

    opened, hidden = built(build), differing(repository, runs)
    position = min(hidden)
    (secret,) = repository.generations(runs[0].id, position=position)

    def read(person: Person, search: str = "", wanted: int | None = None) -> tuple[str, str]:
        question = asked(
            dict.fromkeys(opened.panel.forms) | {opened.outcome: "all", opened.search: search, opened.order: ""},
            wanted={} if wanted is None else {"prompt": wanted},
        )  # fmt: skip
        question.person = person
        updates = opened.redraw(question, runs[0].id)
        return str(updates[opened.prompts]), str(updates.get(opened.prompt, ""))

    listed, text = read(BOB)
    assert listed.count("data-prompt") == 12 - len(hidden)
    assert f"{len(hidden)} prompts are not shown" in listed
    assert f'aria-label="Prompt {position + 1}"' not in text
    assert secret.text not in "".join(read(BOB, wanted=position))
    assert "data-prompt" not in read(BOB, search=secret.text[:60])[0]
    listed, text = read(EVE, wanted=position)
    assert (listed.count("data-prompt"), f'aria-label="Prompt {position + 1}"' in text) == (12, True)


def test_files_of_the_copy_in_mlflow_are_kept_back(
    tmp_path: Path, repository: Repository, runs: tuple[RunView, RunView], proposal: str
) -> None:
    repository.mark_synced(runs[0], "5" * 32)
    app, people = FastAPI(), {"Bob": BOB, "Eve": EVE, "bot": BOT}

    @app.middleware("http")
    async def sign_in(request: Request, answer):
        request.scope[KEY] = people[request.headers["who"]]
        return await answer(request)

    app.include_router(mlflow_routes(Settings(home=tmp_path), repository))
    client = TestClient(app)

    def get(who: str, query: str) -> tuple[int, bool]:
        answer = client.get(f"/mlflow/get-artifact?{query}", headers={"who": who})
        assert HIDDEN in answer.text or MLFLOW_STARTING in answer.text  # MLflow does not run here
        return answer.status_code, HIDDEN in answer.text

    for path in ("generations.json", "traces.jsonl.gz", "./generations.json", "config.json&path=generations.json"):
        assert get("Bob", f"path={path}&run_uuid={'5' * 32}") == (403, True)
        assert get("bot", f"run_id={'5' * 32}&path={path}") == (403, True)
        assert get("Eve", f"path={path}&run_uuid={'5' * 32}") == (503, False)
    assert get("Bob", f"path=metrics.json&run_uuid={'5' * 32}") == (503, False)
    assert get("Bob", f"path=generations.json&run_uuid={'6' * 32}") == (503, False)


def answer(run: str, text: str, position: int = 0) -> GenerationView:
    record = vars(generation(position, text))
    del record["records"]
    return GenerationView(**record, id=0, run_id=run, sitting_id=None, created_at=datetime.now(UTC))


def test_a_ballot_is_the_same_whosever_answers_it_shows() -> None:
    shown = Ballot("setting", answer("a" * 32, "Five."), answer("b" * 32, "Six.")).identity
    assert Ballot("baseline", answer("b" * 32, "Five."), answer("a" * 32, "Six.")).identity == shown
    others = [
        Ballot("setting", answer("a" * 32, "Six."), answer("b" * 32, "Five.")),
        Ballot("setting", answer("a" * 32, "Five!"), answer("b" * 32, "Six.")),
        Ballot("setting", answer("a" * 32, "Five.", 1), answer("b" * 32, "Six.", 1)),
    ]
    assert shown not in [other.identity for other in others]
