"""Fetches a task's questions from the Hugging Face hub, as the task says, into the files that its authors publish.

The tasks read those files and nothing else, so that a question has one form wherever it came from.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsd_core.errors import InvalidSetting, ModelUnavailable, UnknownName
from fsd_core.tasks import TASKS, Split, Task

OnFile = Callable[[str, int, int], None]
"""Told before each file what is fetched, how many files are here and how many there will be; may stop it by raising."""
_HUB_PATIENCE = 5  # seconds to wait for the hub's first answer


def fetchable(task: Task) -> bool:
    """Whether the hub has the files that are missing of a task which this machine can score."""
    return bool(task.hub) and not task.has_files and task.possible


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
    missing = [split for split in _splits(task) if len(list(folder.glob(_pattern(split)))) < split.files]
    written: list[Path] = []
    for done, split in enumerate(missing):
        on_file(f"{split.file} of {split.repo}", done, len(missing))
        written += _fetch(split, folder)
    return written


def _splits(task: str) -> tuple[Split, ...]:
    known = [name for name, some in TASKS.items() if some.hub]
    if task not in known:
        if task in TASKS and TASKS[task].available:
            raise UnknownName(f"Nothing of '{task}' is missing: it can be run as it is.")
        raise UnknownName(
            f"'{task}' cannot be fetched: expected one of {', '.join(known)}. The files of other tasks come from "
            "their authors; `tasks` lists them."
        )
    return TASKS[task].hub


def _ask(repo: str) -> None:
    """Raises at once where the hub does not answer, which the library tries again for half a minute.

    A folder is not asked for, and neither is anything where people have said that the hub's cache is all there is.
    """
    from huggingface_hub import HfApi, constants

    if not (Path(repo).exists() or constants.HF_HUB_OFFLINE):
        HfApi().dataset_info(repo, timeout=_HUB_PATIENCE)


def _pattern(split: Split) -> str:
    return split.file.replace("<subject>", "*")


def _fetch(split: Split, folder: Path) -> list[Path]:
    import datasets

    datasets.disable_progress_bars()
    try:
        _ask(split.repo)
        dataset: Any = datasets.load_dataset(split.repo, split.name, split=split.split)
        by_file: dict[str, list[dict[str, Any]]] = {}
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
