"""Custom tasks, from files."""

from __future__ import annotations

from pathlib import Path

from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.lookup import checked_name, suggested_name
from fsd_core.tasks.custom.reading import check, read_file
from fsd_core.tasks.custom.shapes import FieldNames
from fsd_core.tasks.custom.similar import grouped


def load_task(
    path: str | Path,
    scorer: str | None = None,
    name: str | None = None,
    title: str = "",
    *,
    prompt_field: str = "",
    reference_field: str = "",
    id_field: str = "",
    all_turns: bool = False,
    group_similar: bool = False,
) -> CustomTask:
    """Return the task of a file of JSON Lines, JSON or Parquet, for ``compare`` and ``sweep``. Nothing is stored.

    Args:
        path: The file; docs/benchmarks.md has its format.
        scorer: ``number``, ``choice``, ``exact``, ``contains``, ``regex`` or ``none``. ``None`` takes the one in
            the file's first line.
        name: ``None`` derives it from the file's name.
        title: Displayed title. Empty takes the one in the file's first line.
        prompt_field: Field that holds the prompt or the conversation. Empty takes the usual one.
        reference_field: Field that holds what is right. Empty takes ``reference``.
        id_field: Field that holds the name of a line. Empty takes ``id``.
        all_turns: Whether the user turns of conversations are asked one after another, behind what the setting wrote.
        group_similar: Whether near-duplicates are made groups. Prompts of a group depend on each other, so the group
            counts once in intervals and promises.

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
    checked = check(read_file(path), scorer, FieldNames(prompt_field, reference_field, id_field), all_turns=all_turns)
    checked.require(str(path))
    checked = grouped(checked) if group_similar else checked
    return CustomTask.of(checked_name(suggested_name(path.name) if name is None else name), checked, title)
