"""Results of SpecForge's benchmark of a SGLang server (``--output-json``).

Format: ``BenchmarkResult`` in ``specforge/benchmarks/sglang.py`` of SpecForge 0.2. It names neither model nor version.
"""

from __future__ import annotations

from fsd_core.evaluation.result_files.tool_result import (
    Amount,
    Count,
    Document,
    Text,
    ToolFields,
    ToolReader,
    ToolResult,
    has,
    shortened,
)


class _SpecForgeResult(ToolFields):
    backend: Text
    dataset: Text
    samples: Count
    output_tokens: Count
    latency_seconds: Amount
    average_acceptance_length: Amount | None = None
    spec_verify_count: Count | None = None


def _read(document: Document, _: str) -> list[ToolResult]:
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
    "SpecForge", has("backend", "dataset", "samples", "output_tokens", "latency_seconds"), _read
)  # fmt: skip
