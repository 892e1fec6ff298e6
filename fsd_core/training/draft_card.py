"""Measures the shipped draft for SmolLM2 and writes its model card: ``python -m fsd_core train card``.

The figures are those of the shipped pair, on prompts that no training has seen.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsd_core.config import (
    AcceptanceConfig,
    ChainTopology,
    DecodingConfig,
    SamplingConfig,
    Speculative,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.evaluation.harness import prompt_seed
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.model_pairs import ASSETS, DRAFTED
from fsd_core.tasks import get_task

_FOLDER = ASSETS / "smollm2-135m" / "draft"
PROMPT_SETS = (
    "gsm8k", "mbpp", "spec-bench-mt", "spec-bench-translation", "spec-bench-summarization", "spec-bench-qa",
    "spec-bench-math", "spec-bench-rag",
)  # fmt: skip
DRAFT_LENGTH, LONGEST, ROWS = 5, 128, 8

Report = Callable[[dict[str, Any]], None]


_DRAFT = """\
# Draft for SmolLM2-135M-Instruct

{count} layers of the width of SmolLM2-135M-Instruct, between that model's own embedding and {head_tokens:,} rows of its
head, which it borrows when it is loaded: this folder holds the layers alone ({own_parameters:,} parameters, bfloat16).
A forward reads {share_of_target:.1%} of the weights that the target's reads. The tokens that the head does not tell
apart share {rest:.2%} of the probability evenly.

Made by `python -m fsd_core train draft --target smollm2-135m`; this card by `python -m fsd_core train card`.

- **Begins as** {begins}.
- **Written by the target**: {written:,} answers of up to {longest_answer} tokens ({tokens_written:,} tokens in all),
  half of them greedily and half at temperature 1: {own}to questions of the training splits of GSM8K (alone, and behind
  worked ones), Dolly 15k, CommonsenseQA and MBPP, to stories and encyclopaedia passages that are to be summed up
  (TinyStories, WikiText), and, with the adapter of `smollm2-135m-math`, to problems like those it learnt from.
{read}- No question or answer of a test split.
- **Method**: cross-entropy with the target's 32 likeliest tokens at every place, bf16 autocast, Muon, {steps:,} steps
  of {batch} texts; rates constant for half of them, then falling to zero.
- **Time**: {minutes:.{digits}f} min of training, on {machine}.{note}
- **Texts held out**: Σ min(p, q) = {overlap:.3f}; the same likeliest token at {same_choice:.1%} of the places.
- **Licence**: Apache 2.0, as the target's, from which it comes.

## Acceptance

Exact speculative decoding, {gamma} tokens drafted a round, the first {limit} prompts of each set, answers of up to
{longest} tokens ({here}).

"""


_READ = """\
- **Read by the target**: {texts_read:,} texts ({answer_tokens_read:,} tokens of answers) under its chat template:
  solutions of GSM8K, answers of Dolly, programs of MBPP, stories and passages that go on from their beginning.
"""


def acceptance(pair: LoadedPair, task: str, config: DecodingConfig, limit: int, rows: int = ROWS) -> dict[str, Any]:
    """Return mean acceptance length (tokens per round) and acceptance rate on the first prompts.

    ``rows``: batch size.
    """
    decoder = PairDecoder(pair, config)
    examples = get_task(task).examples(limit)
    prompts = [decoder.fitting(decoder.prompt_ids(example.prompt)) for example in examples]
    seeds = [prompt_seed(0, position) for position in range(limit)]
    generations = [generation for _, generation in decoder.generate_all(prompts, seeds, rows)]
    rounds = [record for generation in generations for record in generation.records]
    drafted = sum(len(record.drafted) for record in rounds)
    return {
        "task": task,
        "temperature": config.sampling.temperature,
        "prompts": limit,
        "tokens": sum(len(generation.tokens) for generation in generations),
        "acceptance_length": round(sum(len(record.emitted) for record in rounds) / len(rounds), 3),
        "acceptance_rate": round(sum(record.accepted for record in rounds) / drafted, 4),
    }


def setting(rule: AcceptanceConfig, temperature: float) -> DecodingConfig:
    """Return the config with which the cards try the rule."""
    return DecodingConfig(
        acceptance=rule,
        topology=ChainTopology(length=DRAFT_LENGTH),
        sampling=SamplingConfig(temperature=temperature),
        max_new_tokens=LONGEST,
    )


def measure_draft(pair: LoadedPair, limit: int, report: Report) -> list[dict[str, Any]]:
    """Return the acceptance of a pair's draft on every prompt set, greedily and at temperature 1."""
    rows = []
    for task in PROMPT_SETS:
        for temperature in (0.0, 1.0):
            rows.append(acceptance(pair, task, setting(Speculative(), temperature), limit))
            report(rows[-1])
    return rows


def write_draft_card(rows: list[dict[str, Any]], dtype: str) -> Path:
    """Write the card and, next to it, the rows of :func:`measure_draft` that it shows."""
    training = json.loads((_FOLDER / "training.json").read_text())
    plan = training["plan"]
    before = {(row["task"], row["temperature"]): row for row in (training.get("start") or {}).get("measured", [])}
    table = _table(rows, before)
    card = _DRAFT.format(
        **{**plan["schedule"], **plan, **training, "note": f" {training.get('note', '')}".rstrip()},
        written=training["texts"] - training.get("texts_read", 0),
        tokens_written=training["answer_tokens"] - training.get("answer_tokens_read", 0),
        read=_READ.format(**training) if training.get("texts_read") else "",
        begins=_initialisation(training),
        count=len(plan["layers"]),
        rest=1 - training["head_covers"],
        minutes=training["seconds"] / 60, digits=time_digits(training), own=own(plan),
        gamma=DRAFT_LENGTH, longest=LONGEST, limit=rows[0]["prompts"], here=f"{platform.machine()}, {dtype}",
    )  # fmt: skip
    (_FOLDER / "README.md").write_text(card + "\n".join(table) + "\n")
    (_FOLDER / "measured.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return _FOLDER / "README.md"


def _table(rows: list[dict[str, Any]], before: dict[tuple[str, float], dict[str, Any]]) -> list[str]:
    """Return one line per prompt set, with the earlier acceptance length first if the initial draft was measured."""
    table = ["| Prompts | temperature 0 | | temperature 1 | |", "|---|---|---|---|---|"]
    heading = "tokens a round, before → now" if before else "tokens a round"
    table += [f"| | {heading} | drafted tokens kept | {heading} | drafted tokens kept |"]
    for pair in zip(rows[::2], rows[1::2], strict=True):
        cells = []
        for row in pair:
            old = before.get((row["task"], row["temperature"]))
            prefix = f"{old['acceptance_length']:.2f} → " if old else ""
            cells += [f"{prefix}{row['acceptance_length']:.2f}", f"{row['acceptance_rate']:.0%}"]
        table.append(f"| `{pair[0]['task']}` | {' | '.join(cells)} |")
    return table


def _initialisation(training: dict[str, Any]) -> str:
    layers = f"layers {', '.join(map(str, training['plan']['layers']))} of the target"
    return f"{layers}, trained before for {before} texts" if (before := taught_before(training)) else layers


def own(plan: dict[str, Any]) -> str:
    """Return how many texts answer prompts that the target wrote, before the other prompts are named; or ``""``."""
    return (
        f"{count:,} to prompts that it wrote itself (Magpie), the others " if (count := plan.get("own_prompts")) else ""
    )


def time_digits(training: dict[str, Any]) -> int:
    """Return the digits of a time in minutes: one below ten minutes."""
    return int(training["seconds"] < 600)


def taught_before(training: dict[str, Any]) -> str:
    """Return steps, time and texts of the earlier training that a model went on from, or ``""`` for none."""
    if not (start := training.get("start")):
        return ""
    return f"{start['steps']:,} steps ({start['seconds'] / 60:.0f} min) on {start['texts']:,}"


def main(limit: int = 16, report: Report = lambda row: None) -> Path:
    """Measure and write the card."""
    pair = load_pair(DRAFTED)
    return write_draft_card(measure_draft(pair, limit, report), pair.dtype)
