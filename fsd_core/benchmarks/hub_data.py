"""Fetches a task's questions from the Hugging Face hub, into the files that its authors publish.

The tasks read those files and nothing else, so that a question has one form wherever it came from.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsd_core.benchmarks.tasks import Task
from fsd_core.benchmarks.tasks.choices import LETTERS, SUBJECTS
from fsd_core.errors import InvalidSetting, ModelUnavailable, UnknownName

Row = dict[str, Any]


@dataclass(frozen=True)
class Split:
    """One split of a dataset of the hub, and the file that it becomes; with ``<subject>`` in its name, one for each."""

    file: str
    repo: str
    licence: str
    name: str | None
    split: str
    text: Callable[[Iterable[Row]], str]
    """rows → the file's content"""


def _lines(rows: Iterable[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _csqa(rows: Iterable[Row]) -> str:
    return _lines(
        {
            "answerKey": row["answerKey"],
            "id": row["id"],
            "question": {
                "question_concept": row["question_concept"],
                "choices": [
                    {"label": label, "text": text}
                    for label, text in zip(row["choices"]["label"], row["choices"]["text"], strict=True)
                ],
                "stem": row["question"],
            },
        }
        for row in rows
    )


def _table(rows: Iterable[list[str]]) -> str:
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue()


def _truthfulqa(rows: Iterable[Row]) -> str:
    head = ["Type", "Category", "Question", "Best Answer", "Correct Answers", "Incorrect Answers", "Source"]
    body = (
        [
            row["type"], row["category"], row["question"], row["best_answer"], "; ".join(row["correct_answers"]),
            "; ".join(row["incorrect_answers"]), row["source"],
        ]
        for row in rows
    )  # fmt: skip
    return _table([head, *body])


def _mmlu(rows: Iterable[Row]) -> str:
    return _table([row["question"], *row["choices"], LETTERS[row["answer"]]] for row in rows)


# Datasets with the licences that their authors give them.
GSM8K, CSQA = ("openai/gsm8k", "MIT"), ("tau/commonsense_qa", "MIT")
HUMANEVAL, MBPP = ("openai/openai_humaneval", "MIT"), ("google-research-datasets/mbpp", "CC BY 4.0")
MMLU, TRUTHFULQA = ("cais/mmlu", "MIT"), ("truthfulqa/truthful_qa", "Apache 2.0")
SPLITS: dict[str, tuple[Split, ...]] = {
    "gsm8k": tuple(Split(f"gsm8k/{split}.jsonl", *GSM8K, "main", split, _lines) for split in ("test", "train")),
    "csqa": (
        Split("csqa/dev_rand_split.jsonl", *CSQA, None, "validation", _csqa),
        Split("csqa/train_rand_split.jsonl", *CSQA, None, "train", _csqa),
    ),
    "humaneval": (Split("humaneval/HumanEval.jsonl.gz", *HUMANEVAL, None, "test", _lines),),
    "mbpp": (Split("mbpp/mbpp.jsonl", *MBPP, "full", "prompt+test+validation+train", _lines),),
    "mmlu": tuple(Split(f"mmlu/<subject>_{split}.csv", *MMLU, "all", split, _mmlu) for split in ("dev", "test")),
    "truthfulqa": (Split("truthfulqa/TruthfulQA.csv", *TRUTHFULQA, "generation", "validation", _truthfulqa),),
}


OnFile = Callable[[str, int, int], None]
"""Told before each file what is fetched, how many files are here and how many there will be; may stop it by raising."""
_HUB_PATIENCE = 5  # seconds to wait for the hub's first answer


def fetchable(task: Task) -> bool:
    """Whether the hub has the files that are missing of a task which this machine can score."""
    return task.name in SPLITS and not task.has_files and task.possible


def origin(task: str) -> tuple[str, str]:
    """Where the files of a task come from, and their licence. Raises ``UnknownName`` as :func:`fetch` does."""
    first = _splits(task)[0]
    return f"https://huggingface.co/datasets/{first.repo}", first.licence


def fetch(task: str, folder: Path, on_file: OnFile = lambda what, done, total: None) -> list[Path]:
    """Fetches what is missing of a task's files below ``folder``; returns what was written.

    Each file appears whole or not at all, with where it came from in the SOURCE.txt beside it. Raises ``UnknownName``
    for a task that the hub does not have in this form, ``ModelUnavailable`` if the hub does not answer,
    ``InvalidSetting`` if the folder cannot be written to.
    """
    missing = [split for split in _splits(task) if len(list(folder.glob(_pattern(split)))) < _count(split)]
    written: list[Path] = []
    for done, split in enumerate(missing):
        on_file(f"{split.file} of {split.repo}", done, len(missing))
        written += _fetch(split, folder)
    return written


def _splits(task: str) -> tuple[Split, ...]:
    if task not in SPLITS:
        raise UnknownName(
            f"'{task}' cannot be fetched: expected one of {', '.join(SPLITS)}. The files of other tasks come from "
            "their authors; `tasks` lists them."
        )
    return SPLITS[task]


def _ask(repo: str) -> None:
    """Raises at once where the hub does not answer, which the library tries again for half a minute."""
    from huggingface_hub import HfApi

    HfApi().dataset_info(repo, timeout=_HUB_PATIENCE)


def _pattern(split: Split) -> str:
    return split.file.replace("<subject>", "*")


def _count(split: Split) -> int:
    return SUBJECTS if "<subject>" in split.file else 1


def _fetch(split: Split, folder: Path) -> list[Path]:
    import datasets

    datasets.disable_progress_bars()
    try:
        if not Path(split.repo).exists():
            _ask(split.repo)
        dataset: Any = datasets.load_dataset(split.repo, split.name, split=split.split)
        by_file: dict[str, list[Row]] = {}
        for row in dataset:
            by_file.setdefault(split.file.replace("<subject>", row.get("subject", "")), []).append(row)
        texts = {folder / file: split.text(rows) for file, rows in by_file.items()}
    except Exception as error:  # the hub, a proxy, a file that is not what it was
        raise ModelUnavailable(
            f"The dataset {split.repo} could not be fetched from the Hugging Face hub ({type(error).__name__}): check "
            f"the network, or put {split.file} into {folder}."
        ) from error
    first = folder / split.file
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            partial = path.with_name(f"{path.name}.part")
            with (gzip.open if path.suffix == ".gz" else open)(partial, "wt", encoding="utf-8", newline="") as stream:
                stream.write(text)
            partial.replace(path)
        with (first.parent / "SOURCE.txt").open("a", encoding="utf-8") as about:
            where = " ".join(filter(None, (split.repo, split.name, split.split)))
            about.write(f"{first.name}: https://huggingface.co/datasets/{where}, fingerprint {dataset._fingerprint}\n")
    except OSError as error:
        raise InvalidSetting(
            f"{first} cannot be written ({error.strerror}): set FSD_DATA_DIR to a folder that can."
        ) from error
    return list(texts)
