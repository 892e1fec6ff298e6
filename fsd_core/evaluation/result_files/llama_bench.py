"""Results of llama.cpp: ``llama-bench -o json`` or ``jsonl``, and ``llama-batched-bench --output-format jsonl``.

Format: ``tools/llama-bench/llama-bench.cpp`` and ``tools/batched-bench/batched-bench.cpp`` of llama.cpp. A test of
``llama-bench`` reads a prompt, writes tokens, or does both; only tokens that are written count as throughput.
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
    has,
    shortened,
)


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


def _read(document: Document, _: str) -> list[ToolResult]:
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


LLAMA_BENCH = ToolReader("llama-bench", has("build_commit", "model_type", "n_prompt", "n_gen", "samples_ns"), _read)
LLAMA_BATCHED_BENCH = ToolReader("llama-batched-bench", has("n_kv_max", "pp", "tg", "pl", "speed_tg"), _read_batch)
