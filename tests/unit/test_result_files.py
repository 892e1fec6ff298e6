"""Result files of other tools: read as their writers write them, stored once and marked, refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from fsd_core.errors import InvalidSetting, OutOfRange, Unreadable
from fsd_core.metrics import METRICS
from fsd_core.statistics.intervals import wilson
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_plugins.results import reading as result_import
from fsd_plugins.results.reading import READERS, import_results, read_result, read_result_path

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
