"""Custom tasks, from files."""

from __future__ import annotations

from pathlib import Path

from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.lookup import checked_name, suggested_name
from fsd_core.tasks.custom.reading import check, read_file


def load_task(path: str | Path, scorer: str | None = None, name: str | None = None, title: str = "") -> CustomTask:
    """Return the task of a JSON Lines file, for ``compare`` and ``sweep``. Nothing is stored.

    Args:
        path: The file; docs/benchmarks.md has its format.
        scorer: ``number``, ``choice``, ``exact``, ``contains``, ``regex`` or ``none``. ``None`` takes the one in
            the file's first line.
        name: ``None`` derives it from the file's name.
        title: Displayed title. Empty takes the one in the file's first line.

    Raises:
        InvalidSetting: The file has a problem, with its line (``fsd-lab task check`` lists all), or the name cannot be
            used.

    >>> import fsd_core, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "sums.jsonl"
    >>> _ = file.write_text('{"prompt": "What is 2 + 3?", "reference": 5}')
    >>> fsd_core.load_task(file, scorer="number").name
    'sums@98192fd31a8ecfc5'
    """
    path = Path(path)
    checked = check(read_file(path), scorer)
    checked.require(str(path))
    return CustomTask.of(checked_name(suggested_name(path.stem) if name is None else name), checked, title)
