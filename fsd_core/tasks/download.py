"""Downloads a task's questions from the Hugging Face hub into the files that its authors publish.

The tasks read only those files, so that a question has one form wherever it came from.
"""

from __future__ import annotations

import errno
import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsd_core.errors import ModelUnavailable, UnknownName, Unwritable
from fsd_core.models.hub_files import NO_ROOM, OfferedFile, fetch_whole, name_whole, partial_of
from fsd_core.system import whole_file
from fsd_core.tasks import TASKS, HubFile, Split, Task

OnFile = Callable[[str, int, int], None]
"""Called before each file with its name, the number of files done and the total. May stop the download by raising."""
OnSize = Callable[[int, int], None]
"""Called while a large file arrives, with the bytes of it that are here and its size. May stop the download by
raising."""
_HUB_PATIENCE = 5  # seconds to wait for the hub's first answer


def fetchable(task: Task) -> bool:
    """Return whether the hub has the missing files of a task that this machine can score."""
    return bool(task.hub) and not task.has_files and task.possible


def origin(task: str) -> tuple[str, str]:
    """Return the address of the files of a task, and their licence. Raises ``UnknownName`` as :func:`fetch` does."""
    first = _sources(task)[0]
    return f"https://huggingface.co/datasets/{first.repo}", first.licence


def fetch(
    task: str,
    folder: Path,
    on_file: OnFile = lambda what, done, total: None,
    on_size: OnSize = lambda done, size: None,
) -> list[Path]:
    """Download the missing files of a task below ``folder`` and return the paths written.

    Each file appears completely or not at all, and the SOURCE.txt next to it names its source. What has arrived of a
    large file is kept if the download stops, and the next one goes on there. Raises ``UnknownName`` for a task that
    the hub does not have in this form, ``ModelUnavailable`` if the hub does not answer, ``InvalidSetting`` if the
    folder cannot be written to.
    """
    missing = [source for source in _sources(task) if not _is_there(source, folder)]
    written: list[Path] = []
    for done, source in enumerate(missing):
        on_file(f"{source.file} of {source.repo}", done, len(missing))
        written += [_copied(source, folder, on_size)] if isinstance(source, HubFile) else _made(source, folder)
    return written


def missing_bytes(task: Task, folder: Path) -> int:
    """Return how much of a task would be downloaded, as far as that is known."""
    files = (source for source in task.hub if isinstance(source, HubFile))
    return sum(file.size for file in files if not _is_there(file, folder))


def _is_there(source: Split | HubFile, folder: Path) -> bool:
    if isinstance(source, HubFile):
        return (folder / source.file).exists()
    return len(list(folder.glob(source.file.replace("<subject>", "*")))) >= source.files


def _sources(task: str) -> tuple[Split | HubFile, ...]:
    if task not in TASKS or not TASKS[task].hub:
        names = [name for name, candidate in TASKS.items() if candidate.hub]
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


def _copied(source: HubFile, folder: Path, on_size: OnSize) -> Path:
    """Download a file as it is, and go on where an earlier download of it stopped."""
    path = folder / source.file
    partial = partial_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        missing = source.size - (partial.stat().st_size if partial.exists() else 0)
        if (free := shutil.disk_usage(path.parent).free) < missing:
            raise OSError(errno.ENOSPC, f"{free / 1e9:.1f} GB are left and {missing / 1e9:.1f} GB are needed")
        _arrive(source, folder, path, lambda done: on_size(done, source.size))
        with (path.parent / "SOURCE.txt").open("a", encoding="utf-8") as source_file:
            where = f"https://huggingface.co/datasets/{source.repo}, commit {source.revision}"
            source_file.write(f"{path.name}: {where}, SHA-256 {source.sha256}\n")
    except ModelUnavailable:  # an OSError too
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            partial.unlink(missing_ok=True)  # the database needs the room
        raise _unwritable(path, error) from error
    return path


def _arrive(source: HubFile, folder: Path, path: Path, on_bytes: Callable[[int], None]) -> None:
    """Fetch a file to ``path``. Raises ``ModelUnavailable``, and ``OSError`` if it cannot be written."""
    from huggingface_hub import hf_hub_url

    file = OfferedFile(path.name, source.size, source.sha256, None)
    if Path(source.repo).exists():
        shutil.copy(Path(source.repo) / source.path, partial_of(path))
        name_whole(source.repo, file, path)
        return
    try:
        _check_hub(source.repo)
    except Exception as error:  # the hub or a proxy
        raise _unreachable(source, folder, error) from error
    url = hf_hub_url(source.repo, source.path, repo_type="dataset", revision=source.revision)
    try:
        fetch_whole(url, source.repo, file, path, on_bytes)
    except ModelUnavailable:
        raise
    except OSError as error:
        if error.errno is not None:  # of the disk
            raise
        raise _unreachable(source, folder, error) from error


def _unreachable(source: Split | HubFile, folder: Path, error: Exception) -> ModelUnavailable:
    return ModelUnavailable(
        f"The dataset {source.repo} could not be fetched from the Hugging Face hub ({type(error).__name__}): check "
        f"the network, or put {source.file} into {folder}."
    )


def _unwritable(path: Path, error: OSError) -> Unwritable:
    return Unwritable(
        f"{path} cannot be written ({error.strerror}): set FSD_DATA_DIR to a folder that can, and has room for it."
    )


def _made(split: Split, folder: Path) -> list[Path]:
    """Download a split and write the files that it makes."""
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
        raise _unreachable(split, folder, error) from error
    first = folder / split.file
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            opener = gzip.open if path.suffix == ".gz" else open
            with whole_file(path) as partial, opener(partial, "wt", encoding="utf-8", newline="") as stream:
                stream.write(text)
        with (first.parent / "SOURCE.txt").open("a", encoding="utf-8") as source_file:
            source = " ".join(filter(None, (split.repo, split.name, split.split)))
            source_file.write(
                f"{first.name}: https://huggingface.co/datasets/{source}, fingerprint {dataset._fingerprint}\n"
            )
    except OSError as error:
        raise _unwritable(first, error) from error
    return list(texts)
