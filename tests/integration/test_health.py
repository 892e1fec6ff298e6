"""What probes and proxies ask: whether it works, and HEAD in place of GET."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from dashboard.web import build_app, pages_of
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from tests.tools.built import built
from tests.tools.worker_process import ROOT


@pytest.fixture
def client(repository: Repository, tmp_path: Path) -> TestClient:
    settings = Settings(home=tmp_path, access="password")
    app = built(lambda: build_app(repository, settings))
    return TestClient(app, "http://10.1.2.3", follow_redirects=False, raise_server_exceptions=False)


def test_health_needs_no_sign_in_and_says_nothing_else(client: TestClient, repository: Repository) -> None:
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (
        200, {"web": "answers", "database": "answers", "worker": "not running"},
    )  # fmt: skip
    assert client.get("/runs").status_code == 400  # of another host name
    assert client.head("/health").status_code == 200
    assert client.post("/health").status_code in (400, 404, 405)


def test_health_is_503_without_a_database(client: TestClient, repository: Repository) -> None:
    with repository._database.session() as session:
        session.execute(text("DROP TABLE workers"))
    answer = client.get("/health")
    assert (answer.status_code, answer.json()["database"]) == (503, "does not answer")


def test_head_is_answered_wherever_get_is(repository: Repository, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    app = built(lambda: build_app(repository, settings))
    client = TestClient(app, "http://127.0.0.1", follow_redirects=False)
    paths = [
        "/",
        *(f"/{page.path}" for page in pages_of(settings)),
        "/favicon.ico",
        "/api/v1",
        "/api/v1/uses",
        "/nosuch",
    ]
    for path in paths:
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["content-type"] == got.headers["content-type"], path
    assert client.head("/api/v1/calls/list_uses").status_code == client.get("/api/v1/calls/list_uses").status_code


def test_a_way_out_that_cannot_be_used_ends_no_start(home: Path) -> None:
    ways = {
        "ALL_PROXY": "socks5://127.0.0.1:1", "NO_PROXY": "::1/128,10.0.0.0/8", "SSL_CERT_FILE": "/gone.pem",
        "https_proxy": "nonsense",
    }  # fmt: skip
    code = "import dashboard.web, os; print(os.environ['ALL_PROXY'], os.environ['https_proxy'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **ways}, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("socks5://127.0.0.1:1 nonsense\n", 0), done.stderr
