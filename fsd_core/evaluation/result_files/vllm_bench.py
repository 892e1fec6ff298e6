"""Results of ``vllm bench serve --save-result``, and of ``--append-result``, one object a line.

Format: ``vllm/benchmarks/serve.py`` of vLLM 0.32. It writes no version.
"""

from __future__ import annotations

from datetime import datetime

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
    shortened,
)


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


def _read(document: Document, _: str) -> list[ToolResult]:
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


VLLM_BENCH = ToolReader("vllm bench serve", has("model_id", "num_prompts", "duration", "completed", "backend"), _read)
