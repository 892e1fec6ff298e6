"""Runs as the repository hands them out, for tests of what is drawn from them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.statistics.intervals import wilson
from fsd_core.storage.records import PromptCounts, Prompts, RunView

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def decoding(kind: str, **fields: Any) -> DecodingConfig:
    """A decoding method whose acceptance rule is ``kind`` with ``fields``."""
    return DecodingConfig.model_validate({"acceptance": {"kind": kind, **fields}})


def metrics(
    correct: int = 40, n: int = 50, speed: float = 100.0, acceptance: float | None = None, spread: float = 0.1
) -> dict[str, Any]:
    """Metrics in the shape of ``summarise``; intervals of ratios are ``spread`` to both sides."""
    low, high = wilson(correct, n)
    length = None if acceptance is None else 1 + 5 * acceptance
    passes = 60.0 if length is None else 60 / length
    found: dict[str, Any] = {
        "n": n, "correct": correct, "wrong": n - correct, "truncated": 0, "failed": 0, "unscored": 0,
        "accuracy": correct / n, "accuracy_low": low, "accuracy_high": high,
        "tokens": 60 * n, "rounds": 12 * n, "drafted": 0 if acceptance is None else 60 * n, "accepted": 0,
        "fuzzy_tokens": 0, "time_to_first_token": 0.02, "seconds": 60 * n / speed,
        "seconds_per_solved_task": 60 * n / speed / correct if correct else None,
        "negative_log_likelihood": 0.25, "draft_seconds": 1.0,
        "acceptance_deciles": [] if acceptance is None else [acceptance * (0.5 + 0.05 * i) for i in range(11)],
        "acceptance_at_position": [] if acceptance is None else [acceptance**i for i in range(1, 6)],
        "conditional_acceptance_at_position": [] if acceptance is None else [acceptance] * 5,
        "divergence_histogram": None if acceptance is None else {"edges": [0.0, 0.1, 0.2, 0.3], "counts": [70, 20, 10]},
    }  # fmt: skip
    for key, value in (
        ("seconds_per_answer", 60 / speed), ("tokens_per_second", speed), ("acceptance_rate", acceptance),
        ("mean_acceptance_length", length or 1.0),
        ("mean_acceptance_length_by_request", length or 1.0), ("mean_tokens", 60.0), ("target_passes", passes),
        ("runaway_rate", 0.02),
    ):  # fmt: skip
        ends = (None, None) if value is None else (value * (1 - spread), value * (1 + spread))
        found |= {key: value, f"{key}_low": ends[0], f"{key}_high": ends[1]}
    return found


def run_view(
    method: DecodingConfig,
    found: dict[str, Any] | None = None,
    *,
    seed: int = 0,
    limit: int = 50,
    batch: int = 1,
    rate: float = 0.0,
    **changes: Any,
) -> RunView:
    """A finished run, or with ``found`` None a queued one; ``changes`` replace fields."""
    setting = SettingConfig(pair=changes.get("pair", "bundled"), decoding=method)
    prompts = {"task": changes.get("task", "arithmetic"), "limit": limit, "seed": seed}
    config = RunConfig(setting=setting, batch=batch, rate=rate, **prompts)
    fields: dict[str, Any] = {
        "id": hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:32],
        "experiment_id": None, "experiment_name": None, "position": 0, "setting_id": setting.id,
        "pair": setting.pair, "label": method.label, "decoding": method, "task": config.task, "seed": seed,
        "config": config, "status": "finished" if found else "queued", "error": None,
        "prompts_done": limit if found else 0, "prompts_total": limit, "decoding_seconds": 0.0,
        "losses": {}, "metrics": found, "provenance": None,
        "created_at": MOMENT, "started_at": MOMENT, "finished_at": MOMENT, "mlflow_run_id": None,
    }  # fmt: skip
    return RunView(**(fields | changes))


def prompts(*runs: RunView) -> Prompts:
    """What could have been counted of the runs' prompts: their figures spread over prompts of unequal length, the first
    of which were solved."""
    return {run.id: {i: _counts(run.metrics, i) for i in range(run.metrics["n"])} for run in runs if run.metrics}


def _counts(m: dict[str, Any], i: int) -> PromptCounts:
    tokens = 60 + 20 * (i % 3 - 1)
    drafted = 0 if m["acceptance_rate"] is None else 100
    return PromptCounts(
        outcome="correct" if i < m["correct"] else "wrong", stop_reason="eos", tokens=tokens,
        rounds=round(tokens / m["mean_acceptance_length"]),
        drafted=drafted, accepted=round((m["acceptance_rate"] or 0) * drafted), fuzzy=0,
        negative_log_likelihood=m["negative_log_likelihood"] * tokens,
        seconds=tokens / m["tokens_per_second"] * (1 + 0.05 * (i % 5 - 2)), time_to_first_token=0.02,
    )  # fmt: skip
