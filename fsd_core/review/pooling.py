"""Turns of a calibration, read as one measurement: runs of one setting on stretches of a task, pooled by prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.evaluation.aggregate import summarise

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import PromptCounts, Prompts, RunView


class Pool(NamedTuple):
    """What counts as one measurement: a run, or all turns that one setting had in a calibration."""

    run: RunView
    """a run by itself; of several the first, with the figures of all their prompts"""
    runs: tuple[RunView, ...]
    prompts: Mapping[int, PromptCounts]
    """by position in the task; each prompt once"""
    writers: Mapping[int, str]
    """id of the run that did the prompt, by position"""

    @property
    def calibration(self) -> str | None:
        """Id of the calibration whose turns these are; ``None`` for an ordinary run."""
        return self.run.experiment_id if is_turn(self.run) else None


def is_turn(run: RunView) -> bool:
    """Whether it is a turn of a calibration: only these take their prompts in an order that is drawn."""
    return run.config.shuffled and run.experiment_id is not None


def on_fresh_prompts(repository: Repository, runs: Iterable[RunView]) -> list[RunView]:
    """The runs, without turns on prompts that chose finalists: what was chosen for them says too much of itself there.

    Raises ``UnknownName`` if a calibration was deleted meanwhile.
    """
    runs = list(runs)
    asked = {run.experiment_id for run in runs if run.experiment_id is not None and is_turn(run)}
    configs = {id: repository.experiment(id).config for id in asked}
    begins = {id: config.choosing for id, config in configs.items() if isinstance(config, CalibrationConfig)}
    return [run for run in runs if run.config.first >= begins.get(run.experiment_id or "", 0)]


def fresh_turns(repository: Repository, calibration: str, setting_id: str) -> list[RunView]:
    """The measured turns of a setting in a calibration, by its id, that can be evidence; none of anything else."""
    found = repository.runs(experiment_id=calibration, setting_id=setting_id, limit=None)
    return on_fresh_prompts(repository, (run for run in found if run.metrics and is_turn(run)))


def grouped(runs: Sequence[RunView]) -> list[tuple[RunView, ...]]:
    """The runs that are pooled, in the order in which the first of each was given; turns in the order of their prompts.

    Runs of another calibration are another measurement, though it be of the same prompts.
    """
    groups: dict[tuple[object, ...], dict[str, RunView]] = {}
    for run in runs:
        of_turns = (run.experiment_id, run.setting_id, run.task, run.seed)
        groups.setdefault(of_turns if is_turn(run) else (run.id,), {})[run.id] = run
    return [tuple(sorted(group.values(), key=lambda run: run.position)) for group in groups.values()]


def pooled(runs: Sequence[RunView], prompts: Prompts) -> list[Pool]:
    """The measurements that runs are. A prompt that was done twice counts as the later run did it."""
    return [_pool(group, prompts) for group in grouped(runs)]


def _pool(runs: tuple[RunView, ...], prompts: Prompts) -> Pool:
    done = [(position, run.id, counts) for run in runs for position, counts in prompts.get(run.id, {}).items()]
    counted = {position: counts for position, _, counts in done}
    writers = {position: id for position, id, _ in done}
    first, *others = runs
    if not others:
        return Pool(first, runs, counted, writers)
    whole = replace(
        first,
        metrics=summarise(list(counted.values()), None) if counted else None,
        prompts_done=len(counted),
        prompts_total=sum(run.prompts_total for run in runs),
        decoding_seconds=sum(run.decoding_seconds for run in runs),
        sittings=tuple(sitting for run in runs for sitting in run.sittings),
    )
    return Pool(whole, runs, counted, writers)
