"""What programs get of an approved setting: with the weights that were approved, whatever its pair holds today."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboard.server.api import api_routes
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.database.tables import RunRow
from fsd_core.storage.records import RunView
from fsd_core.storage.review_events import Requirements
from tests.tools.plausible import add_finished

ANN, BOB = Person("Ann", "author"), Person("Bob", "admin")
APPROVED = "/api/v1/uses/chat/approved"


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

    with repository._database.session() as session:  # what ran later does not change what was approved
        session.get_one(RunRow, run.id).provenance = {"weights": {"target": "t1", "draft": "d2"}}
    assert client.get(APPROVED).json() == first.json()

    approve(repository, run, baseline, "d2")
    second = client.get(APPROVED, headers={"If-None-Match": first.headers["etag"]})
    assert (second.status_code, second.json()["weights"]["draft"]) == (200, "d2")
    python = client.get(APPROVED, params={"form": "python"})
    assert "load_pair('bundled', weights={'target': 't1', 'draft': 'd2'})" in python.text
    assert python.headers["etag"] != second.headers["etag"]

    service = ReviewService(repository)
    service.roll_back(BOB, "chat", "It was slower.", service.use("chat").sequence)
    assert client.get(APPROVED).json()["weights"]["draft"] == "d1"


def test_what_is_not_there_is_told(repository: Repository, client: TestClient) -> None:
    ReviewService(repository).describe(ANN, "Chat")
    assert client.get(APPROVED).text == "Nothing is approved for the use 'chat' yet."
    assert client.get("/api/v1/uses/nowhere/approved").status_code == 404
