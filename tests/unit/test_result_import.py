"""Results of other tools: read as their writers write them, stored once, marked, and never judged."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import gradio as gr
import numpy as np
import pytest
from starlette.requests import Request

import fsd_core
from dashboard.compare import export
from dashboard.compare.compared_runs import compare
from dashboard.runs.opened_run import OpenedRun, origin_html, prompts_html, tiles_html
from dashboard.runs.run_list import RUNS
from dashboard.settings import setting_page
from dashboard.ui.fields import LARGEST_UPLOAD
from dashboard.ui.templates import joined
from dashboard.ui.view import Asked, Question
from fsd_core.accounts import KEY
from fsd_core.actions.answers import run_record
from fsd_core.cli.output import print_runs, run_json
from fsd_core.config import DecodingConfig
from fsd_core.errors import (
    FsdError,
    InvalidSetting,
    Malformed,
    NoEquivalent,
    NotApplicable,
    OutOfRange,
    Taken,
    TrackingUnavailable,
    UnfitEvidence,
    Unreadable,
    WrongState,
)
from fsd_core.metrics import METRICS
from fsd_core.plots import trade_offs
from fsd_core.review.approvals import setting_of
from fsd_core.review.delivery import FORMS, deliver
from fsd_core.roles import Person
from fsd_core.rules import RULES
from fsd_core.settings import Settings
from fsd_core.statistics.intervals import wilson
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.worker import run_actions
from fsd_plugins.results import reading as result_import
from fsd_plugins.results.reading import READERS, fetch_mlflow_run, import_results, read_result, read_result_path
from fsd_plugins.results.section import ImportPanel
from fsd_plugins.workspaces.importing import check_measurements
from tests.tools.asking import act, asked
from tests.tools.built import built
from tests.tools.run_views import decoding, metrics, run_view

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results"


def imported(repository: Repository, *names: str, **changes: str) -> list[RunView]:
    runs = import_results(repository, [read_result_path(RESULTS / name) for name in names], **changes)
    return [repository.run(run.id) for run in runs]


def figures(run: RunView) -> dict[str, Any]:
    return run.metrics or {}


def test_vllm_bench_serve(repository: Repository) -> None:
    (run,) = imported(repository, "vllm-bench-serve.json")
    written = json.loads((RESULTS / "vllm-bench-serve.json").read_text())
    assert run.label == "Imported · toy-model, concurrency 4"
    assert (run.pair, run.task, run.decoding.threshold) == ("toy-model", "vllm bench serve", 4)
    found = figures(run)
    assert (found["n"], found["failed"]) == (written["completed"] + written["failed"], written["failed"])
    assert found["tokens_per_second"] == pytest.approx(written["output_throughput"])
    assert 1 / found["seconds_per_answer"] == pytest.approx(written["request_throughput"])
    assert found["time_to_first_token"] == pytest.approx(written["median_ttft_ms"] / 1000)
    assert found["acceptance_rate"] == pytest.approx(written["spec_decode_acceptance_rate"] / 100)
    assert found["mean_acceptance_length"] == pytest.approx(written["spec_decode_acceptance_length"])
    assert (run.origin["tool"], run.origin["file"]) == ("vllm bench serve", "vllm-bench-serve.json")
    assert len(run.origin["sha256"]) == 64


@pytest.mark.parametrize("told", [True, False])
def test_requests_that_failed_are_no_answers_in_vllm_s_results(repository: Repository, told: bool) -> None:
    fields = {"num_prompts": 100, "completed": 1, "total_output_tokens": 130, "duration": 2.9}
    some = _changed("vllm-bench-serve.json", **fields, failed=99 if told else None)
    times = {"median_ttft_ms": 0.0, "median_tpot_ms": 0.0, "p99_tpot_ms": 0.0, "mean_e2el_ms": 0.0}
    fields = {"num_prompts": 20, "completed": 0, "total_output_tokens": 0, "duration": 0.5, **times}
    none = _changed("vllm-bench-serve.json", **fields, failed=20 if told else None)
    found, empty = (
        figures(repository.run(run.id))
        for run in import_results(repository, [read_result(some, "a.json"), read_result(none, "b.json")])
    )
    assert (found["n"], found["failed"], found["unscored"]) == (100, 99, 1)
    assert (found["seconds_per_answer"], found["mean_tokens"]) == (pytest.approx(2.9), 130)
    assert found["tokens_per_second"] == pytest.approx(130 / 2.9)
    assert (empty["n"], empty["failed"], empty["unscored"], empty["seconds"]) == (20, 20, 0, 0.5)
    assert {name for name in METRICS if empty.get(name) is not None} == {"seconds", "tokens"}
    assert "other_figures" not in empty


def test_requests_that_failed_are_no_answers_in_guidellm_s_reports(repository: Repository) -> None:
    report = json.loads((RESULTS / "guidellm.json").read_text())
    metrics = report["benchmarks"][0]["metrics"]
    metrics["request_totals"] |= {"successful": 0, "errored": 6}
    for by_status in metrics.values():
        if isinstance(by_status, dict) and isinstance(successful := by_status.get("successful"), dict):
            successful |= {"mean": 0.0, "median": 0.0, "count": 0, "total_sum": 0.0, "mean_ci": None}
    runs = import_results(repository, [read_result(json.dumps(report).encode(), "a.json")])
    empty, other = (figures(repository.run(run.id)) for run in runs[:2])
    assert (empty["n"], empty["failed"]) == (6, 6)
    assert [name for name in METRICS if empty.get(name) is not None] == []
    assert "other_figures" not in empty
    assert other["time_to_first_token"] > 0


def test_guidellm(repository: Repository) -> None:
    runs = imported(repository, "guidellm.json")
    written = json.loads((RESULTS / "guidellm.json").read_text())
    assert len(runs) == len(written["benchmarks"]) > 1
    for run, benchmark in zip(runs, written["benchmarks"], strict=True):
        metrics, found = benchmark["metrics"], figures(run)
        assert run.decoding.threshold == benchmark["config"]["strategy"]["streams"]
        assert found["tokens_per_second"] == metrics["output_tokens_per_second"]["successful"]["mean"]
        assert 1 / found["seconds_per_answer"] == pytest.approx(metrics["requests_per_second"]["successful"]["mean"])
        between = metrics["inter_token_latency_ms"]["successful"]["median"]
        assert found["time_per_output_token"] == pytest.approx(between / 1000)
        assert run.origin["version"] == written["metadata"]["guidellm_version"]
    assert len({run.decoding.without_knob() for run in runs}) == 1  # one line of a figure


def test_lm_eval_counts_the_solved_and_its_samples_say_the_same(repository: Repository) -> None:
    runs = imported(repository, "lm-eval-results.json")
    samples = imported(repository, "samples_sums_2026-11-26T16-20-00.123456.jsonl")
    assert [run.label for run in runs] == ["Imported · lm-eval, strict-match", "Imported · lm-eval, flexible-extract"]
    for run in (*runs, *samples):
        assert (run.task, figures(run)["correct"], figures(run)["n"]) == ("sums", 6, 8)
        assert (figures(run)["accuracy_low"], figures(run)["accuracy_high"]) == tuple(wilson(6, 8))
        assert (run.origin["tool"], run.origin["metric"]) == ("lm-eval", "exact_match")
    assert runs[0].origin["version"] == json.loads((RESULTS / "lm-eval-results.json").read_text())["lm_eval_version"]


def test_a_score_that_is_no_count_keeps_lm_evals_interval(repository: Repository) -> None:
    written = json.loads((RESULTS / "lm-eval-results.json").read_text())
    written["results"]["sums"] = {"acc,none": 0.7031, "acc_stderr,none": 0.02, "perplexity,none": 3.5}
    (run,) = import_results(repository, [read_result(json.dumps(written).encode(), "group.json")])
    found = figures(repository.run(run.id))
    assert found["accuracy"] == 0.7031
    assert found["accuracy_high"] - found["accuracy"] == pytest.approx(1.96 * 0.02, rel=1e-3)
    assert found["other_figures"] == {"lm-eval perplexity": [3.5, None, None]}


def test_specforge_and_llama_cpp(repository: Repository) -> None:
    (spec,) = imported(repository, "specforge.json")
    assert (spec.task, figures(spec)["n"]) == ("gsm8k", 64)
    assert figures(spec)["mean_acceptance_length_by_request"] == 3.4125
    reads, writes = imported(repository, "llama-bench.json")
    assert figures(reads)["tokens_per_second"] is None
    assert figures(reads)["other_figures"] == {"prompt tokens per s": [630.287114, None, None]}
    found = figures(writes)
    assert writes.pair == "SmolLM2-135M-Instruct-Q4_1.gguf"  # without the folder
    assert found["tokens_per_second"] == pytest.approx(128)
    assert found["tokens_per_second_low"] < 128 < found["tokens_per_second_high"]
    batches = imported(repository, "llama-batched-bench.jsonl", model="SmolLM2", task="decode", family="llama.cpp")
    assert [(run.decoding.threshold, run.pair, run.task) for run in batches] == [
        (1, "SmolLM2", "decode"), (4, "SmolLM2", "decode"),
    ]  # fmt: skip
    assert figures(batches[1])["tokens_per_second"] == pytest.approx(4 * 64 / 1.653333)


def test_a_file_is_imported_once_and_under_other_names_again(repository: Repository) -> None:
    files = [read_result_path(RESULTS / "llama-bench.json")]
    first = import_results(repository, files)
    again = import_results(repository, files)
    assert [run.is_new for run in (*first, *again)] == [True, True, False, False]
    assert [run.id for run in first] == [run.id for run in again]
    assert all(run.is_new for run in import_results(repository, files, task="other"))
    assert repository.count_runs() == 4


def _changed(name: str, **fields: Any) -> bytes:
    return json.dumps(json.loads((RESULTS / name).read_text()) | fields).encode()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "holds no JSON object"),
        (b"\xff\xfe", "is not JSON"),
        (b"PK\x03\x04zip", "is not JSON"),
        (b"[]", "holds no JSON object"),
        (b"3", "holds no JSON object"),
        (b"[1, {}]", "holds no JSON object"),
        (b'{"runs": 3}', "is not a result that can be read: expected one of vllm bench serve, guidellm, lm-eval"),
        (b'{"a":' * 100_000, "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"9" * 5000, "is not JSON"),
        (_changed("specforge.json", samples="many"), "is no whole result. Samples is 'many': expected a whole number"),
        (_changed("specforge.json", samples=0), "Prompts is 0: expected at least 1"),
        (_changed("specforge.json", latency_seconds=-1), "Latency seconds is -1"),
        (_changed("specforge.json", average_acceptance_length=10**400), "Average acceptance length"),
        (_changed("specforge.json", dataset="x" * 3000), "Dataset"),
        (_changed("vllm-bench-serve.json", completed=None), "Completed is None: expected a whole number"),
        (_changed("guidellm.json", benchmarks=[{}]), "is no whole result"),
        (_changed("guidellm.json", benchmarks=[]), "holds 0 measurements"),
        (_changed("lm-eval-results.json", results=[]), "is no whole result"),
        (_changed("lm-eval-results.json", **{"n-samples": {}}), "holds 0 measurements"),
        ((RESULTS / "llama-batched-bench.jsonl").read_bytes() + b'{"n_kv_max": 1}', "is not one tool's result"),
        ((RESULTS / "llama-batched-bench.jsonl").read_bytes() + b"{", "is not JSON"),
    ],
)
def test_any_other_file_is_one_sentence_and_nothing_is_kept(
    data: bytes, sentence: str
) -> None:  # fmt: skip
    untouched = cast("Repository", None)
    good = read_result_path(RESULTS / "specforge.json")
    with pytest.raises(InvalidSetting) as caught:
        import_results(untouched, [good, read_result(data, "res\nult.json")])
    message = str(caught.value)
    assert sentence in message
    assert message.startswith("res ult.json ")
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 700


def test_files_have_a_largest_size_and_number_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for path in (tmp_path, tmp_path / "no"):
        with pytest.raises(Unreadable):
            read_result_path(path)
    monkeypatch.setattr(result_import, "MOST_LINES_OF_RESULT", 1)
    with pytest.raises(OutOfRange):
        read_result_path(RESULTS / "llama-batched-bench.jsonl")
    monkeypatch.setattr(result_import, "LARGEST_RESULT", 100)
    with pytest.raises(OutOfRange, match="100"):
        read_result_path(RESULTS / "specforge.json")


def test_no_file_is_claimed_by_two_readers() -> None:
    for path in RESULTS.iterdir():
        if not path.name.startswith("samples_"):
            first = result_import._documents(path.read_bytes(), path.name)[0]
            assert len([reader.title for reader in READERS if reader.claims(first)]) == 1


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


SECONDS = [0.21, 0.2, 0.22]


def log(home: Path, **changed: Any) -> str:
    given: dict[str, Any] = {
        "name": "ViTTM, 4 process tokens", "family": "ViTTM", "knob": {"process tokens": 4, "memory tokens": 64},
        "prompts": 360, "correct": 350, "seconds": SECONDS, "task": "digits", "model": "trained here",
        "figures": {"MFLOP per image": (7.1, 7, 7.2)}, "origin": {"commit": "abc"}, "home": home, "mlflow": False,
    }  # fmt: skip
    return fsd_core.log_run(**given | changed)


def stored(home: Path) -> Repository:
    return run_actions.open_repository(Settings(home=home))


def test_figures_are_stored_once_with_intervals_where_the_parts_allow_them(tmp_path: Path) -> None:
    id = log(tmp_path, key="a", prompts=np.int64(360), seconds=np.array(SECONDS))
    assert log(tmp_path, key="a") == id
    assert log(tmp_path) != log(tmp_path)
    with pytest.raises(Taken):
        log(tmp_path, key="a", correct=351)
    run = stored(tmp_path).run(id)
    found = run.metrics or {}
    assert (run.status, run.prompts_done, run.decoding_seconds, run.decoding.threshold) == ("finished", 360, 0.63, 4)
    assert (found["accuracy"], found["accuracy_low"], found["accuracy_high"]) == (350 / 360, *wilson(350, 360))
    assert found["seconds_per_answer"] == pytest.approx(0.63 / 360)
    assert found["seconds_per_answer_low"] < 0.63 / 360 < found["seconds_per_answer_high"]
    assert found["tokens_per_second"] is found["acceptance_rate"] is found["drafted"] is None
    single = stored(tmp_path).run(log(tmp_path, seconds=0.63, tokens=[100, 101, 102], correct=None)).metrics or {}
    assert single["seconds_per_answer_low"] is None
    assert single["tokens_per_second"] == pytest.approx(303 / 0.63)
    assert single["tokens_per_second_low"] < 303 / 0.63
    assert (single["accuracy"], single["unscored"]) == (None, 360)
    parts = {"seconds": [0.28, 0.3, 0.32], "tokens": [100, 100, 100], "correct": 6, "figures": None}
    some = stored(tmp_path).run(log(tmp_path, failed=350, **parts)).metrics or {}
    assert (some["seconds_per_answer"], some["mean_tokens"], some["accuracy"]) == (pytest.approx(0.09), 30, 6 / 360)
    assert some["seconds_per_answer_low"] < 0.09 < some["seconds_per_answer_high"]
    none = stored(tmp_path).run(log(tmp_path, failed=360, **parts | {"correct": None})).metrics or {}
    assert (none["seconds"], none["tokens"], none["failed"]) == (pytest.approx(0.9), 300, 360)
    assert none["seconds_per_answer"] is none["mean_tokens"] is none["tokens_per_second"] is None
    given = stored(tmp_path).run(log(tmp_path, figures={"acceptance_rate": (0.5, 0.4, 0.6)})).metrics or {}
    assert [given[f"acceptance_rate{end}"] for end in ("", "_low", "_high")] == [0.5, 0.4, 0.6]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"seconds": math.nan}, "Seconds is nan: expected a finite number"),
        ({"seconds": -1.0}, r"Seconds is -1\.0: expected at least 0"),
        ({"seconds": 0}, "Seconds is 0: expected the time"),
        ({"seconds": "1"}, "Seconds is '1': expected a"),
        ({"seconds": [1, 2], "tokens": [1, 2, 3]}, "2 numbers of seconds and 3 of tokens do not divide 360 prompts"),
        ({"seconds": [1] * 361}, "361 numbers of seconds"),
        ({"prompts": 0}, "Prompts is 0: expected at least 1"),
        ({"prompts": True}, "Prompts is True: expected a"),
        ({"prompts": 2**31}, "Prompts is 2147483648: expected at most"),
        ({"correct": 361}, "361 correct and 0 failed are more than the 360 prompts"),
        ({"correct": 350, "failed": 11}, "350 correct and 11 failed are more"),
        ({"correct": 1.5}, r"Correct is 1\.5: expected a"),
        ({"correct": None, "seconds": None, "figures": None}, "There is nothing to log"),
        ({"name": "a\nb"}, "name of a measured series 'a"),
        ({"name": "a\x00"}, "name of a measured series"),
        ({"name": " "}, "name of a measured series"),
        ({"family": "x" * 81}, "1 to 80 readable characters"),
        ({"name": 3}, "Name is 3: expected a"),
        ({"knob": math.inf}, "finite number"),
        ({"knob": {"a": 1, " a ": 2}}, "A knob is named twice"),
        ({"knob": {"a\x1b": 1}}, "name of a knob"),
        ({"knob": {str(i): i for i in range(7)}}, "Values"),
        ({"figures": {"accuracy": 0.9}}, "'accuracy' follows from the counts"),
        ({"figures": {"acceptance_rate": 50}}, "'acceptance_rate' is 50: expected a share from 0 to 1"),
        ({"figures": {"a": (1, 2, 3)}}, "'a' is 1, outside of its interval 2 to 3"),
        ({"figures": {"<b>": 1}}, "The figure's name '<b>' cannot be used"),
        ({"figures": {"a": math.nan}}, "finite number"),
        ({"figures": {"a": 1e16}}, r"expected at most 1e\+15"),
        ({"origin": {"commit": "a\nb"}}, "origin's commit"),
        ({"origin": {"parts": [1]}}, "is no text and no number"),
        ({"origin": {"a": math.inf}}, "expected a finite number"),
        ({"task": ""}, "task's name ''"),
        ({"model": "m\x07"}, "model's name"),
        ({"key": "k" * 201}, "The key cannot be used"),
    ],
)  # fmt: skip
def test_nonsense_is_a_sentence_and_nothing_is_kept(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence) as caught:
        log(tmp_path, **changed)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_every_door_says_that_they_were_measured_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    ids = [log(home, name="ViT", family="ViT", knob=None, correct=352), log(home, origin={"note": "<b>loud</b>"})]
    repository = stored(home)
    runs = [repository.run(id) for id in ids]
    assert [run.label for run in runs] == ["Measured elsewhere · ViT", "Measured elsewhere · ViTTM, 4 process tokens"]
    answer = run_record(runs[1])
    assert answer["measured_elsewhere"] is not None
    assert answer["measured_elsewhere"]["knobs"] == {"process tokens": 4, "memory tokens": 64}
    assert answer["measured_elsewhere"]["figures"]["MFLOP per image"]["low"] == 7
    assert json.loads(json.dumps(run_json(runs[1])))["other_figures"] == {"MFLOP per image": [7.1, 7, 7.2]}
    print_runs(runs)
    assert "nothing here has verified these figures (logged with fsd_core.log_run" in capsys.readouterr().out
    prompts = prompts_html(runs[1].id, [], None, False, elsewhere=True)
    page = joined([tiles_html(runs[1]), origin_html(runs[1]), prompts])
    assert all(text in page for text in ("MFLOP per image", "&lt;b&gt;loud&lt;/b&gt;", "no verdict", "No prompts"))
    assert not runs[1].has_more_to_do
    comparison = compare(repository, ids, None)
    assert any("2 runs were measured elsewhere" in warning for warning in comparison.warnings)
    assert all(row.verdict is None and not any(cell.delta for cell in row.cells) for row in comparison.rows)
    rows = list(csv.DictReader(io.StringIO(export.csv_text(comparison))))
    assert [row["figure MFLOP per image"] for row in rows] == ["7.1", "7.1"]
    assert rows[1]["measured_elsewhere"].startswith("logged with fsd_core.log_run")
    assert rows[1]["setting.decoding.acceptance.process tokens"] == "4.0"
    assert "2 runs were measured elsewhere" in export.html(comparison)
    for draw in {**trade_offs.COMPARISON_FIGURES, **trade_offs.MATCHED}.values():
        draw(comparison.runs, comparison.baseline, comparison.prompts)
    with repository._database.session(readonly=True) as session:  # what an import of the workspace would check
        check_measurements(session)


def test_its_pages_open_without_prompts_and_offer_neither_a_resumption_nor_a_proposal(tmp_path: Path) -> None:
    repository = stored(tmp_path)
    run = repository.run(log(tmp_path))

    def build() -> OpenedRun:
        with gr.Blocks(analytics_enabled=False):
            return OpenedRun(repository, None)

    opened = built(build)
    fields = {opened.outcome: "all", opened.search: "", opened.order: ""}
    updates = opened.redraw(asked(dict.fromkeys(opened.panel.forms) | fields), run.id)
    assert "measured elsewhere are kept here" in updates[opened.prompts]
    assert "logged with fsd_core.log_run" in updates[opened.tiles]
    assert "Resume" not in updates[opened.head]
    assert "Measured elsewhere · ViTTM, 4 process tokens" in RUNS.html([run])
    page = setting_page(repository, run.setting_id)
    assert "there is nothing here to run" in page
    assert "review?propose=" not in page


def test_the_figure_counts_answers_where_nothing_has_tokens_and_never_puts_them_on_the_front(tmp_path: Path) -> None:
    runs = [stored(tmp_path).run(log(tmp_path, knob=knob, correct=300 + knob)) for knob in (2, 4)]
    found = trade_offs.tradeoff_info(runs)
    assert (found.speed, found.front, found.left_out) == (trade_offs.ANSWERS, [], 0)
    (line,) = found.groups
    assert line.name == "Measured elsewhere · ViTTM"
    assert [point.run.decoding.threshold for point in line.points] == [2, 4]
    point = line.points[0]
    assert point.speed.value == pytest.approx(360 / 0.63)
    assert point.speed.low < point.speed.value < point.speed.high
    ours = run_view(decoding("speculative"), metrics(acceptance=0.5))
    mixed = trade_offs.tradeoff_info([ours, *runs])
    assert (mixed.speed, mixed.left_out, [p.run.id for p in mixed.front]) == (trade_offs.TOKENS, 2, [ours.id])
    with_tokens = stored(tmp_path).run(log(tmp_path, tokens=1e6))
    assert [p.run.id for p in trade_offs.tradeoff_info([ours, with_tokens]).front] == [ours.id]


def test_nothing_runs_proposes_or_delivers_them(tmp_path: Path) -> None:
    repository = stored(tmp_path)
    first, second = (repository.run(log(tmp_path, knob=knob)) for knob in (2, 4))
    assert {"measured", "imported"}.isdisjoint(RULES)
    with pytest.raises(UnfitEvidence, match="nothing here can verify"):
        setting_of(repository, [first.id], [second.id])
    for form in FORMS:
        with pytest.raises(NoEquivalent):
            deliver(first.config.setting, form)
    with pytest.raises(WrongState):
        repository.reopen_runs([first.id])
    method = DecodingConfig.model_validate(first.decoding.as_json())
    assert (method, method.without_knob()) == (first.decoding, second.decoding.without_knob())
    with pytest.raises(NotApplicable):
        method.acceptance.refuse()


RESULT = Path(__file__).resolve().parents[1] / "data" / "results" / "vllm-bench-serve.json"


class Page:
    """The panel, and what is asked of it."""

    def __init__(self, repository: Repository) -> None:
        self.read_anew = 0

        def build() -> ImportPanel:
            with gr.Blocks(analytics_enabled=False):
                return ImportPanel(repository, self._forget)

        self.panel = built(build)

    def _forget(self) -> None:
        self.read_anew += 1

    def __call__(self, content: bytes, name: str = "bench.json", role: str = "author", **more: Any) -> str:
        """Return what the panel answers."""
        sent = {"action": "add", "file": name, "size": len(content), "data": base64.b64encode(content).decode()} | more
        request: Any = Request({"type": "http", "state": {}, KEY: Person("Ann", role)})
        return str(self.panel.check_or_add(act("import results", sent), Asked(Question(), {}, request))[
            self.panel.answer
        ])  # fmt: skip


@pytest.fixture
def page(repository: Repository) -> Page:
    return Page(repository)


def test_a_file_is_read_first_and_added_once_as_imported(page: Page, repository: Repository) -> None:
    data = RESULT.read_bytes()
    told = page(data, "<b>bench.json", action="check")
    assert "&lt;b&gt;bench.json is of vllm bench serve, with 1 measurement. Nothing is added yet." in told
    assert (repository.count_runs(), page.read_anew) == (0, 0)
    assert "Added 1 run. They are marked as imported" in page(data, "../folder/bench.json", task="chat")
    (run,) = repository.runs()
    assert (run.label, run.task, run.measured_elsewhere) == ("Imported · toy-model, concurrency 4", "chat", True)
    assert run.origin["file"] == "bench.json"  # without folders
    assert "Added 0 runs. 1 run was here already." in page(data, task="chat")
    assert (repository.count_runs(), page.read_anew) == (1, 2)


@pytest.mark.parametrize(
    ("data", "more", "told"),
    [
        (b"", {"file": ""}, "No file is chosen: choose a result of one of vllm bench serve"),
        (b"{}", {}, "bench.json is not a result that can be read: expected one of vllm bench serve"),
        (b"\x89PNG", {}, "bench.json"),
        (b"[" * 50_000, {}, "bench.json"),
        (b"{}", {"size": "-1"}, "The file could not be read: choose it again"),
        (b"{}", {"data": "%%%"}, "The file arrived damaged"),
        (b"{}", {"size": LARGEST_UPLOAD + 1}, "1,000,001 bytes: expected at most 1,000,000 here. `fsd-lab import-res"),
        (b" " * (LARGEST_UPLOAD + 9), {"size": 2}, "expected at most 1,000,000 here"),  # whatever a browser says
    ],
)
def test_what_cannot_be_added_is_refused_in_a_sentence_and_nothing_is_stored(
    page: Page, repository: Repository, data: bytes, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidSetting, match=told):
        page(data, **more)
    assert (repository.count_runs(), page.read_anew) == (0, 0)


def test_a_whole_file_or_nothing_is_stored(page: Page, repository: Repository) -> None:
    data = RESULT.read_bytes()
    broken = json.loads(data) | {"completed": -1}
    with pytest.raises(Unreadable, match=r"bench\.json"):
        page(data.strip() + b"\n" + json.dumps(broken).encode())
    assert repository.count_runs() == 0
