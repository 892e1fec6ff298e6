"""The settings of runs as a table: one column per field, told in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd_core.config.building import reads
from fsd_core.config.options import BY_KEY, OPTIONS
from fsd_core.rules import MissingRule

if TYPE_CHECKING:
    from fsd_core.tracking.records import RunView

TITLES = {option.key: option.title for option in OPTIONS.values()}
_CAN_BE_OFF = {option.field for option in OPTIONS.values() if option.is_knob and option.optional}
NOT_SET = "–"


class SettingsTable(NamedTuple):
    """``rows`` has one list per run, one text per column; ``hidden`` counts columns that are equal throughout."""

    columns: list[str]
    rows: list[list[str]]
    hidden: int


def settings_table(runs: Sequence[RunView], differences_only: bool) -> SettingsTable:
    """Every setting of the runs, or only those in which they differ."""
    flat = [settings_read(run) for run in runs]
    keys = [key for key in TITLES if any(key in values for values in flat)]
    keys += sorted({key for values in flat for key in values} - set(keys))
    if differences_only and len(runs) > 1:
        shown = [key for key in keys if len({told(values.get(key)) for values in flat}) > 1]
    else:
        shown = keys
    rows = [[told(values.get(key)) for key in shown] for values in flat]
    return SettingsTable([TITLES.get(key, key) for key in shown], rows, len(keys) - len(shown))


def settings_read(run: RunView) -> dict[str, Any]:
    """The settings of a run by dotted name, without those that nothing in it reads: they make no difference."""
    flat = flatten(run.config.as_json())
    if isinstance(run.decoding.acceptance, MissingRule):
        return flat
    chosen = {option.name: flat[key] for key, option in BY_KEY.items() if option.choices and key in flat}
    unread = [key for key, option in BY_KEY.items() if option.needs and not reads(option, chosen)]
    return {key: value for key, value in flat.items() if key not in unread}


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level with dotted names; what a setting does without is left out."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif value is not None or key in _CAN_BE_OFF:
            flat[prefix + key] = "off" if value is None else value
    return flat


def told(value: Any) -> str:
    """A setting's value as text."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
