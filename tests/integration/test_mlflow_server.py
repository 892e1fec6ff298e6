"""MLflow's real server as we serve it: what people do with runs works, and nothing else does, whoever asks."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest
from worker_process import ROOT

from fsd_core.asgi.logs import LONGEST
from tests.attack.http import send_request
from tests.attack.mlflow import Pages, pages_over

API = ("/ajax-api/2.0/mlflow", "/api/2.0/mlflow")
READ = (
    "experiments/get", "experiments/get-by-name", "experiments/search", "runs/get", "artifacts/list",
    "metrics/get-history", "metrics/get-history-bulk", "metrics/get-history-bulk-interval",
    "registered-models/search", "model-versions/search",
)  # fmt: skip
POSTED = (
    "experiments/search", "experiments/search-datasets", "runs/search", "logged-models/search",
    "runs/update", "runs/delete", "runs/restore", "runs/set-tag", "runs/delete-tag", "experiments/update",
    "experiments/delete", "experiments/restore", "experiments/set-experiment-tag", "experiments/delete-experiment-tag",
)  # fmt: skip
OPEN = {
    *(("GET", path) for path in ("/", "/health", "/version", "/get-artifact", "/static-files/<path:path>")),
    ("GET", "/ajax-api/3.0/mlflow/server-info"),
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


def post(pages: Pages, path: str, values: Any, **headers: str) -> int:
    return send_request(pages.url, "POST", f"/ajax-api/2.0/mlflow/{path}", json.dumps(values), **JSON, **headers)[0]


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.name.startswith("mlflow.db")}


def test_every_route_is_one_that_people_need_or_closed(pages: Pages) -> None:
    command = [sys.executable, "-m", "tests.attack.mlflow_routes"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    every = {(method, route) for method, route in json.loads(listed)}
    assert len(every) > 400  # the registry, gateway, assistant, jobs, webhooks, secrets and all the rest
    experiments, runs = len(pages.client.search_experiments()), len(pages.client.search_runs([pages.experiment]))
    before = files(pages.settings.home)
    for method, route in sorted(every | OPEN):
        path = re.sub(r"<[^>]*>|\{[^}]*\}", "abc", route)
        status, headers, _ = send_request(pages.url, method, path, "{}", **JSON)
        closed = (status, headers.get("content-length")) == (404, str(len(CLOSED)))
        assert closed == ((method, route) not in OPEN), (method, route)
    assert files(pages.settings.home) == before
    assert len(pages.client.search_experiments()) == experiments
    assert len(pages.client.search_runs([pages.experiment])) == runs


def test_nothing_is_written_without_the_store(pages: Pages) -> None:
    outside = pages.settings.home / "outside"
    before = files(pages.settings.home)
    location = {"name": "Rogue", "artifact_location": outside.as_uri()}
    put = f"{outside}/planted.txt".lstrip("/")
    assert post(pages, "experiments/create", location) == 404
    assert post(pages, "runs/create", {"experiment_id": pages.experiment}) == 404
    assert post(pages, "runs/log-batch", {"run_id": pages.runs[0], "metrics": []}) == 404
    assert post(pages, "registered-models/create", {"name": "rogue"}) == 404
    assert post(pages, "model-versions/create", {"name": "rogue", "source": outside.as_uri()}) == 404
    assert post(pages, "logged-models", {"experiment_id": pages.experiment, "name": "rogue"}) == 404
    assert post(pages, "webhooks", {"name": "rogue", "url": "https://127.0.0.1/", "events": []}) == 404
    assert post(pages, f"upload-artifact?run_uuid={pages.runs[0]}&path=planted.txt", "planted") == 404
    for api in ("api", "ajax-api"):
        assert (
            send_request(pages.url, "PUT", f"/{api}/2.0/mlflow-artifacts/artifacts/planted.txt", b"planted")[0] == 404
        )
        assert send_request(pages.url, "PUT", f"/{api}/2.0/mlflow-artifacts/artifacts/{put}", b"planted")[0] == 404
        for path in ("jobs/", "mlflow/assistant/message", "mlflow/gateway/secrets/create", "mlflow/scorers/register"):
            assert send_request(pages.url, "POST", f"/{api}/3.0/{path}", b"{}", **JSON)[0] == 404
    assert files(pages.settings.home) == before
    assert pages.client.get_experiment_by_name("Rogue") is None
    assert Path(psutil.Process(pages.pid).cwd()) == pages.folder


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
    with closing(sqlite3.connect(pages.folder / "mlflow.db", isolation_level=None)) as store:
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
def test_pages_of_other_origins_change_and_read_nothing(pages: Pages, origin: str) -> None:
    rename = {"run_id": pages.runs[1], "run_name": "Taken over"}
    assert post(pages, "runs/update", rename, Origin=origin) == 403
    assert post(pages, "runs/delete", {"run_id": pages.runs[1]}, Origin=origin) == 403
    assert post(pages, "experiments/delete", {"experiment_id": pages.experiment}, Sec_Fetch_Site="cross-site") == 403
    run = pages.client.get_run(pages.runs[1]).info
    assert (run.run_name, run.lifecycle_stage) != ("Taken over", "active")
    assert run.lifecycle_stage == "active"
    preflight = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    for method, more in (("GET", {}), ("OPTIONS", preflight)):
        status, headers, _ = send_request(
            pages.url, method, f"{API[0]}/runs/get?run_id={pages.runs[1]}", Origin=origin, **more
        )
        assert status in (403, 404)
        assert [name for name in headers if name.startswith("access-control-")] == []


def test_other_host_names_and_large_bodies_are_refused(pages: Pages) -> None:
    assert send_request(pages.url, "GET", "/", Host="evil.example")[0] == 400
    assert send_request(pages.url, "GET", "/", Host="192.168.1.7:5000")[0] == 400
    assert send_request(pages.url, "GET", "/health", Host="localhost:5000")[0] == 200
    log = pages.settings.home / "logs" / "mlflow.log"
    logged = log.stat().st_size
    note = {"run_id": pages.runs[1], "key": "mlflow.note.content", "value": "x" * 3_000_000}
    assert post(pages, "runs/set-tag", note) == 413
    assert post(pages, "runs/set-tag", note | {"value": "x" * 900_000, "run_id": "x" * 900_000}) >= 400
    assert log.stat().st_size - logged < 2 * LONGEST


def test_what_people_do_with_runs_works(pages: Pages) -> None:
    run, own = pages.runs[2], {"Origin": pages.url, "Sec_Fetch_Site": "same-origin"}
    assert post(pages, "runs/update", {"run_id": run, "run_name": "Renamed"}, **own) == 200
    assert post(pages, "runs/set-tag", {"run_id": run, "key": "mlflow.note.content", "value": "A note"}, **own) == 200
    assert post(pages, "runs/set-tag", {"run_id": run, "key": "mine", "value": "1"}, **own) == 200
    assert post(pages, "runs/delete-tag", {"run_id": run, "key": "fsd.provenance.dtype"}, **own) == 200
    found = pages.client.get_run(run)
    assert (found.info.run_name, found.data.tags["mlflow.note.content"], found.data.tags["mine"]) == (
        "Renamed",
        "A note",
        "1",
    )
    assert "fsd.provenance.dtype" not in found.data.tags
    assert post(pages, "runs/delete", {"run_id": run}, **own) == 200
    assert pages.client.get_run(run).info.lifecycle_stage == "deleted"
    assert post(pages, "runs/restore", {"run_id": run}, **own) == 200
    assert pages.client.get_run(run).info.lifecycle_stage == "active"
    about = {"experiment_id": pages.experiment}
    assert post(pages, "experiments/set-experiment-tag", about | {"key": "mine", "value": "1"}, **own) == 200
    assert post(pages, "experiments/update", about | {"new_name": "Renamed"}, **own) == 200
    assert post(pages, "experiments/update", about | {"new_name": "FSD Lab"}, **own) == 200
    status, _, listed = send_request(pages.url, "GET", f"{API[0]}/artifacts/list?run_id={run}")
    assert status == 200
    names = {file["path"] for file in json.loads(listed)["files"]}
    assert {"config.json", "generations.json", "metrics.json", "traces.jsonl.gz"} < names
    for name in names:
        assert send_request(pages.url, "GET", f"/get-artifact?run_uuid={run}&path={name}")[0] == 200
