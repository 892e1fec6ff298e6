"""What programs get of an approved setting: with the weights that were approved, whatever its pair holds today."""

from __future__ import annotations

import json

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboard.server.api import api_routes
from fsd_core.cli.commands import app
from fsd_core.errors import DatabaseUnavailable
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import RunRow
from fsd_core.worker import run_actions
from tests.tools.plausible import add_finished

ANN, BOB = Person("Ann", "author"), Person("Bob", "admin")
APPROVED, CHECK = "/api/v1/uses/chat/approved", "/api/v1/uses/chat/check"


@pytest.fixture
def client(repository: Repository) -> TestClient:
    app = FastAPI()
    app.include_router(api_routes(repository))
    return TestClient(app)


def approve(repository: Repository, run: RunView, baseline: RunView, draft: str) -> None:
    service = ReviewService(repository)
    with repository._database.session() as session:
        for id in (run.id, baseline.id):
            session.get_one(RunRow, id).provenance = {"weights": {"target": "t1", "draft": draft}}
    if not service.uses():
        service.describe(ANN, "Chat", requirements=Requirements(margin=None))
    review = service.review(service.propose(ANN, "chat", [run.id], [baseline.id]))
    service.submit_review(BOB, review, "approve", "", review.use.sequence)


def test_the_answer_names_the_approved_weights_and_changes_with_them(
    repository: Repository, client: TestClient
) -> None:
    baseline, *_, run = repository.experiment(add_finished(repository)).runs
    approve(repository, run, baseline, "d1")
    first = client.get(APPROVED)
    assert (first.json()["setting"], first.json()["weights"]) == (run.setting_id, {"target": "t1", "draft": "d1"})
    again = client.get(APPROVED, headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert client.get(APPROVED, headers={"If-None-Match": "*"}).status_code == 304
    head = client.head(APPROVED)
    assert (head.status_code, head.headers["etag"]) == (200, first.headers["etag"])

    with repository._database.session() as session:  # what ran later does not change what was approved
        session.get_one(RunRow, run.id).provenance = {"weights": {"target": "t1", "draft": "d2"}}
    assert client.get(APPROVED).json() == first.json()

    approve(repository, run, baseline, "d2")
    second = client.get(APPROVED, headers={"If-None-Match": first.headers["etag"]})
    assert (second.status_code, second.json()["weights"]["draft"]) == (200, "d2")
    python = client.get(APPROVED, params={"form": "python"})
    assert "load_pair('bundled', weights={'target': 't1', 'draft': 'd2'})" in python.text
    assert python.headers["etag"] != second.headers["etag"]

    service, cat = ReviewService(repository), Person("Cat", "admin")
    service.roll_back(cat, "chat", "It was slower.", service.use("chat").sequence)
    assert client.get(APPROVED).json() == first.json()
    assert first.json()["approved"]["by"] == "Bob"


def test_what_is_not_there_is_told(repository: Repository, client: TestClient) -> None:
    ReviewService(repository).describe(ANN, "Chat")
    told = client.get(APPROVED)
    assert (told.status_code, told.headers["content-type"]) == (404, "application/problem+json")
    assert told.json() == {
        "type": "urn:fsd-lab:problem:not-found", "title": "There is no such thing", "status": 404,
        "detail": "Nothing is approved for the use 'chat' yet.",
    }  # fmt: skip
    assert client.get("/api/v1/uses/nowhere/approved").status_code == 404


@pytest.mark.wide
def test_what_an_engine_cannot_run_is_a_problem_and_no_file(repository: Repository, client: TestClient) -> None:
    baseline, *_, run = repository.experiment(add_finished(repository)).runs  # of a lossy rule
    approve(repository, run, baseline, "d1")
    for form, sentence in (
        ("vllm", "vLLM is given models of the Hugging Face hub"),
        ("sglang", "SGLang has no equivalent of FSD"),
    ):
        told = client.get(APPROVED, params={"form": form})
        assert (told.status_code, told.headers["content-type"]) == (409, "application/problem+json")
        assert (told.headers["cache-control"], "etag" in told.headers) == ("no-store", False)
        document = told.json()
        assert list(document) == ["type", "title", "status", "detail"]
        assert (document["type"], document["status"]) == ("urn:fsd-lab:problem:no-equivalent", 409)
        assert document["detail"].startswith(sentence)
    unknown = client.get(APPROVED, params={"form": "toml"})
    assert (unknown.status_code, unknown.json()["detail"][:24]) == (404, "There is no form 'toml':")


def test_a_database_that_does_not_answer_is_a_problem_too(
    repository: Repository, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> None:
        raise DatabaseUnavailable("The database is locked: try again.")

    monkeypatch.setattr(repository, "review_log", locked)
    for path in (APPROVED, "/api/v1/uses"):
        told = client.get(path)
        assert (told.status_code, told.headers["content-type"]) == (503, "application/problem+json")
        assert told.json()["detail"] == "The database is locked: try again."


def test_what_an_approval_is_worth_is_told_with_it(
    repository: Repository, client: TestClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_actions, "open_repository", lambda settings: repository)

    def command(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            app(["review", "check", *arguments])
        return int(ended.value.code or 0), capsys.readouterr().out

    baseline, *_, run = repository.experiment(add_finished(repository)).runs
    approve(repository, run, baseline, "d1")
    answer = client.get(APPROVED)
    approval = answer.json()["approved"]
    assert (approval["expires_at"], approval["expired"], approval["evidence"]) == (None, False, "intact")
    assert approval["requirements"]["margin"] is None
    assert client.get(CHECK).json()["pass"] is True
    assert command("chat") == (0, f"The setting {run.setting_id} passes for chat.\n")
    repository.delete_run(baseline.id)
    python = client.get(APPROVED, params={"form": "python"})
    assert (python.headers["fsd-expired"], python.headers["fsd-evidence"]) == ("false", "deleted")
    assert python.headers["etag"] != answer.headers["etag"]
    checked = client.get(CHECK).json()
    assert (checked["pass"], checked["approved"], checked["approval"]["evidence"]) == (False, True, "deleted")
    code, told = command("chat", "--json")
    assert (code, json.loads(told)) == (1, checked)
    never = client.get(CHECK, params={"setting": "0" * 16})
    assert (never.status_code, never.headers["content-type"]) == (404, "application/problem+json")
