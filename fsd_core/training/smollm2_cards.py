"""Measures what was trained for SmolLM2 and writes the model cards: ``python -m fsd_core train cards``.

The figures are of the pairs as they ship, on prompts of test splits, which no training has seen.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fsd_core.benchmarks.harness import prompt_seed, run_examples
from fsd_core.benchmarks.statistics import wilson
from fsd_core.benchmarks.tasks import get_task
from fsd_core.config import (
    AcceptanceConfig,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftOnly,
    SamplingConfig,
    Speculative,
)
from fsd_core.decoding.decoder import Decoder
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.pairs import ADAPTED, ASSETS, DRAFTED

FOLDER = ASSETS / "smollm2-135m"
PROMPT_SETS = (
    "gsm8k", "mbpp", "mt-bench", "spec-bench-mt", "spec-bench-translation", "spec-bench-summarization", "spec-bench-qa",
    "spec-bench-math", "spec-bench-rag",
)  # fmt: skip
WORD_PROBLEMS = ("addsub", "singleeq", "multiarith")
DRAFT_LENGTH, LONGEST, ROWS = 5, 128, 8

Report = Callable[[dict[str, Any]], None]


_DRAFT = """\
# Draft for SmolLM2-135M-Instruct

{count} layers of the width of SmolLM2-135M-Instruct, between that model's own embedding and {head_tokens:,} rows of its
head, which it borrows when it is loaded: this folder holds the layers alone ({own_parameters:,} parameters, bfloat16).
A forward reads {share_of_target:.1%} of the weights that the target's reads. The tokens that the head does not tell
apart share {rest:.2%} of the probability evenly.

Made by `python -m fsd_core train draft --target smollm2-135m`; this card by `python -m fsd_core train cards`.

- **Begins as** layers {first_layers} of the target.
- **Data**: {texts:,} answers of up to {longest_answer} tokens ({answer_tokens:,} tokens in all) that the target itself
  wrote, half of them greedily and half at temperature 1, to questions of the training splits of GSM8K, Dolly 15k,
  CommonsenseQA and MBPP. No question of a test split.
- **Method**: cross-entropy with the target's 32 likeliest tokens at every place, bf16 autocast, Muon, {steps:,} steps
  of {batch} texts; rates constant for half of them, then falling to zero.
- **Time**: {minutes:.0f} min of training, on {machine}; other work shared the machine.
- **Texts held out**: Σ min(p, q) = {overlap:.3f}; the same likeliest token at {same_choice:.1%} of the places.
- **Licence**: Apache 2.0, as the target's, from which it comes.

## Acceptance

Exact speculative decoding, {gamma} tokens drafted a round, the first {limit} prompts of each set, answers of up to
{longest} tokens ({here}).

"""

_ADAPTER = """\
# Adapter for word problems, for SmolLM2-135M-Instruct

LoRA of rank {rank} on every linear map of the layers ({parameters:,} parameters, bfloat16), merged into the model when
the pair `{adapted}` is loaded. Made by `python -m fsd_core train adapter`; this card by
`python -m fsd_core train cards`.

- **Data**: {made_up:.0%} problems that `fsd_core/benchmarks/arithmetic.py` makes up, the rest of the training split of
  GSM8K, put to the model as the tasks without examples put theirs. No problem of AddSub, SingleEq, MultiArith, SVAMP
  or of GSM8K's test split.
- **Method**: next-token cross-entropy over the solutions, bf16 autocast, AdamW, {steps:,} steps of {batch} problems.
- **Time**: {minutes:.0f} min, on {machine}; other work shared the machine.
- **Problems held out**: cross-entropy {held_out_loss:.3f} nats.
- **Licence**: Apache 2.0, as the model's.

## Accuracy

The first {limit} problems of each set, greedily, answers of up to {longest} tokens; Wilson's interval of 95 %.

"""


def acceptance(pair: LoadedPair, task: str, temperature: float, limit: int) -> dict[str, Any]:
    """Mean acceptance length (tokens a round) and share of drafted tokens kept, by exact SD, on the first prompts."""
    decoder = Decoder(pair, _setting(Speculative(), temperature))
    examples = get_task(task).examples(limit)
    prompts = [decoder.fitting(decoder.prompt_ids(example.prompt)) for example in examples]
    seeds = [prompt_seed(0, position) for position in range(limit)]
    found = [generation for _, generation in decoder.generate_all(prompts, seeds, ROWS)]
    rounds = [record for generation in found for record in generation.records]
    drafted = sum(len(record.drafted) for record in rounds)
    return {
        "task": task,
        "temperature": temperature,
        "prompts": limit,
        "tokens": sum(len(generation.tokens) for generation in found),
        "acceptance_length": round(sum(len(record.emitted) for record in rounds) / len(rounds), 3),
        "acceptance_rate": round(sum(record.accepted for record in rounds) / drafted, 4),
    }


def accuracy(pair: LoadedPair, task: str, rule: AcceptanceConfig, limit: int) -> dict[str, Any]:
    """Share of a task's first problems that are solved greedily, with Wilson's interval of 95 %."""
    found = get_task(task)
    examples = dict(enumerate(found.examples(limit)))
    records = list(run_examples(Decoder(pair, _setting(rule, 0.0)), found, examples, 0, 2 * ROWS))
    solved = sum(record.outcome == "correct" for record in records)
    low, high = wilson(solved, limit)
    return {"task": task, "rule": rule.kind, "problems": limit, "solved": solved, "low": low, "high": high}


def _setting(rule: AcceptanceConfig, temperature: float) -> DecodingConfig:
    return DecodingConfig(
        acceptance=rule,
        topology=ChainTopology(length=DRAFT_LENGTH),
        sampling=SamplingConfig(temperature=temperature),
        max_new_tokens=LONGEST,
    )


def write_draft_card(limit: int = 16, report: Report = lambda row: None) -> Path:
    """Measures the draft of ``smollm2-135m`` on every prompt set and writes its card."""
    pair, rows = load_pair(DRAFTED), []
    for task in PROMPT_SETS:
        for temperature in (0.0, 1.0):
            rows.append(acceptance(pair, task, temperature, limit))
            report(rows[-1])
    told = _training("draft")
    table = ["| Prompts | temperature 0 | | temperature 1 | |", "|---|---|---|---|---|"]
    table += ["| | tokens a round | drafted tokens kept | tokens a round | drafted tokens kept |"]
    for greedy, sampled in zip(rows[::2], rows[1::2], strict=True):
        cells = (f"{row['acceptance_length']:.2f} | {row['acceptance_rate']:.0%}" for row in (greedy, sampled))
        table.append(f"| `{greedy['task']}` | {' | '.join(cells)} |")
    card = _DRAFT.format(
        **{**told, **told["plan"], **told["plan"]["schedule"]},
        first_layers=", ".join(map(str, told["plan"]["layers"])),
        count=len(told["plan"]["layers"]),
        rest=1 - told["head_covers"],
        minutes=told["seconds"] / 60,
        gamma=DRAFT_LENGTH, longest=LONGEST, limit=limit, here=f"{platform.machine()}, {pair.dtype}",
    )  # fmt: skip
    return _write("draft", card + "\n".join(table) + "\n", rows)


def write_adapter_card(limit: int = 64, report: Report = lambda row: None) -> Path:
    """Solves word problems with the target as it comes, with its adapter and with the draft, and writes the card."""
    rows: list[dict[str, Any]] = []
    for name, rule in ((DRAFTED, Autoregressive()), (ADAPTED, Autoregressive()), (ADAPTED, DraftOnly())):
        pair = load_pair(name)
        for task in WORD_PROBLEMS:
            rows.append({"pair": name} | accuracy(pair, task, rule, limit))
            report(rows[-1])
    told, size = _training("adapter"), len(WORD_PROBLEMS)
    table = [f"| | {' | '.join(f'`{task}`' for task in WORD_PROBLEMS)} |", "|---|" + "---|" * size]
    titles = ("SmolLM2-135M-Instruct as it comes", "with this adapter", "the draft alone")
    for i, title in enumerate(titles):
        cells = (
            f"{row['solved'] / limit:.0%} ({row['low']:.0%} to {row['high']:.0%})"
            for row in rows[i * size : (i + 1) * size]
        )
        table.append(f"| {title} | {' | '.join(cells)} |")
    card = _ADAPTER.format(
        **{**told, **told["plan"], **told["plan"]["schedule"]},
        minutes=told["seconds"] / 60, limit=limit, longest=LONGEST, adapted=ADAPTED,
    )  # fmt: skip
    return _write("adapter", card + "\n".join(table) + "\n", rows)


def _training(what: str) -> dict[str, Any]:
    return json.loads((FOLDER / what / "training.json").read_text())


def _write(what: str, card: str, rows: list[dict[str, Any]]) -> Path:
    path = FOLDER / what / "README.md"
    path.write_text(card)
    about = {"torch": torch.__version__, "rows": rows}
    (FOLDER / what / "measured.json").write_text(json.dumps(about, indent=1) + "\n")
    return path
