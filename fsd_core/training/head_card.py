"""Measures the shipped EAGLE heads and writes their model cards: ``python -m fsd_core train card head``.

The figures are those of the shipped pairs, on prompts that no training has seen.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

from fsd_core.config import (
    ChainTopology,
    DecodingConfig,
    DrafterConfig,
    DraftModelDrafter,
    DynamicTreeTopology,
    EagleDrafter,
    Speculative,
    TopologyConfig,
)
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.model_pairs import DRAFTED, get_pair
from fsd_core.training.draft_card import (
    DRAFT_LENGTH,
    LONGEST,
    PROMPT_SETS,
    Report,
    acceptance,
    own,
    taught_before,
    time_digits,
)

_CHAIN = ChainTopology(length=DRAFT_LENGTH)
_TREE = DynamicTreeTopology(length=6, top_k=10, total_tokens=60)  # EAGLE-2's
CONTENDERS: dict[str, tuple[DrafterConfig, TopologyConfig]] = {
    "draft, chain": (DraftModelDrafter(), _CHAIN),
    "head, chain": (EagleDrafter(), _CHAIN),
    "draft, tree": (DraftModelDrafter(), _TREE),
    "head, tree": (EagleDrafter(), _TREE),
}
_PROMPTS = {DRAFTED: [task for task in PROMPT_SETS if task.startswith("spec-bench")], "bundled": ["arithmetic"]}

_CARD = """\
# EAGLE head for the target of `{target}`

{kind}: one decoder layer of {own_parameters:,} parameters (bfloat16) that goes on from {reads} of the target,
on the target's own embedding and {head}, which it borrows when it is loaded. The files are in the published format.

Made by `python -m fsd_core train eagle-head --target {target}`; this card by `python -m fsd_core train card head`.

- **Begins as** the last layer of the target, as far as that fits{before}.
- **Data**: {texts:,} answers of up to {longest_answer} tokens ({answer_tokens:,} tokens in all) that the target itself
  wrote, half of them greedily and half at temperature 1, {own}{questions}. No question of a test split.{read}
- **Method**: {loss}, bf16 autocast, Muon, {steps_done:,} batches of {batch} texts; rates constant for half of them,
  then falling to zero.
- **Time**: {minutes:.{digits}f} min of training, on {machine}.{note}
- **Texts held out**: Σ min(p, q) = {overlap:.3f}; the same likeliest token at {same_choice:.1%} of the places.
- **Licence**: {licence}.

## Tokens a round

Exact speculative decoding at temperature 0, the first {limit} prompts of each set, answers of up to {longest} tokens
({here}): chains of {gamma} tokens, and EAGLE-2's tree of {tree_tokens} tokens (width {tree_width}, {tree_length}
levels).

"""
_QUESTIONS = {
    DRAFTED: "to questions of the training splits of GSM8K (alone, and behind worked ones), Dolly 15k, CommonsenseQA "
    "and MBPP, and to stories and encyclopaedia passages that are to be summed up",
    "bundled": "to arithmetic problems that `fsd_core/tasks/generators/long_problems.py` makes up",
}
_READ = "\n  {:,} of these texts exist, in the same training splits, and the target read them."
_LICENCES = {
    DRAFTED: "Apache 2.0, as the target's, from which it comes",
    "bundled": "that of this repository",
}


def folder_of(target: str) -> Path:
    """Return the folder of a pair's shipped head."""
    head = get_pair(target).head
    assert isinstance(head, Path)
    return head


def measure_head(pair: LoadedPair, limit: int, report: Report) -> list[dict[str, Any]]:
    """Return the acceptance of draft and head, chain and tree, on every prompt set, greedily."""
    rows = []
    for task in _PROMPTS[pair.spec.name]:
        for name, (drafter, topology) in CONTENDERS.items():
            config = DecodingConfig(
                acceptance=Speculative(), drafter=drafter, topology=topology, max_new_tokens=LONGEST
            )
            rows.append({"contender": name} | acceptance(pair, task, config, limit, rows=1))
            report(rows[-1])
    return rows


def write_head_card(target: str, rows: list[dict[str, Any]], dtype: str) -> Path:
    """Write the card and, next to it, the rows of :func:`measure_head` that it shows."""
    folder = folder_of(target)
    training = json.loads((folder / "training.json").read_text())
    plan, eagle3 = training["plan"], training["plan"]["generation"] == 3
    table = [f"| Prompts | {' | '.join(CONTENDERS)} |", "|---|" + "---|" * len(CONTENDERS)]
    size = len(CONTENDERS)
    for i in range(0, len(rows), size):
        cells = (f"{row['acceptance_length']:.2f}" for row in rows[i : i + size])
        table.append(f"| `{rows[i]['task']}` | {' | '.join(cells)} |")
    loss = "cross-entropy with the target's 32 likeliest tokens"
    states = f", also behind {plan['steps'] - 1} of its own states (EAGLE-3's training-time test)"
    card = _CARD.format(
        **{**plan["schedule"], **plan, **training, "note": f" {training.get('note', '')}".rstrip()},
        before=f", taught before for {before} other texts" if (before := taught_before(training)) else "",
        kind="EAGLE-3" if eagle3 else "EAGLE",
        read=_READ.format(count) if (count := training.get("texts_read")) else "",
        reads="three states" if eagle3 else "the last state",
        head=f"{plan['head_tokens']:,} rows of its head" if plan["head_tokens"] else "its head",
        questions=_QUESTIONS[target],
        loss=(loss if eagle3 else f"smooth L1 of the states and 0.1 × {loss}") + (states if plan["steps"] > 1 else ""),
        steps_done=training["log"][-1]["step"],
        minutes=training["seconds"] / 60, digits=time_digits(training), own=own(plan),
        licence=_LICENCES[target],
        limit=rows[0]["prompts"], longest=LONGEST, here=f"{platform.machine()}, {dtype}", gamma=DRAFT_LENGTH,
        tree_tokens=_TREE.total_tokens, tree_width=_TREE.top_k, tree_length=_TREE.length,
    )  # fmt: skip
    (folder / "README.md").write_text(card + "\n".join(table) + "\n")
    (folder / "measured.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return folder / "README.md"


def main(limit: int = 8, report: Report = lambda row: None) -> str:
    """Measure, write the cards of all heads and return their paths."""
    written = []
    for target in _PROMPTS:
        pair = load_pair(target)
        written.append(write_head_card(target, measure_head(pair, limit, report), pair.dtype))
    return "\n".join(map(str, written))
