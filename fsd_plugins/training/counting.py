"""Training without gradients: tri-grams counted, thresholds measured.

Counts the tri-grams of training texts: ``python -m fsd_core train trigrams --target bundled --out FOLDER``.

The texts are generated problems with their solutions for the bundled pair, and the existing texts that drafts are
trained on for others, under the target's chat template. Problems and questions of the tests are not among them.

Measures where leniency is free for a pair, traded, and ruinous: ``python -m fsd_core train calibration``.

All settings of a sampling method write the same held-out problems in large batches, which shows what they solve. Then
they take turns problem by problem on some of these, one text at a time, which shows how fast they are. Each is compared
with the fastest draft length of exact speculative decoding. :mod:`fsd_core.models.model_pairs` reads the file.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from fsd_core.errors import NotCalibratable, NotEnough, UnfitTask
from fsd_core.library.measuring import compare
from fsd_core.models.draft_weights import count, save_trigrams
from fsd_core.models.hub import obtain
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.prompt import encode_prompt, load_tokenizer
from fsd_core.models.sources import PairSpec
from fsd_core.statistics.paired import paired_difference, verdict
from fsd_core.tasks import get_task
from fsd_plugins.training import generators
from fsd_plugins.training.held_out import long_questions
from fsd_plugins.training.plans import BUNDLED_PLANS
from fsd_plugins.training.target_texts import existing_texts


def training_texts(target: str, data: Path, seed: int) -> Iterator[tuple[str, str]]:
    """Return questions and answers for a pair's target, in an order of the seed alone. Raises ``ModelUnavailable`` if a
    file of them is missing."""
    if target != "bundled":
        return existing_texts(data, seed)
    stream = generators.stream_long(seed + 9_000, long_questions(), BUNDLED_PLANS["target"].style)
    return ((problem.prompt, solution) for problem, solution in stream)


def _tokens(tokenizer: PreTrainedTokenizerBase, question: str, answer: str) -> list[int]:
    end: Any = tokenizer.eos_token_id
    return [*encode_prompt(tokenizer, question), *tokenizer(answer, add_special_tokens=False)["input_ids"], end]


def count_trigrams(
    target: str, out: Path, data: Path, texts: int = 3_000, seed: int = 0, least: int = 1
) -> dict[str, Any]:
    """Count, write the table under ``out`` and return its figures. ``target``: the pair whose target it drafts for.
    ``least``: occurrences below which a tri-gram is left out.

    Raises ``UnknownName`` for an unknown pair, ``ModelUnavailable`` if its tokenizer or the texts cannot be had.
    """
    tokenizer = load_tokenizer(obtain(get_pair(target).target))
    vocabulary = 1 + max(tokenizer.get_vocab().values())
    read = [_tokens(tokenizer, *text) for text in islice(training_texts(target, data, seed), texts)]
    counts = count(read, vocabulary, least=least)
    save_trigrams(counts, out, tokenizer)
    return {
        "target": target, "seed": seed, "least": least, "texts": len(read), "tokens": sum(map(len, read)),
        "pairs": len(counts.keys), "successors": len(counts.tokens),
    }  # fmt: skip


SEED = 0
LIMIT, TIMED, ROWS = 600, 100, 50
"""problems to solve, problems to time, and the batch size when nothing is timed and the target reads several texts"""
SWEPT_SAMPLINGS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0},
    "sampled, top-p 0.95": {
        "temperature": 1.0,
        "top_p": 0.95,
    },  # the guard then refuses digits that the target rules out
}
EXACT_LENGTHS, LENIENT_LENGTHS = (4, 5, 6), (8, 16)
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
_MARGIN = 2.0
"""points of accuracy that a free threshold may lose at most"""
RUIN = 0.15
"""share of accuracy that a ruinous threshold loses at least"""

Report = Callable[[dict[str, Any]], None]
Row = dict[str, Any]
_FIGURES = ("accuracy", "acceptance_rate", "mean_acceptance_length", "mean_tokens")
_REGIONS = {"non-inferior": "free", "worse": "traded", "undecided": "open"}


def settings(sampling: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the settings of a sampling method, as options: target alone, exact SD, FSD by threshold and length."""
    exact = [{**sampling, "acceptance": "speculative", "draft_length": length} for length in EXACT_LENGTHS]
    lenient = [
        {**sampling, "acceptance": "fsd-reducible", "divergence": "js", "threshold": threshold, "draft_length": length}
        for threshold in THRESHOLDS
        for length in LENIENT_LENGTHS
    ]
    return [{**sampling, "acceptance": "autoregressive"}, *exact, *lenient]


def with_leniency_verdicts(rows: Sequence[Row], solved: Sequence[Mapping[int, bool]]) -> list[Row]:
    """Return the rows, each compared with the fastest exact one.

    Added are the ratio of speeds (``speedup``), the ``difference`` in accuracy with its interval of 95 % (``low`` to
    ``high``), and the ``region``: ``ruined`` if the row loses ``RUIN`` or more, else by the verdict of Compare:
    ``free`` if non-inferior within the margin, ``traded`` if worse, ``open`` if the prompts are too few to decide.
    ``solved``: which prompts each row solved.
    """
    base = fastest(rows, "speculative")
    compared = []
    for row, row_solved in zip(rows, solved, strict=True):
        paired = paired_difference(row_solved, solved[rows.index(base)])
        region = "ruined" if paired.difference <= -RUIN else _REGIONS[verdict(paired, _MARGIN).kind]
        speedup = row["tokens_per_second"] / base["tokens_per_second"]
        low, high = paired.interval
        compared.append(
            row | {"speedup": speedup, "difference": paired.difference, "low": low, "high": high, "region": region}
        )
    return compared


def fastest(rows: Sequence[Row], rule: str, region: str | None = None) -> Row:
    """Return the row with the most tokens per second among a rule's, in one region or in any, or ``{}`` for none."""
    candidates = [row for row in rows if row["acceptance"] == rule and (region is None or row["region"] == region)]
    return max(candidates, key=lambda row: row["tokens_per_second"], default={})


def sweep_thresholds(
    pair: str = "bundled",
    task: str | None = None,
    limit: int = LIMIT,
    timed: int = TIMED,
    file: Path | None = None,
    report: Report = lambda row: None,
) -> Path:
    """Measure a pair with every sampling method and write ``file``.

    For each method it holds the rows, the fastest exact and the fastest free setting, and a problem that both solve and
    the loosest setting does not. By default, ``task`` is the one that suits the pair best, and ``file`` lies next to
    the models. Raises ``InvalidSetting`` for a pair whose models have no folder of their own, for a task without
    answers, and if more prompts are to be timed than solved.
    """
    spec = get_pair(pair)
    task = task or spec.tasks[0]
    file = file or spec.calibration or _default_file(spec)
    if timed > limit:
        raise NotEnough(f"{timed} prompts cannot be timed of {limit}: expected at most as many as are solved.")
    if get_task(task).examples(1)[0].reference is None:
        raise UnfitTask(
            f"The task {task} has no answers by which to calibrate a pair: name one that has, such as "
            f"{'arithmetic' if pair == 'bundled' else 'short-problems'}."
        )
    models = load_pair(pair)
    summary = {
        "pair": pair, "task": task, "prompts": limit, "timed": timed, "seed": SEED, "margin": _MARGIN,
        "machine": f"{platform.machine()}, {models.dtype}, {torch.get_num_threads()} CPU threads",
    }  # fmt: skip
    parts: dict[str, Any] = {}
    for name, sampling in SWEPT_SAMPLINGS.items():
        parts[name] = _measure(models, task, settings(sampling), limit, timed, report)
        file.write_text(json.dumps(summary | {"samplings": parts}, indent=1) + "\n")
    return file


def _default_file(spec: PairSpec) -> Path:
    if not isinstance(spec.target, Path):
        raise NotCalibratable(f"The pair {spec.name} has no folder for a calibration: expected bundled or path:FOLDER.")
    return spec.target.parent / "calibration.json"


def _measure(
    models: LoadedPair, task: str, options: Sequence[dict[str, Any]], limit: int, timed: int, report: Report
) -> dict[str, Any]:
    """Measure one sampling method. The last of ``options`` is the loosest."""
    rows_at_once = 1 if models.target.one_text else ROWS
    written = compare(options, task, limit, pair=models, seed=SEED, batch=rows_at_once)
    speeds = compare(options, task, timed, pair=models, seed=SEED)
    measured, solved = [], []
    for option, run, timed_run in zip(options, written.runs, speeds.runs, strict=True):
        if run.metrics and timed_run.metrics:
            figures = {key: run.metrics[key] for key in _FIGURES if run.metrics.get(key) is not None}
            measured.append(option | figures | {"tokens_per_second": timed_run.metrics["tokens_per_second"]})
            solved.append({i: outcome == "correct" for i, outcome in written.outcomes[run.id].items()})
    rows = with_leniency_verdicts(measured, solved)
    for row in rows:
        report(row)
    exact, free = fastest(rows, "speculative"), fastest(rows, "fsd-reducible", "free")
    solved_by_both = [i for i in range(limit) if free and solved[rows.index(exact)][i] and solved[rows.index(free)][i]]
    examples = get_task(task).examples(limit)
    example = next((examples[i].id for i in solved_by_both if not solved[-1][i]), None)
    return {"exact": exact, "free": free, "example": example, "rows": rows}
