"""Calls for programs: typed, marked with what they do, and answered in one shape whatever a caller writes."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import orjson
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.requests import Request

from dashboard.server import api
from dashboard.server.api import API_VERSION, CALL_PATHS, ApiProblems, api_routes, call_routes
from dashboard.ui.api_call import ApiCall, answer_schema
from dashboard.web import all_actions, calls_of
from fsd_core import accounts
from fsd_core.accounts import KEY, identifier
from fsd_core.cli.commands import app
from fsd_core.errors import DatabaseUnavailable, FsdError
from fsd_core.middleware import BoundedBody, RequireSignIn
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import RunRow
from fsd_core.worker import run_actions
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


ANN, BOB = Person("Ann", "author"), Person("Bob", "admin")
APPROVED, CHECK = "/api/v1/uses/chat/approved", "/api/v1/uses/chat/check"


@pytest.fixture
def approved_client(repository: Repository) -> TestClient:
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
    repository: Repository, approved_client: TestClient
) -> None:
    baseline, *_, run = repository.experiment(add_finished(repository)).runs
    approve(repository, run, baseline, "d1")
    first = approved_client.get(APPROVED)
    assert (first.json()["setting"], first.json()["weights"]) == (run.setting_id, {"target": "t1", "draft": "d1"})
    again = approved_client.get(APPROVED, headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert approved_client.get(APPROVED, headers={"If-None-Match": "*"}).status_code == 304
    head = approved_client.head(APPROVED)
    assert (head.status_code, head.headers["etag"]) == (200, first.headers["etag"])

    with repository._database.session() as session:  # what ran later does not change what was approved
        session.get_one(RunRow, run.id).provenance = {"weights": {"target": "t1", "draft": "d2"}}
    assert approved_client.get(APPROVED).json() == first.json()

    approve(repository, run, baseline, "d2")
    second = approved_client.get(APPROVED, headers={"If-None-Match": first.headers["etag"]})
    assert (second.status_code, second.json()["weights"]["draft"]) == (200, "d2")
    python = approved_client.get(APPROVED, params={"form": "python"})
    assert "load_pair('bundled', weights={'target': 't1', 'draft': 'd2'})" in python.text
    assert python.headers["etag"] != second.headers["etag"]

    service, cat = ReviewService(repository), Person("Cat", "admin")
    service.roll_back(cat, "chat", "It was slower.", service.use("chat").sequence)
    assert approved_client.get(APPROVED).json() == first.json()
    assert first.json()["approved"]["by"] == "Bob"


def test_what_is_not_there_is_told(repository: Repository, approved_client: TestClient) -> None:
    ReviewService(repository).describe(ANN, "Chat")
    told = approved_client.get(APPROVED)
    assert (told.status_code, told.headers["content-type"]) == (404, "application/problem+json")
    assert told.json() == {
        "type": "urn:fsd-lab:problem:not-found", "title": "There is no such thing", "status": 404,
        "detail": "Nothing is approved for the use 'chat' yet.",
    }  # fmt: skip
    assert approved_client.get("/api/v1/uses/nowhere/approved").status_code == 404


@pytest.mark.wide
def test_what_an_engine_cannot_run_is_a_problem_and_no_file(
    repository: Repository, approved_client: TestClient
) -> None:
    baseline, *_, run = repository.experiment(add_finished(repository)).runs  # of a lossy rule
    approve(repository, run, baseline, "d1")
    for form, sentence in (
        ("vllm", "vLLM is given models of the Hugging Face hub"),
        ("sglang", "SGLang has no equivalent of FSD"),
    ):
        told = approved_client.get(APPROVED, params={"form": form})
        assert (told.status_code, told.headers["content-type"]) == (409, "application/problem+json")
        assert (told.headers["cache-control"], "etag" in told.headers) == ("no-store", False)
        document = told.json()
        assert list(document) == ["type", "title", "status", "detail"]
        assert (document["type"], document["status"]) == ("urn:fsd-lab:problem:no-equivalent", 409)
        assert document["detail"].startswith(sentence)
    unknown = approved_client.get(APPROVED, params={"form": "toml"})
    assert (unknown.status_code, unknown.json()["detail"][:24]) == (404, "There is no form 'toml':")


def test_a_database_that_does_not_answer_is_a_problem_too(
    repository: Repository, approved_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> None:
        raise DatabaseUnavailable("The database is locked: try again.")

    monkeypatch.setattr(repository, "review_log", locked)
    for path in (APPROVED, "/api/v1/uses"):
        told = approved_client.get(path)
        assert (told.status_code, told.headers["content-type"]) == (503, "application/problem+json")
        assert told.json()["detail"] == "The database is locked: try again."


def test_what_an_approval_is_worth_is_told_with_it(
    repository: Repository,
    approved_client: TestClient,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_actions, "open_repository", lambda settings: repository)

    def command(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            app(["review", "check", *arguments])
        return int(ended.value.code or 0), capsys.readouterr().out

    baseline, *_, run = repository.experiment(add_finished(repository)).runs
    approve(repository, run, baseline, "d1")
    answer = approved_client.get(APPROVED)
    approval = answer.json()["approved"]
    assert (approval["expires_at"], approval["expired"], approval["evidence"]) == (None, False, "intact")
    assert approval["requirements"]["margin"] is None
    assert approved_client.get(CHECK).json()["pass"] is True
    assert command("chat") == (0, f"The setting {run.setting_id} passes for chat.\n")
    repository.delete_run(baseline.id)
    python = approved_client.get(APPROVED, params={"form": "python"})
    assert (python.headers["fsd-expired"], python.headers["fsd-evidence"]) == ("false", "deleted")
    assert python.headers["etag"] != answer.headers["etag"]
    checked = approved_client.get(CHECK).json()
    assert (checked["pass"], checked["approved"], checked["approval"]["evidence"]) == (False, True, "deleted")
    code, told = command("chat", "--json")
    assert (code, json.loads(told)) == (1, checked)
    never = approved_client.get(CHECK, params={"setting": "0" * 16})
    assert (never.status_code, never.headers["content-type"]) == (404, "application/problem+json")


HOSTILE = (
    "a\ud800b", "a\0b", "x" * 100_000, "../../x", "..", "/tmp/x", "{{7*7}}%s{0.__class__}", "a\r\nSet-Cookie: x",
)  # fmt: skip
PLAIN: dict[Any, Any] = {str: "a", int: 1, float: 1.0, bool: False}
LONGEST_ANSWER = 4_100  # characters of a sentence


def value_of(kind: Any) -> Any:
    """A value of a type, with which a call is begun."""
    text = str(kind)
    if kind in PLAIN or "Literal" in text:
        return PLAIN[kind] if kind in PLAIN else get_args(kind)[0]
    return [] if text.startswith("list") else {} if text.startswith("dict") else None


def texts_of(endpoint: ApiCall) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """The arguments of a call that take a text, each with a function that puts one in."""
    for name, kind in get_type_hints(endpoint).items():
        if name in ("return", "request"):
            continue
        if kind is str or kind == str | None:
            yield name, lambda text: text
        elif str(kind).startswith("list[str"):
            yield name, lambda text: [text]
        elif str(kind).startswith("list[dict"):
            yield name, lambda text: [{text: text}]
        elif str(kind).startswith("dict"):
            yield name, lambda text: {text: text}


def test_a_text_of_a_caller_reaches_nothing_but_a_sentence(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()  # from which a path upwards leads out
    add_finished(repository)
    admin = Request({"type": "http", "headers": [], KEY: Person("Ann", "admin")})
    files, failures, asked = set(tmp_path.rglob("*")), [], 0
    for endpoint in calls_of(repository, Settings(home=tmp_path)):
        hints, parameters = get_type_hints(endpoint), inspect.signature(endpoint).parameters
        empty = [name for name, one in parameters.items() if one.default is inspect.Parameter.empty]
        required = {name: value_of(hints[name]) for name in empty if name != "request"}
        for name, put in texts_of(endpoint):
            for text in HOSTILE:
                asked += 1
                try:
                    orjson.dumps(endpoint(**required | {name: put(text)}, request=admin))
                except FsdError as error:
                    if len(str(error)) > LONGEST_ANSWER:
                        failures.append(f"{endpoint.__name__}({name}={text[:20]!r}): {len(str(error))} characters")
                except Exception as error:
                    failures.append(f"{endpoint.__name__}({name}={text[:20]!r}): {type(error).__name__} {error}"[:200])
    assert asked > 500
    assert failures == []
    assert set(tmp_path.rglob("*")) == files


@pytest.mark.parametrize("name", ["go_on", "time_finalists"])
@pytest.mark.parametrize("id", ["/tmp/x", "../x", "none"])
def test_a_lock_is_named_by_what_the_database_returned(
    repository: Repository, tmp_path: Path, name: str, id: str
) -> None:
    from fsd_core.worker import run_actions

    with pytest.raises(FsdError):
        getattr(run_actions, name)(repository, tmp_path, id)
    assert not (tmp_path / "runs").exists()
