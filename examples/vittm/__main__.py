"""``python -m examples.vittm``: train, measure and log a ViT and ViTTMs, and say whether the paper's ordering holds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fsd_core
from examples.vittm.digits import CLASSES, IMAGE, TEST, Measurement, load, measure, train
from examples.vittm.vision_models import ViT, ViTTM
from fsd_core.statistics.intervals import quotient_interval
from fsd_core.statistics.paired import paired_difference, verdict

MARGIN = 2.0
"""points of accuracy that count as about equal"""
_TOKENS = 16
SIZES: dict[str, int | None] = {"ViT": None, "ViTTM, 4 process tokens": 4, "ViTTM, 1 process token": 1}
"""process tokens by name, beside 16 memory tokens; in the ViT all 16 tokens, of 2 x 2 pixels, do everything"""


def main(arguments: Sequence[str] | None = None) -> dict[str, str]:
    """Train, measure and log all models. Returns the ids of the runs by the names of the models."""
    parser = argparse.ArgumentParser(prog="python -m examples.vittm", description=__doc__)
    parser.add_argument("--home", type=Path, help="folder that stores the runs; FSD_HOME by default")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--images", type=int, help="digits to train on; all 1,437 by default")
    parser.add_argument("--repeats", type=int, default=7, help="timings of each batch, of which the median counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-mlflow", dest="mlflow", action="store_false", help="leave the copies to the next worker")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # models this small only wait for other threads
    digits, test = load(given.images)
    models: dict[str, nn.Module] = {}
    for name, size in SIZES.items():
        torch.manual_seed(given.seed)
        models[name] = ViT(IMAGE, CLASSES, _TOKENS) if size is None else ViTTM(IMAGE, CLASSES, size, _TOKENS)
        train(models[name], digits, given.epochs, given.seed)
        print(f"trained {name}", flush=True)
    measured = measure(models, test, repeats=given.repeats)
    settings = {"epochs": given.epochs, "training images": len(digits.images), "seed": given.seed}
    ids = {name: _log(name, found, given, settings) for name, found in measured.items()}
    for name in list(measured)[1:]:
        print(ordering(name, measured[name], measured["ViT"]))
    print(f"Compare: /compare?runs={','.join(ids.values())}")
    return ids


def _log(name: str, found: Measurement, given: Any, settings: dict[str, int]) -> str:
    process = SIZES[name]
    knobs = {"process tokens": process or _TOKENS, "memory tokens": 0 if process is None else _TOKENS}
    return fsd_core.log_run(
        name, "ViT" if process is None else "ViTTM", knobs,
        prompts=len(found.right), correct=sum(found.right), seconds=found.seconds,
        figures={"MFLOP per image": found.flops / 1e6}, task="digits", model="width 64, 4 blocks",
        origin={"program": "examples/vittm", **settings}, home=given.home, mlflow=given.mlflow,
    )  # fmt: skip


def ordering(name: str, found: Measurement, vit: Measurement) -> str:
    """Return whether a ViTTM is faster than the ViT at about equal accuracy, with the figures that say so."""
    equal = len(found.seconds)
    pairs = [[(part, TEST / equal) for part in side.seconds] for side in (vit, found)]
    ratio = sum(vit.seconds) / sum(found.seconds)
    interval = quotient_interval(*pairs)
    paired = paired_difference(dict(enumerate(found.right)), dict(enumerate(vit.right)))
    accuracy = verdict(paired, MARGIN)
    faster = ratio > 1 if interval is None else interval.low > 1
    slower = ratio < 1 if interval is None else interval.high < 1
    low, high = (100 * end for end in paired.interval)
    if low > MARGIN:
        judged = "cannot be judged: the ViT has learnt less, so train longer (--epochs)"
    elif faster and accuracy.kind in ("non-inferior", "identical"):
        judged = "holds"
    else:
        judged = "does not hold" if slower or accuracy.kind == "worse" else "is undecided"
    ends = "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
    return (
        f"{name}: {ratio:.2f}{ends} times as fast as the ViT, accuracy {100 * paired.difference:+.1f} points "
        f"[{low:+.1f}, {high:+.1f}], {accuracy.sentence(MARGIN)}. The ordering {judged}."
    )


if __name__ == "__main__":
    main()
