"""Results of lm-eval: ``results_*.json``, and ``samples_TASK_*.jsonl``, whose scores are counted.

Format: ``lm_eval/result_schema.py`` of lm-eval 0.4.13. Scores are named ``metric,filter``, and a result has one
measurement for each task and filter. Its accuracy is the metric that lm-eval's tasks use for it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from fsd_core.evaluation.result_files.tool_result import (
    Count,
    Document,
    Text,
    ToolFields,
    ToolReader,
    ToolResult,
    figure_name,
    finite,
    has,
    moment_text,
    shortened,
)

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


def _read(document: Document, _: str) -> list[ToolResult]:
    results = _LmEvalResults.model_validate(document)
    return [
        _result(results, task, name, filtered)
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


def _result(results: _LmEvalResults, task: str, name: str, scores: dict[str, float]) -> ToolResult:
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


LM_EVAL = ToolReader("lm-eval", has("results", "n-samples", "configs"), _read)
is_sample = has("doc_id", "doc", "resps", "filter")
"""whether a document is one sample of lm-eval"""
