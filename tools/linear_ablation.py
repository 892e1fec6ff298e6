"""What the parts of grouped linear attention bring: targets of equal size and training, on held-out problems.

python -m tools.linear_ablation FOLDER    prints the table of docs/results/linear-ablation.csv

FOLDER holds what ``train linear-target --parts PARTS --out FOLDER/PARTS`` wrote, for each of the parts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import get_args

from fsd_core.statistics.intervals import wilson
from fsd_plugins.training.plans import Parts
from tests.tools.documents import commit

TITLES: dict[Parts, str] = {
    "softmax": "Softmax attention",
    "local": "Own group alone (quadratic)",
    "global": "and earlier groups (linear)",
    "all": "and the convolution",
}


def row(parts: Parts, training: dict) -> str:
    """The line of one training."""
    count, share = training["held_out_problems"], training["held_out_accuracy"]
    low, high = wilson(round(share * count), count)
    loss = training["log"][-1]["loss"]
    return f"| {TITLES[parts]} | `{parts}` | {share:.1%} ({low:.1%} to {high:.1%}) | {loss:.3f} |"


def main(folder: Path) -> None:
    """Read the trainings, and print the page."""
    trainings = {
        parts: json.loads((folder / parts / "target" / "training.json").read_text()) for parts in get_args(Parts)
    }
    schedules = {
        (t["plan"]["schedule"]["steps"], t["plan"]["schedule"]["batch"], t["seed"], t["held_out_problems"])
        for t in trainings.values()
    }
    ((steps, batch, seed, problems),) = schedules  # others could not be compared
    page = PAGE.format(
        rows="\n".join(row(parts, training) for parts, training in trainings.items()),
        facts=f"model pair none; task arithmetic; prompts {problems}; {steps} steps of {batch} problems, seed {seed}; "
        f"temperature 0; commit {commit()}",
        steps=steps, group=trainings["all"]["plan"]["group"], taps=trainings["all"]["plan"]["taps"],
    )  # fmt: skip
    print(page)


PAGE = """\
# What the parts of grouped linear attention bring

{facts}

Targets of the bundled target's size, problems, optimisers and schedule, which differ in their attention alone: groups
of {group}, {taps} taps. Share of held-out problems that the greedy text solves, with a 95 % interval, and the loss
(nats a token) of the last batch. One seed each, and fewer steps than the shipped targets have: this tells what is
learned sooner, and no more.

<!-- not run: each trains for some ten minutes -->
```
python -m fsd_core train linear-target --parts softmax --steps {steps} --out ablation/softmax
python -m fsd_core train linear-target --parts local --steps {steps} --out ablation/local
python -m fsd_core train linear-target --parts global --steps {steps} --out ablation/global
python -m fsd_core train linear-target --parts all --steps {steps} --out ablation/all
python -m tools.linear_ablation ablation
```

| Attention | `--parts` | Solved | Loss |
|---|---|---|---|
{rows}
"""

if __name__ == "__main__":
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("folder", type=Path)
    main(told.parse_args().folder)
