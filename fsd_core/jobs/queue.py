"""What the pages say about waiting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fsd_core.tracking.records import ExperimentView


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one run is."""

    setting: str
    """which setting it measures: runs of one setting take alike long for a prompt"""
    done: int
    """prompts recorded"""
    left: int
    """prompts to come; 0 for a run that has ended, however it has"""
    seconds: float
    """spent on the prompts recorded"""


def time_left(runs: Iterable[Progress]) -> float | None:
    """Seconds of work that an experiment still has; ``None`` until one prompt is done.

    A setting costs its own mean time per prompt; one that has not begun, the mean of those of the settings that have.
    """
    runs = tuple(runs)
    done: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for run in runs:
        done[run.setting] += run.done
        seconds[run.setting] += run.seconds
    means = {setting: seconds[setting] / count for setting, count in done.items() if count}
    if not means:
        return 0.0 if not any(run.left for run in runs) else None
    typical = sum(means.values()) / len(means)
    return sum(run.left * means.get(run.setting, typical) for run in runs)


def progress(experiment: ExperimentView) -> list[Progress]:
    """How far the runs of an experiment are. Time that no finished run accounts for is that of the one at work."""
    seconds = {run.id: run.metrics["seconds"] for run in experiment.runs if run.metrics}
    working = next((run.id for run in experiment.runs if run.prompts_done and not run.ended), None)
    if working is not None:
        seconds[working] = max(0.0, experiment.decoding_seconds - sum(seconds.values()))
    return [
        Progress(
            setting=run.setting_id,
            done=run.prompts_done if run.id in seconds else 0,
            left=0 if run.ended else run.prompts_total - run.prompts_done,
            seconds=seconds.get(run.id, 0.0),
        )
        for run in experiment.runs
    ]
