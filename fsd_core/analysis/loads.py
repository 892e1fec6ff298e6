"""Settings over the load: how fast each is when so many prompts are asked at once, and where speculation stops paying.

The load of a running engine is how many prompts it is asked at once, or how many arrive in a second. That of our own
loop is the batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.analysis.cells import ratio_mixed, throughput_ratio
from fsd_core.analysis.series import measured, metrics, run_names
from fsd_core.conditions import listed
from fsd_core.rules import Served

if TYPE_CHECKING:
    from fsd_core.statistics.intervals import Estimate
    from fsd_core.storage.records import Prompts, RunView


class LoadPoint(NamedTuple):
    """A setting under one load."""

    load: float
    """prompts at once, or prompts that arrive in a second"""
    run: RunView
    ratio: Estimate | None
    """tokens per second over those of the baseline's setting under the same load, on the prompts that both have done"""
    left_out: str
    """why the ratio says nothing; empty if it does"""

    @property
    def verdict(self) -> int | None:
        """+1 if the interval of the ratio is above 1, -1 if it is below, 0 for neither; ``None``: not known."""
        if self.left_out or self.ratio is None or self.ratio.low is None or self.ratio.high is None:
            return None
        return (self.ratio.low > 1) - (self.ratio.high < 1)


class LoadLine(NamedTuple):
    """One setting over the load, lowest first."""

    name: str
    is_baseline: bool
    points: list[LoadPoint]

    @property
    def first(self) -> RunView:
        return self.points[0].run

    @property
    def by_rate(self) -> bool:
        """Whether the load is how many prompts arrive in a second, and not how many are asked at once."""
        return bool(self.first.config.rate)


def load_lines(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> list[LoadLine]:
    """Return the settings that were measured under two loads of a kind or more; empty if there are none."""
    groups: dict[tuple, dict[float, RunView]] = {}
    for run in measured(runs):
        groups.setdefault(_line(run), {}).setdefault(_load(run), run)
    groups = {line: by_load for line, by_load in groups.items() if len(by_load) > 1}
    names = run_names([next(iter(by_load.values())) for by_load in groups.values()])
    lines = []
    for line, by_load in groups.items():
        alone = {_load(baseline): baseline} if baseline and _kind(baseline) == line[-1] else {}
        pinned = groups.get(_like(line, baseline), alone) if baseline else {}
        points = [_point(load, by_load[load], pinned.get(load), prompts) for load in sorted(by_load)]
        name = names[next(iter(by_load.values())).id]
        lines.append(LoadLine(name, baseline is not None and line == _like(line, baseline), points))
    return lines


def load_sentences(lines: Sequence[LoadLine]) -> list[str]:
    """Return under which loads each setting is faster than the baseline, and where speculation stops paying."""
    of_kinds = ([line for line in lines if line.by_rate == by_rate] for by_rate in (False, True))
    return [sentence for some in of_kinds for sentence in _sentences(some)]


def _sentences(lines: Sequence[LoadLine]) -> list[str]:
    base = next((line for line in lines if line.is_baseline), None)
    if base is None:
        return ["The baseline was measured under one load alone: choose one that was measured under several."][
            : len(lines)
        ]
    sentences = [_sentence(line, base) for line in lines if not line.is_baseline]
    reasons = dict.fromkeys(point.left_out for line in lines for point in line.points if point.left_out)
    return [*filter(None, sentences), *reasons]


def _line(run: RunView) -> tuple:
    return run.pair, run.task, run.setting_id, run.seed, _kind(run)


def _like(line: tuple, run: RunView) -> tuple:
    """Return the line of a run's setting under loads of the same kind as those of another line."""
    return *_line(run)[:-1], line[-1]


def _kind(run: RunView) -> int:
    """Return the common limit of a line's loads: how many may be open where prompts arrive at a rate, else 0."""
    return run.config.batch if run.config.rate else 0


def _load(run: RunView) -> float:
    return run.config.rate or run.config.batch


def _point(load: float, run: RunView, baseline: RunView | None, prompts: Prompts) -> LoadPoint:
    if baseline is None or baseline.id == run.id:
        return LoadPoint(load, run, None, "")
    busy = [side for side in (run, baseline) if (metrics(side).get("engine") or {}).get("other_traffic") is True]
    varying = [name for name in ratio_mixed(run, baseline) if name != "engine"]
    left_out = ""
    if busy:
        left_out = f"{busy[0].label} at {run.config.load_text} wrote for others meanwhile, so it is not compared."
    elif varying:
        left_out = f"{run.label} at {run.config.load_text} was measured under other conditions ({listed(varying)})."
    return LoadPoint(load, run, throughput_ratio(run, baseline, prompts), left_out)


def drafts(run: RunView) -> bool:
    """Whether speculation wrote the texts: by the setting, or by what the engine counted."""
    if isinstance(run.decoding.acceptance, Served):
        return metrics(run).get("acceptance_rate") is not None
    return run.decoding.drafter is not None


def _engine(run: RunView) -> str:
    """Return the name of the engine, such as ``vLLM 0.32.0``; empty for our own loop."""
    if not isinstance(run.decoding.acceptance, Served):
        return ""
    return str((run.provenance or {}).get("engine") or run.decoding.acceptance.engine)


def _sentence(line: LoadLine, base: LoadLine) -> str:
    known = {point.load: point.verdict for point in line.points if point.verdict is not None}
    if not known:
        return ""
    loads, each = list(known), "a second" if line.by_rate else "at once"
    faster, slower = ([load for load in loads if known[load] == sign] for sign in (1, -1))
    pays = drafts(line.first) and not drafts(base.first) and _engine(line.first) == _engine(base.first)
    more = f"{line.name} writes more tokens per second than {base.name}"
    end, until = "", f"from {loads[0]:g} to {loads[-1]:g} {each}"
    if faster == loads:
        text, end = f"{more} under every load, {until}", f"speculation still pays at {loads[-1]:g}"
    elif not faster:
        text, end = f"{more} under no load, {until}", "speculation does not pay here"
    elif faster == loads[: len(faster)]:
        last, following = faster[-1], loads[len(faster)]
        text = f"{more} at {_numbers(faster)} {each}, and at {following:g} no longer beyond chance"
        end = f"speculation stops paying between {last:g} and {following:g}"
    else:
        text = f"{more} at {_numbers(faster)} {each}, and not at the other loads"
    if slower and faster:
        text += f" (at {_numbers(slower)} it is slower)"
    elif slower:
        text += f", and is slower at {_numbers(slower)}"
    return f"{text}: {end}." if pays and end else f"{text}."


def _numbers(loads: Sequence[float]) -> str:
    return listed([f"{load:g}" for load in loads])
