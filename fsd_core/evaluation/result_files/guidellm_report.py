"""Reports of guidellm as JSON, one measurement for each of its benchmarks.

Format: ``guidellm/benchmark/schemas`` of guidellm 0.8, version 2 of its reports. What guidellm calls the time per
output token counts the first one; ours is its inter-token latency.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from fsd_core.evaluation.result_files.tool_result import (
    Amount,
    Count,
    Document,
    Text,
    ToolFields,
    ToolReader,
    ToolResult,
    finite,
    has,
    moment_text,
    shortened,
)

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


def _read(document: Document, _: str) -> list[ToolResult]:
    report = _GuidellmReport.model_validate(document)
    return [_result(benchmark, report.metadata.guidellm_version) for benchmark in report.benchmarks]


def _result(benchmark: _GuidellmBenchmark, version: str) -> ToolResult:
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


GUIDELLM = ToolReader("guidellm", _claims, _read)
