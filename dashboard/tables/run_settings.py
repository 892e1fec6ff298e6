"""The settings of runs as a table: one column per field, told in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd_core.config import TOP_K

if TYPE_CHECKING:
    from fsd_core.tracking.records import RunView

TITLES = {
    "setting.pair": "Model pair",
    "setting.decoding.acceptance.kind": "Rule",
    "setting.decoding.acceptance.divergence": "Divergence",
    "setting.decoding.acceptance.threshold": "Threshold",
    "setting.decoding.acceptance.divergence_top_k": "Divergence over top",
    "setting.decoding.acceptance.guard": "Guard",
    "setting.decoding.drafter.kind": "Drafter",
    "setting.decoding.drafter.max_ngram": "Longest n-gram",
    "setting.decoding.topology.kind": "Draft shape",
    "setting.decoding.topology.length": "Draft length γ",
    "setting.decoding.topology.drafts": "Drafts per position",
    "setting.decoding.topology.top_k": "Tree width",
    "setting.decoding.topology.total_tokens": "Tree tokens",
    "setting.decoding.sampling.temperature": "Temperature",
    "setting.decoding.sampling.top_k": "Top-k",
    "setting.decoding.sampling.top_p": "Top-p",
    "setting.decoding.max_new_tokens": "Longest answer",
    "task": "Task",
    "limit": "Prompts",
    "seed": "Seed",
    "dtype": "Number format",
    "device": "Device",
    "batch": "Side by side",
}
NOT_SET = "–"
_DIVERGENCE_TOP_K = "setting.decoding.acceptance.divergence_top_k"


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
    if not reads_top_k(run.decoding.divergence):
        flat.pop(_DIVERGENCE_TOP_K, None)
    return flat


def reads_top_k(divergence: str | None) -> bool:
    """Whether a divergence is taken over the target's likeliest tokens alone, and so reads how many those are."""
    return divergence is not None and divergence.startswith(TOP_K)


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level with dotted names; what a setting does without is left out."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif value is not None or key == "threshold":
            flat[prefix + key] = "off" if value is None else value
    return flat


def told(value: Any) -> str:
    """A setting's value as text."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
