"""The list in which runs are ticked for a comparison, by experiment, each named by what distinguishes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from dashboard.ui.templates import Html, render, script
from fsd_core.models.model_pairs import pair_title

if TYPE_CHECKING:
    from fsd_core.storage.records import RunName, RunView

    Offered = Sequence[RunName | RunView]

WITHOUT_EXPERIMENT = "Runs without an experiment"
LONGEST_WAIT = 400
"""milliseconds after the last tick until the page updates"""

PICK_RUNS = script("compare/pick_runs.js", WAIT=LONGEST_WAIT)


def picker_html(offered: Offered, selected: Sequence[str], list_id: str = "") -> Html:
    """Return the list, folded if something is selected. ``selected`` are ids. Ticks name the list by ``list_id``."""
    if not offered:
        return Html()
    ticked = set(selected)
    tasks = len({run.task for run in offered}) > 1
    groups = []
    for (name, created), group in groupby(offered, key=_group):
        runs = list(group)
        names, pairs = short_names(runs, tasks), {pair_title(run.pair) for run in runs}
        about = " · ".join([*([created] if created else []), *(pairs if len(pairs) == 1 else ())])
        groups.append((name, about, [(run, names[run.id], run.id in ticked) for run in runs]))
    return render("compare/picker.html", "picker", selected, groups, list_id)


def _group(run: RunName | RunView) -> tuple[str, str]:
    """Return the heading of a run's group. All runs of an experiment have the same creation time."""
    return (run.experiment_name, f"{run.created_at:%d %b %H:%M}") if run.experiment_name else (WITHOUT_EXPERIMENT, "")


def short_names(runs: Offered, tasks: bool) -> dict[str, str]:
    """Return names of a group's runs by id: the setting, and as much of pair, task, seed, time and id as distinguishes
    them."""
    pairs = len({run.pair for run in runs}) > 1
    names = {
        run.id: run.label + (f" · {pair_title(run.pair)}" if pairs else "") + (f" · {run.task}" if tasks else "")
        for run in runs
    }
    for extra in (
        lambda run: f"seed {run.seed}",
        lambda run: f"{run.created_at:%d %b %H:%M}",
        lambda run: run.id[:6],
    ):
        counts = Counter(names.values())
        names = {run.id: names[run.id] + (f" · {extra(run)}" if counts[names[run.id]] > 1 else "") for run in runs}
    return names
