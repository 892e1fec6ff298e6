"""Questions of training splits, to be answered by a model that a draft learns from. Never of a test split."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsd_core.benchmarks.tasks.word_problems import MOST_SHOTS, after_examples
from fsd_core.errors import ModelUnavailable

MIX = {"gsm8k": 0.3, "worked": 0.15, "dolly": 0.3, "csqa": 0.08, "mbpp": 0.07, "passages": 0.1}
"""shares of the kinds of questions: sums, sums behind worked ones, instructions, choices, code, texts to sum up"""


def training_prompts(data: Path, seed: int = 0, mix: Mapping[str, float] = MIX) -> Iterator[str]:
    """Questions without end, in an order of the seed alone.

    ``data``: a folder with ``gsm8k/train.jsonl``, ``dolly/dolly_train.json``, ``csqa/train_rand_split.jsonl``,
    ``mbpp/mbpp.jsonl`` (of which problems 601 to 974, its training split, are used), and of ``tinystories_sample`` the
    stories and the passages of WikiText's training split. Raises ``ModelUnavailable`` if one is missing.
    """
    shuffle = random.Random(seed)
    try:
        sources = {
            "gsm8k": _gsm8k(data),
            "worked": _worked(data, shuffle),
            "dolly": _dolly(data),
            "csqa": _csqa(data),
            "mbpp": _mbpp(data),
            "passages": _passages(data, shuffle),
        }
    except FileNotFoundError as error:
        raise ModelUnavailable(
            f"The file {error.filename} of training questions is missing: set FSD_DATA_DIR to the folder that has it."
        ) from None
    return _endless(sources, mix, shuffle)


def _endless(sources: Mapping[str, list[str]], mix: Mapping[str, float], shuffle: random.Random) -> Iterator[str]:
    decks: dict[str, list[str]] = {name: [] for name in sources}
    while True:
        (name,) = shuffle.choices(list(mix), list(mix.values()))
        if not decks[name]:
            decks[name] = shuffle.sample(sources[name], len(sources[name]))
        yield decks[name].pop()


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def _gsm8k(data: Path) -> list[str]:
    return [row["question"] for row in _lines(data / "gsm8k" / "train.jsonl")]


def _worked(data: Path, shuffle: random.Random) -> list[str]:
    """Each problem behind one to four others with their solutions."""
    rows = shuffle.sample(found := _lines(data / "gsm8k" / "train.jsonl"), len(found))
    shots = [shuffle.randint(1, MOST_SHOTS) for _ in rows]
    return [
        after_examples(rows[max(0, i - count) : i], row["question"])
        for i, (count, row) in enumerate(zip(shots, rows, strict=True))
    ]


def _passages(data: Path, shuffle: random.Random) -> list[str]:
    """Texts to be summed up, and questions of Dolly that have a text, between other texts."""
    folder = data / "tinystories_sample"
    texts = [
        text.strip()
        for name in ("tinystories", "wikitext")
        for text in json.loads((folder / f"{name}_1000.json").read_text(encoding="utf-8"))
    ]
    asked = []
    for row in json.loads((data / "dolly" / "dolly_train.json").read_text(encoding="utf-8")):
        if own := row["input"].strip()[:1200]:
            passages = "\n\n".join(shuffle.sample([own, shuffle.choice(texts)[:600]], 2))
            asked.append(f"{passages}\n\n{row['instruction'].strip()}")
    return [f"Summarize: {text[:1600]}" for text in texts] + asked


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
