"""Downloads a task's questions from the Hugging Face hub into the files that its authors publish.

The tasks read only those files, so that a question has one form wherever it came from.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsd_core.errors import InvalidSetting, ModelUnavailable, UnknownName
from fsd_core.tasks import TASKS, Split, Task

OnFile = Callable[[str, int, int], None]
"""Called before each file with its name, the number of files done and the total. May stop the download by raising."""
_HUB_PATIENCE = 5  # seconds to wait for the hub's first answer


def fetchable(task: Task) -> bool:
    """Return whether the hub has the missing files of a task that this machine can score."""
    return bool(task.hub) and not task.has_files and task.possible


def origin(task: str) -> tuple[str, str]:
    """Return the address of the files of a task, and their licence. Raises ``UnknownName`` as :func:`fetch` does."""
    first = _splits(task)[0]
    return f"https://huggingface.co/datasets/{first.repo}", first.licence


def fetch(task: str, folder: Path, on_file: OnFile = lambda what, done, total: None) -> list[Path]:
    """Download the missing files of a task below ``folder`` and return the paths written.

    Each file appears completely or not at all, and the SOURCE.txt next to it names its source. Raises ``UnknownName``
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
    names = [name for name, candidate in TASKS.items() if candidate.hub]
    if task not in names:
        if task in TASKS and TASKS[task].available:
            raise UnknownName(f"Nothing of '{task}' is missing: it can be run as it is.")
        raise UnknownName(
            f"'{task}' cannot be fetched: expected one of {', '.join(names)}. The files of other tasks come from "
            "their authors; `tasks` lists them."
        )
    return TASKS[task].hub


def _check_hub(repo: str) -> None:
    """Raise at once if the hub does not answer, because the library would retry for half a minute.

    A local folder needs no hub, and neither does offline mode, which uses only the hub's cache.
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
        _check_hub(split.repo)
        dataset: Any = datasets.load_dataset(split.repo, split.name, split=split.split)
        by_file: dict[str, list[dict[str, Any]]] = {}
        for row in dataset:
            by_file.setdefault(split.file.replace("<subject>", row.get("subject", "")), []).append(row)
        texts = {folder / file: split.text(rows) for file, rows in by_file.items()}
    except Exception as error:  # the hub, a proxy, a file that has changed
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
        with (first.parent / "SOURCE.txt").open("a", encoding="utf-8") as source_file:
            source = " ".join(filter(None, (split.repo, split.name, split.split)))
            source_file.write(
                f"{first.name}: https://huggingface.co/datasets/{source}, fingerprint {dataset._fingerprint}\n"
            )
    except OSError as error:
        raise InvalidSetting(
            f"{first} cannot be written ({error.strerror}): set FSD_DATA_DIR to a folder that can."
        ) from error
    return list(texts)
