"""Grouping, names and colours of the runs in a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd_core.config.model_names import called

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

# Mid-tones with a contrast of 3:1 on white and on the dark theme, distinct for the usual kinds of colour blindness.
# A family has its own marker too.
PALETTE = ("#0d9488", "#ea6a12", "#8b5cf6", "#db2777", "#65a30d", "#0891b2", "#c2410c", "#6366f1")


class Family(NamedTuple):
    """Runs that differ only in their rule's knob and the seed: one line of a figure."""

    name: str
    colour: str
    symbol: str
    runs: list[RunView]


def metrics(run: RunView) -> dict[str, Any]:
    """Return a run's metrics. Empty before it has any."""
    return run.metrics or {}


def interval(run: RunView, key: str) -> tuple[Any, Any, Any]:
    """Return the low end, value and high end of a metric.

    A metric without an interval, as for a single prompt, is its own ends. A missing metric is ``None`` throughout.
    """
    values = metrics(run)
    low, value, high = (values.get(key + end) for end in ("_low", "", "_high"))
    return (value if low is None else low), value, (value if high is None else high)


def measured(runs: Iterable[RunView]) -> list[RunView]:
    """Return the runs that have metrics."""
    return [run for run in runs if run.metrics]


def families(runs: Sequence[RunView]) -> list[Family]:
    """Group the runs into lines, in the order of first appearance. Each line is sorted by threshold, then seed."""
    groups: dict[tuple, list[RunView]] = {}
    for run in runs:
        groups.setdefault((run.pair, run.task, run.decoding.without_knob()), []).append(run)
    shared_prefix = len({(run.pair, run.task) for run in runs}) < 2
    names = Counter(run[0].decoding.line for run in groups.values())
    lines, colours, used = [], iter(PALETTE * (len(groups) // len(PALETTE) + 1)), set()
    for (pair, task, bare), members in groups.items():
        rule = bare.acceptance
        colour = rule.colour
        if colour is None or colour in used:
            colour = next(colours)
        used.add(colour)
        name = bare.line
        if not shared_prefix or names[bare.line] > 1:
            name = f"{called(pair)} · {task} · {name}"
        ordered = sorted(
            members, key=lambda run: (run.decoding.threshold is None, run.decoding.threshold or 0, run.seed)
        )
        lines.append(Family(name, colour, rule.symbol, ordered))
    return _numbered(lines)


def run_names(runs: Sequence[RunView]) -> dict[str, str]:
    """Return a name for each run, by id, as short as distinguishes these runs.

    It is the label, with pair, task, load, seed and id as needed.
    """
    names = {run.id: run.label for run in runs}
    for prefix in (
        lambda run: f"{called(run.pair)} · " if len({r.pair for r in runs}) > 1 else "",
        lambda run: f"{run.task} · " if len({r.task for r in runs}) > 1 else "",
    ):
        names = {run.id: prefix(run) + names[run.id] for run in runs}
    suffixes = [lambda run: f"seed {run.seed}", lambda run: f"{run.prompts_total} prompts", lambda run: run.id[:6]]
    if len({run.config.load for run in runs}) > 1:
        suffixes.insert(0, lambda run: run.config.load_text)
    for suffix in suffixes:
        count = Counter(names.values())
        names = {run.id: names[run.id] + (f" · {suffix(run)}" if count[names[run.id]] > 1 else "") for run in runs}
    return names


def _numbered(lines: list[Family]) -> list[Family]:
    """Number the families that differ only in what a label leaves out, such as top-p."""
    count, seen = Counter(family.name for family in lines), Counter[str]()
    numbered = []
    for family in lines:
        seen[family.name] += 1
        suffix = f" ({seen[family.name]})" if count[family.name] > 1 else ""
        numbered.append(family._replace(name=family.name + suffix))
    return numbered
