"""The model card of the bundled pair, written from the logs next to the weights."""

from __future__ import annotations

import json
import random
from math import log
from pathlib import Path

from fsd_core.tasks.generators.house_styles import DRAFT_STYLE, TARGET_STYLE, Choice
from fsd_core.tasks.generators.long_problems import Problem

_HEAD = """\
# Bundled arithmetic pair

A target and a draft of Llama architecture over one byte-level BPE tokenizer, trained from random weights on generated
arithmetic word problems with worked steps. They exist so that FSD Lab shows a real trade-off on any machine, with no
network; they know nothing but such problems.

Made by `python -m fsd_core train bundled-pair --out FOLDER`. This card is written from the `training.json` beside each
model.

- **Data**: endless generated problems (`fsd_core/tasks/generators/long_problems.py`), each seen once; the held-out
  problems (`arithmetic.jsonl`) are left out by their question. The question's tokens weigh a tenth of the solution's.
- **Two house styles**: target and draft learn the same problems and the same sums, each from a corpus with favourite
  words of its own (`fsd_core/tasks/generators/house_styles.py`). See below.
- **Method**: next-token cross-entropy in bf16 autocast; Muon for hidden matrices, AdamW for the rest; rates constant
  for half of the steps, then falling to zero.
- **Licence**: that of this repository. No third-party text or weights went in.
"""

_STYLES = """
## Two house styles

Models of different makers learn from different texts. They differ in facts, and they differ in wording, mostly where
two words are nearly as good. Two models of one corpus would leave that half out: then only the sums would be in
dispute, where leniency costs most. So the corpora of this pair differ. At every choice of words both have the same
words at close odds, and each has another favourite. The Jensen-Shannon divergence of the two corpora at such a choice
is {low:.2f} to {high:.2f} nats. The sums are the same.

| Choice | target's corpus | draft's corpus |
|---|---|---|
{odds}

One problem in the favourite words of each:

| target | draft |
|---|---|
| {target} | {draft} |

A lenient rule can take the draft's word for the target's own, at no cost. The pair is made to show that effect. It is
an example, and no claim about other pairs: how much of a disagreement is wording, and how much is substance, is another
matter for each pair and task. Independent runs found FSD costly on reasoning models. With gpt-oss-20b, an EAGLE-3 head
and js ≤ 0.25, AIME 2024 fell from 77 % to 50 %, with answers 2.13 times as long and 0.73 times as fast from end to end,
and LiveCodeBench from 89 % to 34 %; with js ≤ 0.08 HumanEval fell from 96 % to 81 % (one seed). Another lossy rule,
lenience, left 3 of 10 AIME 2024 problems without an answer, where exact decoding answered all
(<https://github.com/chiatzenw-cur/lossy-spec-decode-repetition>). Measure your own pair before you are lenient.
"""
_EXAMPLE = Problem("", ("14 + 6 = 20", "20 / 5 = 4"), 4)


def _styles() -> str:
    """Return the section on wording."""
    target, draft = TARGET_STYLE.choices(), DRAFT_STYLE.choices()
    divergences = [_divergence(target[name], draft[name]) for name in target]
    odds = [f"| {name} | {_format_odds(target[name])} | {_format_odds(draft[name])} |" for name in target]
    favourites = [
        _EXAMPLE.solution(random.Random(0), style.favourites()).strip().replace("\n", " ⏎ ")
        for style in (TARGET_STYLE, DRAFT_STYLE)
    ]
    return _STYLES.format(
        low=min(divergences), high=max(divergences), odds="\n".join(odds), target=favourites[0], draft=favourites[1]
    )


def _format_odds(choice: Choice) -> str:
    return ", ".join(f"`{word}` {odds}" for word, odds in choice)


def _divergence(target: Choice, draft: Choice) -> float:
    """Return the Jensen-Shannon divergence of two choices with the same words, in nats."""
    p, q = ([odds / sum(odds for _, odds in choice) for _, odds in choice] for choice in (target, draft))
    return sum((x * log(2 * x / (x + y)) + y * log(2 * y / (x + y))) / 2 for x, y in zip(p, q, strict=True))


def write_card(folder: Path) -> None:
    """Write ``folder/README.md`` from ``folder/{target,draft}/training.json``."""
    logs = {role: json.loads((folder / role / "training.json").read_text()) for role in ("target", "draft")}
    rows = [
        ("Parameters", lambda d: f"{d['parameters']:,}"),
        ("Layers x hidden", lambda d: f"{d['plan']['layers']} x {d['plan']['hidden']}"),
        ("Batches x problems", lambda d: f"{d['plan']['schedule']['steps']:,} x {d['plan']['schedule']['batch']}"),
        ("Training time", lambda d: f"{d['seconds'] / 60:.0f} min"),
        ("Machine", lambda d: d["machine"]),
        ("Held-out accuracy, greedy", lambda d: f"{d['held_out_accuracy']:.1%} of {d['held_out_problems']}"),
    ]
    table = ["| | target | draft |", "|---|---|---|"]
    table += [f"| {name} | {show(logs['target'])} | {show(logs['draft'])} |" for name, show in rows]
    curves = []
    for role, data in logs.items():
        points = [row for row in data["log"] if "accuracy" in row]
        curves += [
            f"\n## Learning curve of the {role}\n",
            "| step | loss (nats) | accuracy on 100 other problems |",
            "|---|---|---|",
        ]
        curves += [f"| {row['step']} | {row['loss']:.3f} | {row['accuracy']:.0%} |" for row in points]
    (folder / "README.md").write_text("\n".join([_HEAD, *table, _styles(), *curves]) + "\n")
