"""Result files of other tools, read as measured series, one reader for each tool.

Reports of guidellm as JSON, one measurement for each of its benchmarks.

Format: ``guidellm/benchmark/schemas`` of guidellm 0.8, version 2 of its reports. What guidellm calls the time per
output token counts the first one; ours is its inter-token latency.

Results of llama.cpp: ``llama-bench -o json`` or ``jsonl``, and ``llama-batched-bench --output-format jsonl``.

Format: ``tools/llama-bench/llama-bench.cpp`` and ``tools/batched-bench/batched-bench.cpp`` of llama.cpp. A test of
``llama-bench`` reads a prompt, writes tokens, or does both; only tokens that are written count as throughput.

Results of lm-eval: ``results_*.json``, and ``samples_TASK_*.jsonl``, whose scores are counted.

Format: ``lm_eval/result_schema.py`` of lm-eval 0.4.13. Scores are named ``metric,filter``, and a result has one
measurement for each task and filter. Its accuracy is the metric that lm-eval's tasks use for it.

Results of SpecForge's benchmark of a SGLang server (``--output-json``).

Format: ``BenchmarkResult`` in ``specforge/benchmarks/sglang.py`` of SpecForge 0.2. It names neither model nor version.

Results of ``vllm bench serve --save-result``, and of ``--append-result``, one object a line.

Format: ``vllm/benchmarks/serve.py`` of vLLM 0.32. It writes no version.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from fsd_core.frozen import Frozen
from fsd_core.rules.measured import LONGEST_SERIES_NAME

Document = dict[str, Any]
Text = Annotated[str, Field(max_length=2000)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Amount = Annotated[float, Field(ge=0, le=1e15)]
_UNUSABLE = re.compile(r"[^A-Za-z0-9 _./-]+")


class ToolFields(Frozen):
    """The fields of a result that are read. Tools write many more."""

    model_config = ConfigDict(extra="ignore")


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """One measurement of a tool's result, before it is checked as figures of ours."""

    name: str
    family: str
    prompts: int
    task: str
    model: str = ""
    knobs: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    """correct, failed, seconds, tokens: as of :class:`fsd_plugins.results.reading.LoggedFigures`"""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """a number or a number with its interval each, ``None`` for what the tool did not measure"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """of its origin, ``None`` for what the tool did not write"""


@dataclass(frozen=True)
class ToolReader:
    """How the results of one tool are read."""

    title: str
    claims: Callable[[Document], bool]
    """whether a document looks like one of this tool's"""
    read: Callable[[Document, str], Sequence[ToolResult]]
    """returns the measurements of a document, from a file of that name. Raises ``ValidationError`` for wrong fields and
    ``InvalidSetting``"""


def has(*names: str) -> Callable[[Document], bool]:
    """Return a test whether a document has all of these fields."""
    return lambda document: all(name in document for name in names)


def shortened(text: str, longest: int = LONGEST_SERIES_NAME) -> str:
    """Return a text on one line, cut to a length, its end kept: names of models differ there."""
    line = "".join(c if c.isprintable() else " " for c in text).strip()
    return line if len(line) <= longest else f"…{line[1 - longest :]}"


def figure_name(text: str) -> str:
    """Return a tool's name of a figure as one that can be logged."""
    return _UNUSABLE.sub("_", text).strip(" ._/-")[:60] or "figure"


def moment_text(seconds: float | None) -> str | None:
    """Return a time in seconds since 1970 as a text in UTC, or ``None`` for one that is missing or none of our days."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}" if seconds and 0 < seconds < 2e10 else None


def finite(value: float | None, scale: float = 1.0) -> float | None:
    """Return a number in another unit, or ``None`` for one that the tool could not measure."""
    return None if value is None or not math.isfinite(value) else value * scale


_MOST_BENCHMARKS = 1000


class _ConfidenceEnds(ToolFields):
    lower: float
    upper: float


class _Percentiles(ToolFields):
    p90: float | None = None
    p99: float | None = None


class _Distribution(ToolFields):
    mean: float
    median: float
    count: Count
    total_sum: float
    percentiles: _Percentiles = _Percentiles()
    mean_ci: _ConfidenceEnds | None = None


class _ByStatus(ToolFields):
    successful: _Distribution | None = None


class _RequestTotals(ToolFields):
    successful: Count
    errored: Count = 0
    incomplete: Count = 0


class _GuidellmMetrics(ToolFields):
    request_totals: _RequestTotals
    requests_per_second: _ByStatus
    output_tokens_per_second: _ByStatus
    output_token_count: _ByStatus
    time_to_first_token_ms: _ByStatus
    inter_token_latency_ms: _ByStatus
    request_latency: _ByStatus


class _LoadStrategy(ToolFields):
    type_: Text
    streams: Count | None = None
    rate: Amount | None = None
    max_concurrency: Count | None = None


class _GuidellmConfig(ToolFields):
    strategy: _LoadStrategy
    backend: dict[str, Any] = Field(default_factory=dict)
    confidence: float | None = None


class _GuidellmBenchmark(ToolFields):
    config: _GuidellmConfig
    metrics: _GuidellmMetrics
    start_time: float = 0.0
    duration: Amount


class _GuidellmMetadata(ToolFields):
    guidellm_version: Text = ""


class _GuidellmReport(ToolFields):
    metadata: _GuidellmMetadata = _GuidellmMetadata()
    benchmarks: Annotated[list[_GuidellmBenchmark], Field(max_length=_MOST_BENCHMARKS)]


def _read_guidellm(document: Document, _: str) -> list[ToolResult]:
    report = _GuidellmReport.model_validate(document)
    return [_guidellm_result(benchmark, report.metadata.guidellm_version) for benchmark in report.benchmarks]


def _guidellm_result(benchmark: _GuidellmBenchmark, version: str) -> ToolResult:
    metrics, strategy = benchmark.metrics, benchmark.config.strategy
    model = benchmark.config.backend.get("model")
    family = shortened(model) if isinstance(model, str) and model.strip() else "guidellm"
    knobs = _knobs(strategy)
    totals, latency = metrics.request_totals, metrics.request_latency.successful
    first, between = metrics.time_to_first_token_ms.successful, metrics.inter_token_latency_ms.successful
    speed, tokens = metrics.output_tokens_per_second.successful, metrics.output_token_count.successful
    rate = metrics.requests_per_second.successful
    certain = benchmark.config.confidence in (None, 0.95)  # our intervals are of 95 %
    return ToolResult(
        name=shortened(", ".join([family, strategy.type_, *(f"{name} {value:g}" for name, value in knobs.items())])),
        family=family, prompts=totals.successful + totals.errored, task="guidellm", model=family, knobs=knobs,
        counts={"failed": totals.errored},
        figures={
            "tokens_per_second": _with_ends(speed, certain=certain),
            "seconds_per_answer": 1 / rate.mean if rate is not None and rate.mean else None,
            "mean_tokens": _with_ends(tokens, certain=certain),
            "time_to_first_token": finite(first.median, 1e-3) if first else None,
            "time_per_output_token": finite(between.median, 1e-3) if between else None,
            "time per output token p90 s": finite(between.percentiles.p90, 1e-3) if between else None,
            "time per output token p99 s": finite(between.percentiles.p99, 1e-3) if between else None,
            "mean request latency s": finite(latency.mean) if latency else None,
            "incomplete requests": totals.incomplete,
        },
        facts={
            "version": version, "strategy": strategy.type_, "seconds": finite(benchmark.duration),
            "measured on": moment_text(benchmark.start_time),
        },
    )  # fmt: skip


def _knobs(strategy: _LoadStrategy) -> dict[str, float]:
    if strategy.streams is not None:
        return {"concurrency": strategy.streams}
    if strategy.rate is not None:
        return {"requests per s": strategy.rate}
    if strategy.type_ == "synchronous":
        return {"concurrency": 1}
    return {} if strategy.max_concurrency is None else {"concurrency": strategy.max_concurrency}


def _with_ends(summary: _Distribution | None, *, certain: bool) -> Any:
    if summary is None or finite(summary.mean) is None:
        return None
    ends = summary.mean_ci if certain else None
    return summary.mean if ends is None else (summary.mean, finite(ends.lower), finite(ends.upper))


def _claims(document: Document) -> bool:
    metadata = document.get("metadata")
    return has("benchmarks", "config")(document) and isinstance(metadata, dict) and "guidellm_version" in metadata


GUIDELLM = ToolReader("guidellm", _claims, _read_guidellm)


class _LlamaTest(ToolFields):
    build_commit: Text
    build_number: Count
    cpu_info: Text = ""
    gpu_info: Text = ""
    backends: Text = ""
    model_filename: Text
    model_type: Text
    n_threads: Count
    n_gpu_layers: int = 0
    n_prompt: Count
    n_gen: Count
    n_depth: Count = 0
    test_time: Text
    avg_ts: Amount
    samples_ns: Annotated[list[Amount], Field(min_length=1, max_length=100_000)]


def _read_llama_bench(document: Document, _: str) -> list[ToolResult]:
    test = _LlamaTest.model_validate(document)
    seconds = [sample / 1e9 for sample in test.samples_ns]
    parts = [f"pp{test.n_prompt}" * bool(test.n_prompt), f"tg{test.n_gen}" * bool(test.n_gen)]
    what = "+".join(filter(None, parts)) + f" @ d{test.n_depth}" * bool(test.n_depth)
    only_writes, figures = test.n_gen and not test.n_prompt, dict[str, Any]()
    if not only_writes:
        figures["prompt tokens per s" if not test.n_gen else "prompt and output tokens per s"] = test.avg_ts
    model = shortened(test.model_filename.replace("\\", "/").rpartition("/")[2] or test.model_type)
    return [
        ToolResult(
            name=shortened(f"{what}, {test.n_threads} threads, {model}"), family=shortened(f"{model} {what}"),
            prompts=len(seconds), task=shortened(f"llama-bench {what}"), model=model,
            knobs={"threads": test.n_threads, "GPU layers": test.n_gpu_layers},
            counts={"seconds": seconds} | ({"tokens": [test.n_gen] * len(seconds)} if only_writes else {}),
            figures=figures,
            facts={
                "version": f"{test.build_number} ({test.build_commit})", "model type": test.model_type,
                "processor": test.cpu_info, "GPU": test.gpu_info, "backends": test.backends,
                "measured on": test.test_time,
            },
        )
    ]  # fmt: skip


class _LlamaBatch(ToolFields):
    n_kv_max: Count
    n_gpu_layers: int = 0
    n_threads: Count
    pp: Count
    tg: Count
    pl: Annotated[int, Field(ge=1, le=2**31 - 1)]
    t_pp: Amount
    speed_pp: Amount
    t: Amount
    speed_tg: Amount


def _read_batch(document: Document, _: str) -> list[ToolResult]:
    batch = _LlamaBatch.model_validate(document)
    what = f"pp{batch.pp} tg{batch.tg}"
    return [
        ToolResult(
            name=f"{what}, {batch.pl} parallel", family=f"llama-batched-bench {what}", prompts=batch.pl,
            task=f"llama-batched-bench {what}", knobs={"parallel": batch.pl, "threads": batch.n_threads},
            counts={"seconds": batch.t, "tokens": batch.pl * batch.tg},
            figures={"prompt tokens per s": batch.speed_pp, "output tokens per s after the prompt": batch.speed_tg},
            facts={"context": batch.n_kv_max, "GPU layers": batch.n_gpu_layers},
        )
    ]  # fmt: skip


LLAMA_BENCH = ToolReader(
    "llama-bench", has("build_commit", "model_type", "n_prompt", "n_gen", "samples_ns"), _read_llama_bench
)
LLAMA_BATCHED_BENCH = ToolReader("llama-batched-bench", has("n_kv_max", "pp", "tg", "pl", "speed_tg"), _read_batch)

ACCURACIES = ("exact_match", "acc", "pass@1", "pass_at_1", "acc_norm")
"""metrics that are an accuracy, the one that is taken first"""
_STDERR = "_stderr"
_STANDARD_NORMAL = 1.959964
_SAMPLES_FILE = re.compile(r"samples_(.+)_\d{4}-\d{2}-\d{2}T[\d.-]+\.jsonl?")


class _SampleNumber(ToolFields):
    effective: Count


class _LmEvalResults(ToolFields):
    results: Annotated[dict[str, dict[str, Any]], Field(max_length=2000)]
    samples: Annotated[dict[str, _SampleNumber], Field(alias="n-samples", max_length=5000)]
    shots: Annotated[dict[str, Any], Field(alias="n-shot", default_factory=dict)]
    model_name: Text | None = None
    model_source: Text | None = None
    lm_eval_version: Text | None = None
    git_hash: Text | None = None
    date: float | None = None
    total_evaluation_time_seconds: Text | None = None


def _read_lm_eval(document: Document, _: str) -> list[ToolResult]:
    results = _LmEvalResults.model_validate(document)
    return [
        _lm_eval_result(results, task, name, filtered)
        for task, scores in results.results.items()
        if task in results.samples and results.samples[task].effective
        for name, filtered in _by_filter(scores).items()
    ]


def _by_filter(scores: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the numbers of a task by filter and metric."""
    filters: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        metric, comma, name = key.partition(",")
        if comma and isinstance(value, int | float) and not isinstance(value, bool) and finite(value) is not None:
            filters.setdefault(name, {})[metric] = float(value)
    return filters


def _lm_eval_result(results: _LmEvalResults, task: str, name: str, scores: dict[str, float]) -> ToolResult:
    number, model = results.samples[task].effective, shortened(results.model_name or "lm-eval")
    accuracy = next((metric for metric in ACCURACIES if 0 <= scores.get(metric, -1) <= 1), None)
    counts, figures = {}, dict[str, Any]()
    if accuracy is not None:
        solved = scores[accuracy] * number
        if abs(solved - round(solved)) < 1e-6 * number:
            counts["correct"] = round(solved)
        else:  # a mean of parts, such as of subtasks
            half = _STANDARD_NORMAL * scores.get(accuracy + _STDERR, 0.0)
            share = scores[accuracy]
            figures["accuracy"] = (share, max(0.0, share - half), min(1.0, share + half)) if half else share
    for metric, value in scores.items():
        if metric != accuracy and not metric.endswith(_STDERR):
            half = _STANDARD_NORMAL * scores.get(metric + _STDERR, 0.0)
            figures[figure_name(f"lm-eval {metric}")] = (value, value - half, value + half) if half else value
    return ToolResult(
        name=shortened(model if name == "none" else f"{model}, {name}"), family=model, prompts=number,
        task=shortened(task), model=model, counts=counts, figures=figures,
        facts={
            "version": results.lm_eval_version, "metric": accuracy, "filter": name, "model type": results.model_source,
            "few-shot examples": results.shots.get(task) if isinstance(results.shots.get(task), int) else None,
            "commit": results.git_hash, "evaluation seconds": results.total_evaluation_time_seconds,
            "measured on": moment_text(results.date),
        },
    )  # fmt: skip


class _LmEvalSample(ToolFields):
    doc_id: Count
    filter: Text
    metrics: Annotated[list[Text], Field(max_length=100)]


def read_samples(documents: list[Document], file: str) -> list[ToolResult]:
    """Return one measurement for each filter of the samples of a task, which the file's name says."""
    solved: dict[str, list[bool]] = {}
    metric = ""
    for document in documents:
        sample = _LmEvalSample.model_validate(document)
        metric = next((name for name in ACCURACIES if document.get(name) in (0, 1)), "")
        if metric:
            solved.setdefault(sample.filter, []).append(bool(document[metric]))
    match = _SAMPLES_FILE.fullmatch(file)
    task = shortened(match[1] if match else "lm-eval samples")
    return [
        ToolResult(
            name=shortened(f"lm-eval samples, {name}"), family="lm-eval samples", prompts=len(outcomes), task=task,
            counts={"correct": sum(outcomes)}, facts={"metric": metric, "filter": name},
        )
        for name, outcomes in solved.items()
    ]  # fmt: skip


LM_EVAL = ToolReader("lm-eval", has("results", "n-samples", "configs"), _read_lm_eval)
is_sample = has("doc_id", "doc", "resps", "filter")
"""whether a document is one sample of lm-eval"""


class _SpecForgeResult(ToolFields):
    backend: Text
    dataset: Text
    samples: Count
    output_tokens: Count
    latency_seconds: Amount
    average_acceptance_length: Amount | None = None
    spec_verify_count: Count | None = None


def _read_specforge(document: Document, _: str) -> list[ToolResult]:
    result = _SpecForgeResult.model_validate(document)
    return [
        ToolResult(
            name=shortened(f"SpecForge, {result.backend}"), family="SpecForge", prompts=result.samples,
            task=shortened(result.dataset),
            counts={"seconds": result.latency_seconds, "tokens": result.output_tokens},
            figures={
                "mean_acceptance_length_by_request": result.average_acceptance_length,
                "verifications": result.spec_verify_count,
            },
            facts={"backend": result.backend},
        )
    ]  # fmt: skip


SPECFORGE = ToolReader(
    "SpecForge", has("backend", "dataset", "samples", "output_tokens", "latency_seconds"), _read_specforge
)  # fmt: skip


class _VllmResult(ToolFields):
    date: Text
    backend: Text = ""
    model_id: Text
    label: Text | None = None
    num_prompts: Count
    request_rate: Amount | Text = "inf"
    max_concurrency: Count | None = None
    duration: Amount
    completed: Count
    failed: Count | None = None
    total_input_tokens: Count | None = None
    total_output_tokens: Count | None = None
    median_ttft_ms: float | None = None
    median_tpot_ms: float | None = None
    p99_tpot_ms: float | None = None
    mean_e2el_ms: float | None = None
    spec_decode_num_drafts: Count | None = None
    spec_decode_draft_tokens: Count | None = None
    spec_decode_accepted_tokens: Count | None = None


def _read_vllm_bench(document: Document, _: str) -> list[ToolResult]:
    result = _VllmResult.model_validate(document)
    failed = result.num_prompts - result.completed if result.failed is None else result.failed
    knobs: dict[str, float] = {}
    if result.max_concurrency is not None:
        knobs["concurrency"] = result.max_concurrency
    if isinstance(result.request_rate, float) and finite(result.request_rate) is not None:
        knobs["requests per s"] = result.request_rate
    drafts, drafted = result.spec_decode_num_drafts, result.spec_decode_draft_tokens
    accepted = result.spec_decode_accepted_tokens
    family = shortened(result.label or result.model_id)
    return [
        ToolResult(
            name=shortened(", ".join([family, *(f"{name} {value:g}" for name, value in knobs.items())])),
            family=family, prompts=result.completed + max(0, failed), task="vllm bench serve", model=result.model_id,
            knobs=knobs,
            counts={
                "failed": max(0, failed), "seconds": result.duration, "tokens": result.total_output_tokens,
            },
            figures={
                "time_to_first_token": finite(result.median_ttft_ms, 1e-3),
                "time_per_output_token": finite(result.median_tpot_ms, 1e-3),
                "time per output token p99 s": finite(result.p99_tpot_ms, 1e-3),
                "mean request latency s": finite(result.mean_e2el_ms, 1e-3),
                "prompt tokens": result.total_input_tokens,
                "acceptance_rate": accepted / drafted if accepted is not None and drafted else None,
                "mean_acceptance_length": 1 + accepted / drafts if accepted is not None and drafts else None,
            },
            facts={
                "backend": result.backend, "request rate": result.request_rate, "measured on": _date(result.date),
            },
        )
    ]  # fmt: skip


def _date(text: str) -> str:
    """Return ``20261126-153000`` as other dates are written."""
    try:
        return f"{datetime.strptime(text, '%Y%m%d-%H%M%S'):%Y-%m-%d %H:%M}"
    except ValueError:
        return text


VLLM_BENCH = ToolReader(
    "vllm bench serve", has("model_id", "num_prompts", "duration", "completed", "backend"), _read_vllm_bench
)
