"""MLflow's real server as we serve it: people look at runs, nobody writes, and an old schema is told of."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from alembic import command
from fastapi import FastAPI
from fastapi.testclient import TestClient
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
from mlflow.version import VERSION
from sqlalchemy import create_engine

from dashboard.server.mlflow_pages import MLFLOW_STARTING, READ_ONLY, TURNED_OFF, mlflow_routes
from fsd_core import accounts, system
from fsd_core.errors import TrackingUnavailable
from fsd_core.middleware import LONGEST_LOG_MESSAGE
from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.tracking import check_schema, prepare_store
from fsd_core.worker.mlflow_server import NOT_A_QUERY
from fsd_core.worker.supervisor import mlflow_problem, mlflow_service, mlflow_socket
from fsd_core.worker.worker import Mirroring
from tests.tools.mlflow_pages import Pages, pages_over
from tests.tools.mlflow_routes import routes_of_mlflow
from tests.tools.plausible import new_repository
from tests.tools.raw_http import send_request
from tests.tools.served import served
from tests.tools.sizes import PATIENCE
from tests.tools.tracking_examples import generation, run_config
from tests.tools.upstream import CUT_OFF, SIZE, upstream
from tests.tools.worker_process import until

pytestmark = pytest.mark.processes


API = ("/ajax-api/2.0/mlflow", "/api/2.0/mlflow")
READ = (
    "experiments/get", "experiments/get-by-name", "experiments/search", "runs/get", "artifacts/list",
    "metrics/get-history", "metrics/get-history-bulk", "metrics/get-history-bulk-interval",
    "registered-models/search", "model-versions/search",
)  # fmt: skip
POSTED = ("experiments/search", "experiments/search-datasets", "runs/search", "logged-models/search")
WRITES = (
    ("runs/update", {"run_name": "Taken over"}), ("runs/delete", {}), ("runs/set-tag", {"key": "mine", "value": "1"}),
    ("runs/delete-tag", {"key": "fsd.run_id"}), ("runs/log-batch", {"metrics": []}), ("runs/log-metric", {}),
    ("experiments/update", {"new_name": "Taken over"}), ("experiments/delete", {}), ("runs/restore", {}),
    ("experiments/set-experiment-tag", {"key": "mine", "value": "1"}), ("experiments/create", {"name": "Rogue"}),
    ("runs/create", {}), ("registered-models/create", {"name": "rogue"}), ("logged-models", {"name": "rogue"}),
    ("model-versions/create", {"name": "rogue", "source": "/"}), ("upload-artifact?path=planted.txt", {}),
    ("webhooks", {"name": "rogue", "url": "https://127.0.0.1/", "events": []}),
)  # fmt: skip
OPEN = {
    *(("GET", path) for path in ("/", "/health", "/version", "/get-artifact", "/static-files/<path:path>")),
    ("GET", "/ajax-api/3.0/mlflow/server-info"),
    ("GET", "/ajax-api/2.0/mlflow/gateway-proxy"),
    ("POST", "/graphql"),
    *(("POST", f"{prefix}/3.0/mlflow/traces/search") for prefix in ("/api", "/ajax-api")),
    *(("GET", f"{api}/{path}") for api, path in product(API, READ)),
    *(("POST", f"{api}/{path}") for api, path in product(API, POSTED)),
}
CLOSED = b"There is nothing at this address."
JSON = {"Content_Type": "application/json"}
SECRET = "what only the owner of this machine may read"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with pages_over(tmp_path_factory.mktemp("home")) as pages:
        yield pages


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.name.startswith("mlflow.db")}


def standing(pages: Pages) -> list[object]:
    """All that a write could change."""
    experiments = pages.client.search_experiments()
    runs = pages.client.search_runs([one.experiment_id for one in experiments], run_view_type=3)
    return [
        sorted((one.name, one.lifecycle_stage, *sorted(one.tags.items())) for one in experiments),
        sorted((run.info.run_id, run.info.run_name, run.info.lifecycle_stage, *run.data.tags.items()) for run in runs),
        files(pages.settings.home),
    ]


@pytest.mark.wide
def test_every_route_is_one_that_people_need_or_closed(pages: Pages) -> None:
    """Before the application and, should anybody get past it, at MLflow's own door."""
    every = routes_of_mlflow()
    assert len(every) > 400  # the registry, gateway, assistant, jobs, webhooks, secrets and all the rest
    before = standing(pages)
    for method, route in sorted(every | OPEN):
        path = re.sub(r"<[^>]*>|\{[^}]*\}", "abc", route)
        for door in (pages.url, pages.server):
            status, headers, _ = send_request(door, method, path, "{}", **JSON)
            if method == "HEAD" and door == pages.url:  # answered as GET is
                assert status == send_request(door, "GET", path, "{}", **JSON)[0], (door, route)
                continue
            refused = (status, headers.get("content-length")) in (
                (404, str(len(CLOSED))),
                (403, str(len(READ_ONLY))),
            )
            assert refused == ((method, route) not in OPEN), (door, method, route)
    assert standing(pages) == before


@pytest.mark.parametrize("api", API)
def test_nobody_writes(pages: Pages, api: str) -> None:
    before = standing(pages)
    for path, values in WRITES:
        body = json.dumps({"run_id": pages.runs[0], "experiment_id": pages.experiment} | values)
        for method in ("POST", "PATCH", "PUT", "DELETE"):
            status, _, text = send_request(pages.url, method, f"{api}/{path}", body, Origin=pages.site, **JSON)
            assert (status, text.decode()) == (403, READ_ONLY)
            assert send_request(pages.server, method, f"{api}/{path}", body, **JSON)[0] == 404
    outside = f"{pages.settings.home}/outside/planted.txt".lstrip("/")
    for path in ("planted.txt", outside):
        put = f"{api.removesuffix('/mlflow')}/mlflow-artifacts/artifacts/{path}"
        assert send_request(pages.url, "PUT", put, b"planted")[0] == 403
        assert send_request(pages.server, "PUT", put, b"planted")[0] == 404
    mutation = {"query": f'mutation {{mlflowDeleteRun(input: {{runId: "{pages.runs[0]}"}}) {{apiError {{message}}}}}}'}
    echo = {"query": 'mutation {testMutation(inputString: "x") {output}}'}
    for changing, address in product((mutation, echo), (pages.url, pages.server)):
        status, _, text = send_request(address, "POST", "/graphql", json.dumps(changing), **JSON)
        assert (status, text.decode()) == (403, NOT_A_QUERY)
    asking = {"query": '{test(inputString: "x") {output}}'}
    assert send_request(pages.url, "POST", "/graphql", json.dumps(asking), **JSON)[0] == 200
    assert standing(pages) == before
    assert Path(psutil.Process(pages.pid).cwd()) == pages.folder


def test_no_port_leads_past_the_application(pages: Pages) -> None:
    assert psutil.Process(pages.pid).net_connections("inet") == []
    assert stat.S_IMODE(Path(pages.socket).parent.stat().st_mode) == 0o700


def test_what_is_ours_is_not_handed_on(pages: Pages) -> None:
    """Who somebody is stays with the application, and what the browser is told is ours to say."""
    status, headers, _ = send_request(
        pages.url, "GET", "/", Cookie="fsd_session=mine", Authorization="Bearer fsd_mine", Upgrade="h2c"
    )
    assert status == 200
    assert "script-src 'self' 'unsafe-eval';" in headers["content-security-policy"]
    assert [name for name in headers if name.startswith("access-control-")] == []
    assert "set-cookie" not in headers
    status, headers, _ = send_request(pages.url, "GET", f"/get-artifact?run_uuid={pages.runs[0]}&path=figures.html")
    assert status == 200
    assert headers["content-disposition"].startswith("attachment")
    assert headers["content-security-policy"].endswith("; sandbox")


@pytest.fixture(scope="module")
def secret(pages: Pages) -> Path:
    """A file outside of the store."""
    path = pages.settings.home / "secret.txt"
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize(
    "location",
    ["file://{home}", "{home}", "file://{store}/artifacts/..", "{store}/artifacts/../..", "file://{store}",
     "file://{store}/artifacts-of-another", "{store}/artifacts/link", "file://localhost{home}", "file:///{home}",
     "http://127.0.0.1:9/", "ftp://127.0.0.1:9/", "s3://bucket/", "runs:/{run}/", "models:/m/1", "mlflow-artifacts:/"],
)  # fmt: skip
def test_a_run_that_says_its_artifacts_are_elsewhere_shows_none(pages: Pages, secret: Path, location: str) -> None:
    (pages.folder / "artifacts-of-another").mkdir(exist_ok=True)
    for folder in (pages.folder / "artifacts-of-another", pages.folder):
        (folder / secret.name).write_text(SECRET)
    if not (link := pages.folder / "artifacts" / "link").is_symlink():
        link.symlink_to(secret.parent)
    named = location.format(home=secret.parent, store=pages.folder, run=pages.runs[0])
    run = pages.client.create_run(pages.experiment).info.run_id
    with closing(sqlite3.connect(pages.folder / "mlflow.db", isolation_level=None, timeout=PATIENCE)) as store:
        store.execute("UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", (named, run))
    assert pages.client.get_run(run).info.artifact_uri == named
    status, _, text = send_request(pages.url, "GET", f"/get-artifact?run_id={run}&path={secret.name}")
    assert 400 <= status < 500 or "Could not find a registered artifact repository" in text.decode()
    assert SECRET not in text.decode()
    if status == 403:
        assert "outside of the store" in text.decode()
    status, _, text = send_request(pages.url, "GET", f"{API[0]}/artifacts/list?run_id={run}")
    assert status >= 400
    assert secret.name not in text.decode()
    query = {"query": f'{{mlflowListArtifacts(input: {{runId: "{run}"}}) {{files {{path}} apiError {{message}}}}}}'}
    _, _, text = send_request(pages.url, "POST", "/graphql", json.dumps(query), **JSON)
    assert secret.name not in text.decode()


@pytest.mark.parametrize(
    "path",
    ["../../../secret.txt", "..%2F..%2F..%2Fsecret.txt", "%2e%2e/%2e%2e/%2e%2e/secret.txt",
     "..%252F..%252F..%252Fsecret.txt", "..%5C..%5C..%5Csecret.txt", "{secret}", "file://{secret}", "//{secret}",
     "./../../../secret.txt", "config.json/../../../../secret.txt", "%00", "link/secret.txt", "link"],
)  # fmt: skip
def test_no_path_leads_out_of_a_run(pages: Pages, secret: Path, path: str) -> None:
    link = pages.folder / "artifacts" / pages.runs[0] / "artifacts" / "link"
    if not link.is_symlink():
        link.symlink_to(secret.parent)
    asked_for = path.format(secret=secret)
    status, _, text = send_request(pages.url, "GET", f"/get-artifact?run_id={pages.runs[0]}&path={asked_for}")
    assert status >= 400, text
    assert SECRET not in text.decode()
    _, _, text = send_request(pages.url, "GET", f"{API[0]}/artifacts/list?run_id={pages.runs[0]}&path={asked_for}")
    assert b"secret.txt" not in text.replace(asked_for.encode(), b"")


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "http://127.0.0.1:3000", "null"])
def test_pages_of_other_origins_read_nothing(pages: Pages, origin: str) -> None:
    search = json.dumps({"experiment_ids": [pages.experiment]})
    assert send_request(pages.url, "POST", f"{API[0]}/runs/search", search, Origin=origin, **JSON)[0] == 403
    assert send_request(pages.url, "POST", f"{API[0]}/runs/search", search, Origin=pages.site, **JSON)[0] == 200
    preflight = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    for method, more in (("GET", {}), ("OPTIONS", preflight)):
        status, headers, _ = send_request(
            pages.url, method, f"{API[0]}/runs/get?run_id={pages.runs[1]}", Origin=origin, **more
        )
        assert status in (403, 404)
        assert [name for name in headers if name.startswith("access-control-")] == []


def test_other_host_names_and_large_bodies_are_refused(pages: Pages) -> None:
    assert send_request(pages.url, "GET", "/", Host="evil.example")[0] == 400
    assert send_request(pages.url, "GET", "/health", Host="localhost:5000")[0] == 200
    log = pages.settings.home / "logs" / "mlflow.log"
    logged = log.stat().st_size
    search = {"experiment_ids": [pages.experiment], "filter": "x" * 3_000_000}
    assert send_request(pages.url, "POST", f"{API[0]}/runs/search", json.dumps(search), **JSON)[0] == 413
    search |= {"filter": "x" * 1_900_000}
    assert send_request(pages.url, "POST", f"{API[0]}/runs/search", json.dumps(search), **JSON)[0] >= 400
    assert log.stat().st_size - logged < 2 * LONGEST_LOG_MESSAGE


@pytest.mark.parametrize("query", ["x" * 63_000, "x" * 66_000, "%00", "%ff%fe", "a\x7fb", "\xe9", "run_id=%s%d"])
def test_odd_addresses_are_refused(pages: Pages, query: str) -> None:
    """They are no fault of ours, nor do they end what they ask."""
    asked = f"GET /mlflow{API[0]}/runs/get?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection((str(urlsplit(pages.url).hostname), urlsplit(pages.url).port or 0), PATIENCE) as raw:
        raw.sendall(asked.encode("latin-1"))
        assert re.match(rb"HTTP/1.1 4\d\d ", raw.recv(100))
    assert send_request(pages.url, "GET", "/health")[0] == 200


def test_its_page_begins_with_our_script(pages: Pages) -> None:
    status, _, page = send_request(pages.url, "GET", "/")
    assert status == 200
    address = re.search(rb'<head><script src="([^"]+)"></script>', page)
    assert address is not None
    status, headers, script = send_request(pages.url, "GET", f"/{address[1].decode()}")
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert b"#/experiments" in script


def test_the_files_of_a_run_are_read(pages: Pages) -> None:
    run = pages.runs[2]
    status, _, listed = send_request(pages.url, "GET", f"{API[0]}/artifacts/list?run_id={run}")
    assert status == 200
    names = {file["path"] for file in json.loads(listed)["files"]}
    assert {"config.json", "generations.json", "metrics.json", "traces.jsonl.gz"} < names
    for name in names:
        status, headers, text = send_request(pages.url, "GET", f"/get-artifact?run_uuid={run}&path={name}")
        assert status == 200
        assert text == (pages.folder / "artifacts" / run / "artifacts" / name).read_bytes()[: len(text)]
        again = send_request(
            pages.url, "GET", f"/get-artifact?run_uuid={run}&path={name}", If_None_Match=headers["etag"]
        )
        assert (again[0], again[2]) == (304, b"")


def test_who_is_signed_in_reads_and_nobody_else(tmp_path: Path) -> None:
    repository = new_repository(tmp_path)
    accounts.add_user(repository, "Vera", "viewer", "a long password")
    signed_in = accounts.sign_in(repository, "Vera", "a long password", "127.0.0.1")
    cookie = {"Cookie": f"{Settings(home=tmp_path).session_cookie}={signed_in}"}
    token = {"Authorization": f"Bearer {accounts.add_token(repository, 'nightly', 'viewer')}"}
    with upstream(tmp_path) as mlflow, served(tmp_path, FSD_MLFLOW_UI="true", FSD_ACCESS="password") as (site, _):
        url = f"{site}/mlflow"
        status, headers, _ = send_request(url, "GET", "/", Accept="text/html")
        assert (status, headers["location"]) == (303, "/login?next=/mlflow/")
        for path in ("/", "/static-files/favicon.ico", f"{API[0]}/runs/get?run_id=abc", "/health"):
            assert send_request(url, "GET", path)[0] == 401
            assert send_request(url, "GET", path, Cookie="fsd_session=guessed")[0] == 401
            assert mlflow.asked == []
            assert send_request(url, "GET", path, **cookie)[::2] == (200, b"from MLflow")
            assert send_request(url, "GET", path, **token)[::2] == (200, b"from MLflow")
            assert mlflow.asked == [("GET", path)] * 2
            mlflow.asked.clear()
        rename = json.dumps({"run_id": "abc", "run_name": "Taken over"})
        assert send_request(url, "POST", f"{API[0]}/runs/update", rename, **JSON, **cookie)[0] == 403
        query = json.dumps({"query": "{__typename}"})
        assert send_request(url, "POST", "/graphql", query, **JSON)[0] == 401
        assert mlflow.asked == []
        assert send_request(url, "POST", "/graphql", query, **JSON, **cookie)[0] == 200
        assert mlflow.asked == [("POST", "/graphql")]


@pytest.mark.wide
def test_while_mlflow_is_away_a_sentence_says_so_and_an_answer_that_is_cut_off_is_no_whole_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    new_repository(tmp_path)
    with served(tmp_path, FSD_MLFLOW_UI="true") as (url, _):
        status, _, text = send_request(url, "GET", "/mlflow/", Accept="text/html")
        assert (status, b"not up yet" in text) == (503, True)
        assert send_request(url, "GET", "/mlflow")[1]["location"] == "/mlflow/"
        status, _, text = send_request(url, "GET", f"/mlflow{API[0]}/experiments/search")
        assert (status, text.decode()) == (503, MLFLOW_STARTING)
        # One that has died says where it was until the next one holds its lock.
        held = system.acquire(tmp_path / "mlflow.lock")
        assert held is not None
        held.write_metadata(pid=1, socket=str(tmp_path / "gone"))
        assert send_request(url, "GET", "/mlflow/", Accept="text/html")[0] == 503
        held.close()
        with upstream(tmp_path):
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
            connection.request("GET", f"/mlflow{CUT_OFF}")
            answer = connection.getresponse()
            assert int(answer.headers["content-length"]) == SIZE
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
            connection.close()
        assert send_request(url, "GET", "/mlflow/health")[0] == 503
    told = capfd.readouterr().err
    assert "MLflow ended while it answered." in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("settings", "status", "told"),
    [({"mlflow_ui": False}, 503, TURNED_OFF), ({"mlflow_uri": "https://mlflow.example.org"}, 307, "")],
)
def test_where_mlflow_is_not_served_here_it_is_told(
    tmp_path: Path, settings: dict[str, Any], status: int, told: str
) -> None:
    app = FastAPI()
    app.include_router(mlflow_routes(Settings(home=tmp_path, **settings), new_repository(tmp_path)))
    answer = TestClient(app).get("/mlflow/", follow_redirects=False)
    assert (answer.status_code, answer.text) == (status, told)
    assert answer.headers.get("location") == settings.get("mlflow_uri")


def test_one_that_was_killed_is_away(pages: Pages) -> None:
    """The last of these, for the others need it."""
    os.kill(pages.pid, signal.SIGKILL)
    until(lambda: send_request(pages.url, "GET", "/health")[0] == 503, "the sentence")
    shutil.rmtree(Path(pages.socket).parent)  # as the next one would


OLD = "867495a8f9d4"
"""the revision of MLflow 2.14"""


@pytest.fixture(scope="module")
def old_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as MLflow 2.14 left it, made by MLflow's own migrations, with an experiment and no run."""
    file = tmp_path_factory.mktemp("old") / "mlflow.db"
    engine = create_engine(url := sqlite_url(file))
    Base.metadata.create_all(engine)
    config = _get_alembic_config(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, OLD)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO experiments (experiment_id, name, artifact_location, lifecycle_stage) "
            "VALUES (0, 'Default', '', 'active')"
        )
    engine.dispose()
    return file


@pytest.fixture
def settings(old_store: Path, home: Path) -> Settings:
    """A home whose name needs quotes in an address, with such a store and a run that MLflow lacks."""
    settings = Settings(home=home / "a b")
    settings.make_folders()
    shutil.copy(old_store, settings.mlflow_folder / "mlflow.db")
    upgrade(settings.resolved_database_url)
    repository = repository_of(settings)
    run_id = repository.create_run(run_config())
    repository.record_generation(run_id, generation(0))
    repository.finish_run(run_id, {"accuracy": 1.0})
    return settings


def repository_of(settings: Settings) -> Repository:
    return Repository(open_database(settings.resolved_database_url))


def sentence_of(settings: Settings) -> str:
    return (
        f"The MLflow database {settings.resolved_mlflow_uri} has the schema of an older MLflow (revision {OLD}), which "
        f"MLflow {VERSION} cannot use: back it up, then run `mlflow db upgrade {settings.resolved_mlflow_uri}`."
    )


def upgraded_as_told(sentence: str) -> None:
    """Runs the command that the sentence names."""
    program, *arguments = shlex.split(sentence.split("`")[1])
    subprocess.run([Path(sys.executable).with_name(program), *arguments], check=True, capture_output=True)


@pytest.mark.wide
def test_the_worker_says_once_what_to_run_and_goes_on_afterwards(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    store = settings.mlflow_folder / "mlflow.db"
    before = store.read_bytes()
    repository = repository_of(settings)
    mirroring = Mirroring(settings.resolved_mlflow_uri, repository, lambda: False)
    with caplog.at_level(logging.WARNING, "fsd_core"):
        for _ in range(2):
            mirroring._sync()
    assert [record.getMessage() for record in caplog.records] == [sentence_of(settings)]
    assert store.read_bytes() == before  # neither upgraded behind the back of its owner nor moved aside
    assert [file.name for file in settings.mlflow_folder.iterdir() if file.is_file()] == ["mlflow.db"]
    upgraded_as_told(sentence_of(settings))
    mirroring._sync()
    assert repository.unsynced_runs() == []


@pytest.mark.wide
def test_a_command_measures_and_says_what_to_run(
    call: Callable[..., tuple[int, str, str]], settings: Settings, toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSD_HOME", str(settings.home))
    status, out, err = call("run", "--pair", toy, "--limit", "1", "--max-new-tokens", "4")
    assert status == 0
    assert "Run " in out
    assert f"warning: {sentence_of(settings)}\n" in err
    assert "Traceback" not in err


@pytest.mark.wide
def test_the_pages_say_what_to_run_and_come_up_afterwards(settings: Settings) -> None:
    service = mlflow_service(settings, {**os.environ, "FSD_HOME": str(settings.home)})
    service.keep_alive()
    try:
        with served(settings.home, FSD_MLFLOW_UI="true") as (url, _):
            assert until(lambda: mlflow_problem(settings.home), "the sentence") == sentence_of(settings)
            status, _, page = send_request(f"{url}/mlflow", "GET", "/", Accept="text/html")
            assert (status, b"mlflow db upgrade" in page) == (503, True)
            assert send_request(f"{url}/mlflow", "GET", "/")[2].decode() == sentence_of(settings)
            pid = service.pid
            upgraded_as_told(sentence_of(settings))
            until(lambda: mlflow_socket(settings.home), "MLflow's pages")
            assert service.pid == pid
            assert send_request(f"{url}/mlflow", "GET", "/health")[0] == 200
        assert "Traceback" not in service.log.read_text()
    finally:
        service.ask_to_stop()
        assert service.wait(time.monotonic() + PATIENCE)


@pytest.mark.parametrize("revision", ["ffffffffffff", "0123456789ab"])
def test_a_newer_schema_is_told_apart(settings: Settings, revision: str) -> None:
    with closing(sqlite3.connect(settings.mlflow_folder / "mlflow.db", isolation_level=None)) as store:
        store.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    with pytest.raises(TrackingUnavailable) as caught:
        prepare_store(settings)
    assert f"has the revision {revision}, which MLflow {VERSION} does not know" in str(caught.value)
    assert "upgrade the package mlflow" in str(caught.value)


def test_a_server_s_database_is_upgraded_by_the_address_that_is_set(settings: Settings) -> None:
    engine = create_engine(sqlite_url(settings.mlflow_folder / "mlflow.db"))
    with engine.connect() as connection, pytest.raises(TrackingUnavailable) as caught:
        check_schema(connection, "postgresql://db/mlflow?sslmode=require")
    engine.dispose()
    assert str(caught.value).endswith('run `mlflow db upgrade "$FSD_MLFLOW_URI"`.')
