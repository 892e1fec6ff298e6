"""Questions of training splits, to be answered by a model that a draft learns from. Never of a test split."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsd_core.errors import ModelUnavailable


def training_prompts(data: Path, seed: int = 0) -> Iterator[str]:
    """Questions without end, in an order of the seed alone: half of them sums, the rest instructions, choices and code.

    ``data``: a folder with ``gsm8k/train.jsonl``, ``dolly/dolly_train.json``, ``csqa/train_rand_split.jsonl`` and
    ``mbpp/mbpp.jsonl`` (of which problems 601 to 974, its training split, are used). Raises ``ModelUnavailable`` if one
    is missing.
    """
    try:
        sources = {"gsm8k": _gsm8k(data), "dolly": _dolly(data), "csqa": _csqa(data), "mbpp": _mbpp(data)}
    except FileNotFoundError as error:
        raise ModelUnavailable(
            f"The file {error.filename} of training questions is missing: set FSD_DATA_DIR to the folder that has it."
        ) from None
    shuffle = random.Random(seed)
    decks: dict[str, list[str]] = {name: [] for name in sources}
    while True:
        (name,) = shuffle.choices(list(sources), (0.45, 0.35, 0.12, 0.08))
        if not decks[name]:
            decks[name] = shuffle.sample(sources[name], len(sources[name]))
        yield decks[name].pop()


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def _gsm8k(data: Path) -> list[str]:
    return [row["question"] for row in _lines(data / "gsm8k" / "train.jsonl")]


def _dolly(data: Path) -> list[str]:
    rows = json.loads((data / "dolly" / "dolly_train.json").read_text(encoding="utf-8"))
    return ["\n\n".join(filter(None, (row["instruction"].strip(), row["input"].strip()[:1500]))) for row in rows]


def _csqa(data: Path) -> list[str]:
    texts = []
    for row in _lines(data / "csqa" / "train_rand_split.jsonl"):
        choices = "\n".join(f"{choice['label']}) {choice['text']}" for choice in row["question"]["choices"])
        texts.append(f"{row['question']['stem']}\n{choices}\nWhich one is right, and why?")
    return texts


def _mbpp(data: Path) -> list[str]:
    rows = _lines(data / "mbpp" / "mbpp.jsonl")
    return [row.get("prompt") or row["text"] for row in rows if 601 <= row["task_id"] <= 974]
