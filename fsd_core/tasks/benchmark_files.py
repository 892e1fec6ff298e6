"""The files of benchmarks: where the hub has them, and how their records are read and written."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fsd_core.errors import UnfitTask
from fsd_core.settings import get_settings


@dataclass(frozen=True)
class Split:
    """One split of a Hugging Face dataset, and the file of a task that is made from it."""

    file: str
    """Below the data folder. With ``<subject>`` in its name, there is one file for each ``subject`` of the rows."""
    repo: str
    licence: str
    """as stated by the dataset's authors"""
    name: str | None
    split: str
    text: Callable[[Iterable[dict[str, Any]]], str]
    """rows → the file's content, as the benchmark's authors publish it"""
    files: int = 1
    """number of files, if its name has ``<subject>``"""


@dataclass(frozen=True)
class HubFile:
    """A file of a Hugging Face dataset that is a file of a task as it is."""

    file: str
    """below the data folder"""
    repo: str
    licence: str
    """as stated by the dataset's authors"""
    path: str
    """within the dataset"""
    revision: str
    """the commit"""
    size: int
    """bytes"""
    sha256: str


def as_lines(records: Iterable[Any]) -> str:
    """Return records as JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


def as_table(records: Iterable[Sequence[str]]) -> str:
    """Return records as CSV, without adding a header."""
    written = io.StringIO()
    csv.writer(written).writerows(records)
    return written.getvalue()


def rows(file: str) -> list[Any]:
    """Return the records of a benchmark file: JSON, JSON lines (also gzipped), Parquet, or CSV without a header.

    Raises ``InvalidSetting`` if it is missing or cannot be read.
    """
    return list(_rows(get_settings().data_folder / file, file))


@cache
def _rows(path: Path, file: str) -> tuple[Any, ...]:
    try:
        if path.suffix == ".parquet":
            return _table_rows(path)
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as stream:
            if path.suffix == ".csv":
                return tuple(csv.reader(stream))
            if path.suffix == ".json":
                return tuple(json.load(stream))
            return tuple(json.loads(line) for line in stream if line.strip())
    except FileNotFoundError:
        raise UnfitTask(
            f"The file {file} is not in {path.parents[file.count('/')]}: put the benchmark's own file there, or set "
            "FSD_DATA_DIR to the folder that has it. `python -m fsd_core tasks` lists all that are wanted, `fetch` "
            "gets some of them, and docs/benchmarks.md says where the others are."
        ) from None
    except (OSError, ValueError, csv.Error) as error:  # pyarrow's errors are among them
        raise UnfitTask(
            f"The benchmark file {path} cannot be read ({type(error).__name__}): fetch it again from its authors."
        ) from error


def _table_rows(path: Path) -> tuple[Any, ...]:
    from pyarrow import parquet  # slow to import, and few tasks need it

    with path.open("rb") as stream:
        return tuple(parquet.read_table(stream).to_pylist())
