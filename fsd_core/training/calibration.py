"""Measures where leniency is free for the bundled pair, traded, and ruinous: ``python -m fsd_core train calibration``.

All settings of a way of sampling are measured on the same held-out problems, taking turns prompt by prompt, and each is
held against the fastest draft length of exact speculative decoding.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fsd_core.benchmarks.statistics import paired_difference
from fsd_core.benchmarks.tasks import get_task
from fsd_core.library.measuring import compare
from fsd_core.models.loading import load_pair
from fsd_core.models.model_pairs import ASSETS

FILE = ASSETS / "bundled" / "calibration.json"
TASK, LIMIT, SEED = "arithmetic", 200, 0
SAMPLINGS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0},
    "sampled, top-p 0.95": {"temperature": 1.0, "top_p": 0.95},  # the guard then keeps digits that the target rules out
}
EXACT_LENGTHS, LENIENT_LENGTHS = (3, 4, 5, 6, 8), (8, 16)
THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
MARGIN = 0.02
"""of accuracy, that a free threshold may lose at most, at a one-sided confidence of 95 %"""
RUIN = 0.2
"""of accuracy, that a ruinous threshold loses at least"""

Report = Callable[[dict[str, Any]], None]
Row = dict[str, Any]
_FIGURES = ("accuracy", "tokens_per_second", "acceptance_rate", "mean_acceptance_length", "mean_tokens")


def settings(sampling: Mapping[str, float]) -> list[dict[str, Any]]:
    """What is measured of a way of sampling, as options: the target alone, exact SD, FSD by threshold and length."""
    exact = [{**sampling, "acceptance": "speculative", "draft_length": length} for length in EXACT_LENGTHS]
    lenient = [
        {**sampling, "acceptance": "fsd-reducible", "divergence": "js", "threshold": threshold, "draft_length": length}
        for threshold in THRESHOLDS
        for length in LENIENT_LENGTHS
    ]
    return [{**sampling, "acceptance": "autoregressive"}, *exact, *lenient]


def judged(rows: Sequence[Row], solved: Sequence[Mapping[int, bool]]) -> list[Row]:
    """The rows, each with its speed as a ratio to the fastest exact one (``speedup``), the difference of its accuracy
    to that one's (from ``low`` to ``high``, each at a one-sided confidence of 95 %), and its ``region``: ``free``
    within the margin, ``traded`` if surely worse, ``ruined``, or ``open`` where the prompts are too few to tell.
    ``solved``: of each row, which prompts were solved, by position."""
    base = fastest(rows, "speculative")
    told = []
    for row, ours in zip(rows, solved, strict=True):
        paired = paired_difference(ours, solved[rows.index(base)], confidence=0.9)
        low, high = paired.interval
        if paired.difference <= -RUIN:
            region = "ruined"
        elif low >= -MARGIN:
            region = "free"
        else:
            region = "traded" if high < 0 else "open"
        speedup = row["tokens_per_second"] / base["tokens_per_second"]
        judgement = {"difference": paired.difference, "low": low, "high": high, "region": region}
        told.append(row | {"speedup": speedup} | judgement)
    return told


def fastest(rows: Sequence[Row], rule: str, region: str | None = None) -> Row:
    """The row of most tokens per second among a rule's, in a region or in any; ``{}`` if there is none."""
    among = [row for row in rows if row["acceptance"] == rule and (region is None or row["region"] == region)]
    return max(among, key=lambda row: row["tokens_per_second"], default={})


def main(pair: str = "bundled", limit: int = LIMIT, file: Path = FILE, report: Report = lambda row: None) -> Path:
    """Measures a pair in every way of sampling and writes ``file``: for each its rows, the fastest exact and the
    fastest free setting, and a problem that both solve and the loosest setting does not."""
    models, parts = load_pair(pair), {}
    examples = get_task(TASK).examples(limit)
    for name, sampling in SAMPLINGS.items():
        options = settings(sampling)
        measured = compare(options, TASK, limit, pair=models, seed=SEED)
        found = [
            option | {key: run.metrics[key] for key in _FIGURES if run.metrics.get(key) is not None}
            for option, run in zip(options, measured.runs, strict=True)
            if run.metrics
        ]
        solved = [
            {position: outcome == "correct" for position, outcome in measured.outcomes[run.id].items()}
            for run in measured.runs
            if run.metrics
        ]
        rows = judged(found, solved)
        exact, free = fastest(rows, "speculative"), fastest(rows, "fsd-reducible", "free")
        for row in rows:
            report(row)
        telling = [i for i in range(limit) if free and solved[rows.index(exact)][i] and solved[rows.index(free)][i]]
        example = next((examples[i].id for i in telling if not solved[-1][i]), None)
        parts[name] = {"exact": exact, "free": free, "example": example, "rows": rows}
    told = {
        "pair": pair, "task": TASK, "prompts": limit, "seed": SEED, "margin": MARGIN,
        "machine": f"{platform.machine()}, {models.dtype}, {torch.get_num_threads()} CPU threads",
        "samplings": parts,
    }  # fmt: skip
    file.write_text(json.dumps(told, indent=1) + "\n")
    return file
