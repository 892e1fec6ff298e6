"""A run of a MLflow server by its address: MLflow's own answer over HTTP, and servers that are none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fsd_core.errors import FsdError, Malformed, TrackingUnavailable
from fsd_core.storage.repository import Repository
from fsd_plugins.results import reading as result_import
from fsd_plugins.results.reading import fetch_mlflow_run, import_results

RUN = "0123456789abcdef0123456789abcdef"


def answer(**metrics: float) -> bytes:
    """MLflow's answer to ``runs/get``, as its server writes it."""
    from mlflow.entities import Metric, Run, RunData, RunInfo, RunTag
    from mlflow.protos.service_pb2 import GetRun
    from mlflow.utils.proto_json_utils import message_to_json

    info = RunInfo(
        run_id=RUN, experiment_id="1", user_id="u", status="FINISHED", start_time=1_790_000_000_000, end_time=None,
        lifecycle_stage="active", run_name="SD · γ 5",
    )  # fmt: skip
    values = [Metric(name.replace("__", "/"), value, 0, 0) for name, value in metrics.items()]
    message = GetRun.Response()
    message.run.MergeFrom(Run(info, RunData(values, [], [RunTag("fsd.task", "arithmetic")])).to_proto())
    return message_to_json(message).encode()


@contextmanager
def server(data: bytes, status: int = 200, **headers: str) -> Iterator[tuple[str, list[Any]]]:
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", asked
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def test_figures_of_a_run_are_imported_with_its_address_and_once(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    data = answer(
        n=24, accuracy=0.5, accuracy_low=0.3, accuracy_high=0.7, tokens_per_second=100.0, loss=1.5, prompt__rate=3.0
    )  # fmt: skip
    with server(data) as (url, asked):
        read = [fetch_mlflow_run(f"{url}{path}/runs/{RUN}") for path in ("/#/experiments/1", "/mlflow/experiments/1")]
        assert read[0].sha256 == read[1].sha256
        first, again = (import_results(repository, [file]) for file in read)
    assert [path for path, _ in asked] == [
        f"{folder}/api/2.0/mlflow/runs/get?run_id={RUN}" for folder in ("", "/mlflow")
    ]  # fmt: skip
    assert {token for _, token in asked} == {"Bearer secret"}
    assert (first[0].is_new, again[0].is_new, first[0].id) == (True, False, again[0].id)
    run = repository.run(first[0].id)
    found = run.metrics or {}
    assert (run.label, run.task, found["n"]) == ("Imported · SD · γ 5", "arithmetic", 24)
    assert [found[f"accuracy{end}"] for end in ("", "_low", "_high")] == [0.5, 0.3, 0.7]
    assert (found["tokens_per_second"], found["other_figures"]) == (100, {"loss": [1.5, None, None]})
    assert (run.origin["tool"], run.origin["run"], run.origin["server"]) == ("MLflow", RUN, url)
    assert "secret" not in json.dumps(run.provenance)


def test_prompts_that_failed_are_none_that_were_answered(repository: Repository) -> None:
    with server(answer(n=24, failed=24, tokens_per_second=0.0, loss=0.0)) as (url, _):
        (run,) = import_results(repository, [fetch_mlflow_run(f"{url}/#/experiments/1/runs/{RUN}")])
    found = repository.run(run.id).metrics or {}
    assert (found["n"], found["failed"], found["unscored"], found["tokens_per_second"]) == (24, 24, 0, None)
    assert "other_figures" not in found


@pytest.mark.parametrize(
    "url",
    [
        "", "no", "ftp://host/#/experiments/1/runs/" + RUN, "http://host/#/experiments/1", "file:///etc/passwd",
        "http://host:99999999/#/experiments/1/runs/" + RUN, "http:///#/experiments/1/runs/" + RUN,
        f"http://host/#/experiments/1/runs/{RUN[:-1]}g", f"http://us:pw@host/#/experiments/1/runs/{RUN}",
        f"http://host\n/#/experiments/1/runs/{RUN}",
    ],
)  # fmt: skip
def test_other_addresses_are_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(Malformed) as caught:
        fetch_mlflow_run(url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "status", "headers", "sentence"),
    [
        (b"<html>hello</html>", 200, {}, "is not answered as MLflow does"),
        (b'{"run": {"info": 3}}', 200, {}, "is not answered as MLflow does"),
        (b'{"a":' * 100_000, 200, {}, "is not answered as MLflow does"),
        (b"", 302, {"Location": "http://169.254.169.254/"}, "answers with status 302"),
        (b"", 404, {}, "answers with status 404: check the run's address"),
        (b" " * 2000, 200, {}, "answers with more than 1,000 bytes"),
        (answer(accuracy=0.5), 200, {}, "does not say how many prompts it measured: add --prompts"),
    ],
)
def test_a_server_that_is_none_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, data: bytes, status: int, headers: dict[str, str], sentence: str
) -> None:
    monkeypatch.setattr(result_import, "_LARGEST_ANSWER", 1_000_000 if data[:1] == b"{" else 1_000)
    with server(data, status, **headers) as (url, asked), pytest.raises(FsdError, match=sentence):
        fetch_mlflow_run(f"{url}/#/experiments/1/runs/{RUN}")
    assert len(asked) == 1
    with pytest.raises(TrackingUnavailable, match="cannot be asked"):
        fetch_mlflow_run(f"{url}/#/experiments/1/runs/{RUN}")
