"""The settings of runs as a table of texts, with one column per field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd_core.config.flat import settings_read
from fsd_core.config.options import OPTIONS

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

OPTION_TITLES = {option.key: option.title for option in OPTIONS.values()}
NOT_SET = "–"


class SettingsTable(NamedTuple):
    """``rows`` has one list per run, one text per column. ``hidden`` counts columns that are equal throughout."""

    columns: list[str]
    rows: list[list[str]]
    hidden: int


def settings_table(runs: Sequence[RunView], differences_only: bool) -> SettingsTable:
    """Return every setting of the runs, or only those in which they differ."""
    flat = [settings_read(run.config) for run in runs]
    keys = [key for key in OPTION_TITLES if any(key in values for values in flat)]
    keys += sorted({key for values in flat for key in values} - set(keys))
    if differences_only and len(runs) > 1:
        columns = [key for key in keys if len({value_text(values.get(key)) for values in flat}) > 1]
    else:
        columns = keys
    rows = [[value_text(values.get(key)) for key in columns] for values in flat]
    return SettingsTable([OPTION_TITLES.get(key, key) for key in columns], rows, len(keys) - len(columns))


def value_text(value: Any) -> str:
    """Return a setting's value as text."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
