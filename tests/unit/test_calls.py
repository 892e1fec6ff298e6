"""The calls for programs: typed, marked with what they do, listed in the docs, and with one shape of errors."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboard.server import api
from dashboard.server.api import API_VERSION, CALL_PATHS, ApiProblems, api_routes, call_routes
from dashboard.ui.api_call import answer_schema
from dashboard.web import all_actions
from fsd_core import accounts
from fsd_core.accounts import KEY, identifier
from fsd_core.middleware import BoundedBody, RequireSignIn
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client(repository: Repository, tmp_path: Path) -> TestClient:
    """The HTTP API where programs show tokens."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    identify = identifier(Settings(access="password"), repository)
    app.add_middleware(RequireSignIn, identify=identify, key=KEY, login=None)
    app.add_middleware(BoundedBody, limit=5_000)
    app.add_middleware(ApiProblems)
    app.include_router(api_routes(repository))
    app.include_router(call_routes(all_actions(), repository, Settings(home=tmp_path, access="password")))
    return TestClient(app)


def key(repository: Repository, role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {accounts.add_token(repository, role, role)}"}


def asked(client: TestClient, headers: dict[str, str], call: str, /, **arguments: Any) -> Any:
    """The answer of a call, held against the schema that it promises."""
    answer = client.post(f"/api/v1/calls/{call}", json=arguments, headers=headers)
    assert answer.status_code == 200, answer.text
    promised = {one["call"]: one["answer"] for one in client.get("/api/v1", headers=headers).json()["calls"]}
    content = answer.json()
    jsonschema.validate(content if isinstance(content, dict) else {"result": content}, promised[call])
    return content


def test_the_docs_list_every_call() -> None:
    table = (ROOT / "docs/api.md").read_text().partition("## Endpoints")[2].partition("\n\n| ")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(action.name for action in all_actions())
    assert all(re.fullmatch(CALL_PATHS, f"/api/v1/calls/{name}") for name in listed)


def test_every_call_has_types_and_says_what_it_does() -> None:
    for action in all_actions():
        schema = answer_schema(action)
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema.get("properties") or schema.get("anyOf"), action.name
        assert action.effects.writes or not action.effects.destroys
        assert all(parameter.help for parameter in action.parameters.values()), action.name
    destroying = {action.name for action in all_actions() if action.effects.destroys}
    assert destroying == {"delete", "remove_pair", "remove_endpoint"}


def test_the_calls_are_described_once(
    client: TestClient, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    author = key(repository, "author")
    first = client.get("/api/v1", headers=author).content
    monkeypatch.setattr(api, "answer_schema", None)
    assert client.get("/api/v1", headers=author).content == first


@pytest.mark.wide
def test_answers_are_what_is_promised(client: TestClient, repository: Repository) -> None:
    author = key(repository, "author")
    experiment = add_finished(repository)
    baseline, *_, run = repository.experiment(experiment).runs
    asked(client, author, "read_experiment", experiment=experiment)
    asked(client, author, "list_experiments")
    asked(client, author, "list_runs", limit=2)
    asked(client, author, "list_choices")
    asked(client, author, "compare_runs", experiment=experiment)
    task = asked(
        client, author, "add_task", name="support", lines=[{"prompt": "1+1?", "reference": "2"}], scorer="exact"
    )
    assert (task["prompts"], task["scorer"], task["added_by"]) == (1, "exact", "local user/author")
    told = asked(client, author, "annotate", kind="run", id=run.id, note="mine", version=0)
    assert (told["note"], told["version"]) == ("mine", 1)

    use = asked(client, author, "make_use", name="Chat", requirements={"margin": None}, key="1" * 32)
    assert use["requirements"]["margin"] is None
    proposed = asked(client, author, "propose", use="chat", runs=[run.id], baselines=[baseline.id])
    comment = asked(client, author, "comment", proposal=proposed["proposal"], words="Why?", prompt=3)["comments"][0]
    assert (comment["prompt"], comment["run"], comment["reply_to"]) == (3, run.id, None)
    both = asked(client, author, "comment", proposal=proposed["proposal"], words="So.", reply_to=comment["id"])
    assert [one["reply_to"] for one in both["comments"]] == [None, comment["id"]]
    other = asked(
        client, author, "choose_evidence", proposal=proposed["proposal"], runs=[run.id],
        baselines=[repository.experiment(experiment).runs[2].id], evidence=both["evidence_hash"],
    )  # fmt: skip
    assert other["evidence_hash"] != both["evidence_hash"]
    log = asked(client, author, "review_log", use="chat")
    assert [entry["act"]["kind"] for entry in log][-1] == "evidence-chosen"
    assert asked(client, author, "review_log", after=log[-2]["id"]) == log[-1:]
    assert asked(client, author, "read_use", use="chat")["version"] == 1
    asked(client, author, "list_uses")
    assert asked(client, author, "withdraw", proposal=proposed["proposal"], why="Enough")["state"] == "withdrawn"


def test_comments_posted_at_once_are_all_kept(client: TestClient, repository: Repository) -> None:
    author = key(repository, "author")
    baseline, *_, run = repository.experiment(add_finished(repository)).runs
    asked(client, author, "make_use", name="Chat")
    id = asked(client, author, "propose", use="chat", runs=[run.id], baselines=[baseline.id])["proposal"]

    def post(number: int) -> int:
        told = {"proposal": id, "words": f"Comment {number // 2}", "key": f"{number // 2:032x}"}  # each is sent twice
        return client.post("/api/v1/calls/comment", json=told, headers=author).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(post, range(16))) == {200}
    comments = asked(client, author, "read_verdict", proposal=id)["comments"]
    assert sorted(comment["words"] for comment in comments) == [f"Comment {number}" for number in range(8)]
    assert len({comment["id"] for comment in comments}) == 8


def test_every_error_has_one_shape(client: TestClient, repository: Repository) -> None:
    author, admin = key(repository, "author"), key(repository, "admin")
    experiment = add_finished(repository)
    asked(client, author, "make_use", name="Chat")
    path = "/api/v1/calls"
    cases = [
        (client.get("/api/v1/uses"), 401, "unauthorized", "Sign in first"),
        (client.post(f"{path}/list_uses"), 401, "unauthorized", "Sign in first"),
        (client.post(f"{path}/nothing", headers=author), 404, "not-found", "There is no call 'nothing'"),
        (client.get("/api/v1/nowhere", headers=author), 404, "not-found", "Not Found"),
        (client.get(f"{path}/list_uses", headers=author), 405, "method-not-allowed", "Method Not Allowed"),
        (client.post(f"{path}/list_uses", content="[", headers=author), 422, "invalid", "The body cannot be read"),
        (client.post(f"{path}/list_uses", json={"x": 1}, headers=author), 422, "invalid", "There is no argument 'x'"),
        (client.post(f"{path}/read_use", json={}, headers=author), 422, "invalid", "The argument 'use' is missing"),
        (client.post(f"{path}/read_use", json={"use": 3}, headers=author), 422, "invalid", "use is 3"),
        (client.post(f"{path}/review_log", json={"limit": 0}, headers=author), 422, "invalid", "expected 1 to 1000"),
        (client.post(f"{path}/read_use", json={"use": "x"}, headers=author), 404, "not-found", "There is no use 'x'"),
        (client.post(f"{path}/list_uses", content="x" * 6000, headers=author), 413, "", "at most 5,000"),
        *(
            (
                client.post(f"{path}/{name}", json=told, headers=admin),
                403,
                "refused",
                "is for people, and local user/admin is",
            )
            for name, told in {
                "change_use": {"use": "chat", "version": 1, "requirements": {"margin": 9}},
                "delete": {"kind": "experiment", "id": experiment},
            }.items()
        ),
    ]
    for answer, status, name, sentence in cases:
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), sentence
        assert answer.headers["fsd-api-version"] == API_VERSION
        document = answer.json()
        assert list(document) == ["type", "title", "status", "detail"]
        assert document["type"].startswith(f"urn:fsd-lab:problem:{name}")
        assert sentence in document["detail"], document
        assert document["status"] == status
    assert len(repository.experiments(1000)) == 1
    assert client.get("/api/v1/uses", headers=author).headers["fsd-api-version"] == API_VERSION
