"""Questions for a model that a draft learns from, always of training splits, never of a test split."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsd_core.errors import ModelUnavailable
from fsd_core.tasks.word_problems import MOST_SHOTS, after_examples

MIX = {"gsm8k": 0.2, "worked": 0.08, "dolly": 0.42, "csqa": 0.06, "mbpp": 0.06, "passages": 0.18}
"""shares of the kinds of questions: sums, sums after worked ones, instructions, choices, code, texts to summarise"""


def training_prompts(data: Path, seed: int = 0, mix: Mapping[str, float] = MIX) -> Iterator[str]:
    """Yield questions without end, in an order of the seed alone.

    ``data``: a folder with ``gsm8k/train.jsonl``, ``dolly/dolly_train.json``, ``csqa/train_rand_split.jsonl``,
    ``mbpp/mbpp.jsonl`` (only its training split, problems 601 to 974), and in ``tinystories_sample`` the stories and
    the passages of WikiText's training split. Raises ``ModelUnavailable`` if one is missing.
    """
    shuffle = random.Random(seed)
    with named_if_missing():
        sources = {
            "gsm8k": _gsm8k(data),
            "worked": _worked(data, shuffle),
            "dolly": [instruction(row) for row in dolly(data)],
            "csqa": _csqa(data),
            "mbpp": [question for question, _ in mbpp(data)],
            "passages": _passages(data, shuffle),
        }
    return _endless(sources, mix, shuffle)


@contextmanager
def named_if_missing() -> Iterator[None]:
    """Raise ``ModelUnavailable``, which names the file, if a file of training questions is missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise ModelUnavailable(
            f"The file {error.filename} of training questions is missing: set FSD_DATA_DIR to the folder that has it."
        ) from None


def _endless(sources: Mapping[str, list[str]], mix: Mapping[str, float], shuffle: random.Random) -> Iterator[str]:
    decks: dict[str, list[str]] = {name: [] for name in sources}
    while True:
        (name,) = shuffle.choices(list(mix), list(mix.values()))
        if not decks[name]:
            decks[name] = shuffle.sample(sources[name], len(sources[name]))
        yield decks[name].pop()


def json_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def _gsm8k(data: Path) -> list[str]:
    return [row["question"] for row in json_lines(data / "gsm8k" / "train.jsonl")]


def _worked(data: Path, shuffle: random.Random) -> list[str]:
    """Return each problem after one to four others with their solutions."""
    rows = shuffle.sample(problems := json_lines(data / "gsm8k" / "train.jsonl"), len(problems))
    shots = [shuffle.randint(1, MOST_SHOTS) for _ in rows]
    return [
        after_examples(rows[max(0, i - count) : i], row["question"])
        for i, (count, row) in enumerate(zip(shots, rows, strict=True))
    ]


def _passages(data: Path, shuffle: random.Random) -> list[str]:
    """Return texts to summarise, and questions of Dolly about a text, which stands next to another one."""
    texts, questions = prose(data), []
    for row in dolly(data):
        if passage := row["input"].strip()[:1200]:
            passages = "\n\n".join(shuffle.sample([passage, shuffle.choice(texts)[:600]], 2))
            questions.append(f"{passages}\n\n{row['instruction'].strip()}")
    return [f"Summarize: {text[:1600]}" for text in texts] + questions


def prose(data: Path) -> list[str]:
    """Return stories, and passages of WikiText's training split."""
    return [
        text.strip()
        for name in ("tinystories", "wikitext")
        for text in json.loads((data / "tinystories_sample" / f"{name}_1000.json").read_text(encoding="utf-8"))
    ]


def dolly(data: Path) -> list[dict[str, Any]]:
    """Return rows with an ``instruction``, an ``input`` that may be empty, and an ``output``."""
    return json.loads((data / "dolly" / "dolly_train.json").read_text(encoding="utf-8"))


def instruction(row: dict[str, Any]) -> str:
    """Return the question of a row of Dolly."""
    return "\n\n".join(filter(None, (row["instruction"].strip(), row["input"].strip()[:1500])))


def _csqa(data: Path) -> list[str]:
    texts = []
    for row in json_lines(data / "csqa" / "train_rand_split.jsonl"):
        choices = "\n".join(f"{choice['label']}) {choice['text']}" for choice in row["question"]["choices"])
        texts.append(f"{row['question']['stem']}\n{choices}\nWhich one is right, and why?")
    return texts


def mbpp(data: Path) -> list[tuple[str, str]]:
    """Return the tasks of the training split and their programs."""
    rows = json_lines(data / "mbpp" / "mbpp.jsonl")
    return [(row.get("prompt") or row["text"], row["code"]) for row in rows if 601 <= row["task_id"] <= 974]
