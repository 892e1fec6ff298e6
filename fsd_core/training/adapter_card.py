"""Measures the shipped adapter for SmolLM2 and writes its model card: ``python -m fsd_core train card adapter``.

The figures are those of the shipped pairs, on problems of test sets, which no training has seen.
"""

from __future__ import annotations

import json
from typing import Any

from fsd_core.config import AcceptanceConfig, Autoregressive, DraftOnly
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.evaluation.harness import run_examples
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.model_pairs import ADAPTED, ASSETS, DRAFTED
from fsd_core.statistics.intervals import wilson
from fsd_core.tasks import get_task
from fsd_core.training.draft_card import LONGEST, ROWS, Report, setting

_FOLDER = ASSETS / "smollm2-135m" / "adapter"
PROBLEM_SETS = ("addsub", "singleeq", "multiarith", "svamp")
_CONTENDERS = (
    ("SmolLM2-135M-Instruct as it comes", DRAFTED, Autoregressive()),
    ("with this adapter", ADAPTED, Autoregressive()),
    ("the draft alone", ADAPTED, DraftOnly()),
)

_CARD = """\
# Adapter for word problems, for SmolLM2-135M-Instruct

LoRA of rank {rank} on every linear map of the layers ({parameters:,} parameters, bfloat16), merged into the model when
the pair `{adapted}` is loaded. Made by `python -m fsd_core train adapter`; this card by
`python -m fsd_core train card adapter`.

- **Data**: {short:.0%} problems of one or two steps that `fsd_core/tasks/generators/one_step_problems.py` makes up,
  {arithmetic:.0%} longer ones of `fsd_core/tasks/generators/long_problems.py`, and {gsm8k:.0%} of the training split
  of GSM8K, put to the model as the tasks without examples put theirs. No problem of AddSub, SingleEq, MultiArith,
  SVAMP, of GSM8K's test split or of the task `short-problems`; the made-up ones follow the kinds of problems that are
  told apart in teaching, as those sets do.
- **Method**: next-token cross-entropy over the solutions, bf16 autocast, AdamW, {steps:,} steps of {batch} problems.
- **Time**: {minutes:.0f} min, on {machine}; other work shared the machine.
- **Problems held out**: cross-entropy {held_out_loss:.3f} nats.
- **Licence**: Apache 2.0, as the model's.

## Accuracy

The first {limit} problems of each set, greedily, answers of up to {longest} tokens; Wilson's interval of 95 %.

"""


def accuracy(pair: LoadedPair, task: str, rule: AcceptanceConfig, limit: int) -> dict[str, Any]:
    """Return the share of a task's first problems that are solved greedily, with Wilson's interval of 95 %."""
    problem_set = get_task(task)
    examples = dict(enumerate(problem_set.examples(limit)))
    records = list(run_examples(PairDecoder(pair, setting(rule, 0.0)), problem_set, examples, 0, 2 * ROWS))
    solved = sum(record.outcome == "correct" for record in records)
    low, high = wilson(solved, limit)
    return {"task": task, "rule": rule.kind, "problems": limit, "solved": solved, "low": low, "high": high}


def measure_adapter(limit: int, report: Report) -> list[dict[str, Any]]:
    """Return the accuracy of each contender on every set of problems."""
    rows: list[dict[str, Any]] = []
    for _, name, rule in _CONTENDERS:
        pair = load_pair(name)
        for task in PROBLEM_SETS:
            rows.append({"pair": name} | accuracy(pair, task, rule, limit))
            report(rows[-1])
    return rows


def write_adapter_card(rows: list[dict[str, Any]]) -> None:
    """Write the card and, next to it, the rows of :func:`measure_adapter` that it shows."""
    training, size = json.loads((_FOLDER / "training.json").read_text()), len(PROBLEM_SETS)
    table = [f"| | {' | '.join(f'`{task}`' for task in PROBLEM_SETS)} |", "|---|" + "---|" * size]
    for i, (title, _, _) in enumerate(_CONTENDERS):
        cells = (
            f"{row['solved'] / row['problems']:.0%} ({row['low']:.0%} to {row['high']:.0%})"
            for row in rows[i * size : (i + 1) * size]
        )
        table.append(f"| {title} | {' | '.join(cells)} |")
    card = _CARD.format(
        **{**training, **training["plan"], **training["plan"]["schedule"], **training["plan"]["mix"]},
        minutes=training["seconds"] / 60, limit=rows[0]["problems"], longest=LONGEST, adapted=ADAPTED,
    )  # fmt: skip
    (_FOLDER / "README.md").write_text(card + "\n".join(table) + "\n")
    (_FOLDER / "measured.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def main(limit: int = 64, report: Report = lambda row: None) -> str:
    """Measure, write the card and return its path."""
    write_adapter_card(measure_adapter(limit, report))
    return str(_FOLDER / "README.md")
