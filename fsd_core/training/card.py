"""The model card of the bundled pair, written from the logs that lie beside the weights."""

from __future__ import annotations

import json
from pathlib import Path

_HEAD = """\
# Bundled arithmetic pair

A target and a draft of Llama architecture over one byte-level BPE tokenizer, trained from random weights on generated
arithmetic word problems with worked steps. They exist so that FSD Lab shows a real trade-off on any machine, with no
network; they know nothing but such problems.

Made by `python -m fsd_core train bundled-pair --out FOLDER`. This card is written from the `training.json` beside each
model.

- **Data**: endless generated problems (`fsd_core/benchmarks/arithmetic.py`), each seen once; the held-out problems
  (`arithmetic.jsonl`) are left out by their question. The question's tokens weigh a tenth of the solution's.
- **Method**: next-token cross-entropy in bf16 autocast; Muon for hidden matrices, AdamW for the rest; rates constant
  for half of the steps, then falling to zero.
- **Licence**: that of this repository. No third-party text or weights went in.
"""


def write_card(folder: Path) -> None:
    """Writes ``folder/README.md`` from ``folder/{target,draft}/training.json``."""
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
    (folder / "README.md").write_text("\n".join([_HEAD, *table, *curves]) + "\n")
