"""Pooling of calibration rounds: runs of one setting on parts of a task, merged by prompt into one measurement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.calibration.status import trials
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.evaluation.aggregate import summarise
from fsd_core.storage.records import READING_VERSIONS, Trial

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import PromptCounts, Prompts, RunView


class Pool(NamedTuple):
    """One measurement: a run, or all rounds of one setting in a calibration."""

    run: RunView
    """the only run, or the first of several with the figures of all their prompts"""
    runs: tuple[RunView, ...]
    prompts: Mapping[int, PromptCounts]
    """by position in the task; each prompt once"""
    writers: Mapping[int, str]
    """id of the run that did the prompt, by position"""

    @property
    def calibration(self) -> str | None:
        """Id of the calibration of these rounds; ``None`` for an ordinary run."""
        return self.run.experiment_id if is_calibration_round(self.run) else None


def is_calibration_round(run: RunView) -> bool:
    """Whether the run is a calibration round. Only those take their prompts in a random order."""
    return run.config.shuffled and run.experiment_id is not None


def on_fresh_prompts(repository: Repository, runs: Iterable[RunView]) -> list[RunView]:
    """Return the runs without rounds on prompts that chose finalists, where the chosen settings look better than they
    are.

    Raises ``UnknownName`` if a calibration was deleted meanwhile.
    """
    runs = list(runs)
    calibrations = {run.experiment_id for run in runs if run.experiment_id is not None and is_calibration_round(run)}
    configs = {id: repository.experiment(id).config for id in calibrations}
    first_fresh = {id: config.choosing for id, config in configs.items() if isinstance(config, CalibrationConfig)}
    return [run for run in runs if run.config.first >= first_fresh.get(run.experiment_id or "", 0)]


def fresh_rounds(repository: Repository, calibration: str, setting_id: str) -> list[RunView]:
    """Return the measured rounds of a setting in a calibration that can be evidence; empty for any other experiment."""
    runs = repository.runs(experiment_id=calibration, setting_id=setting_id, limit=None)
    return on_fresh_prompts(repository, (run for run in runs if run.metrics and is_calibration_round(run)))


def whole_rounds(repository: Repository, runs: Sequence[RunView]) -> list[RunView]:
    """Return the runs with every round of a calibration that counts with one of them: of its setting, and on fresh
    prompts, or on those that chose. Beside rounds on fresh prompts those that chose are left out."""
    ids = dict.fromkeys(run.experiment_id for run in runs if is_calibration_round(run))
    rounds = [run for id in ids if id is not None for run in repository.experiment(id).runs]
    fresh = {run.id for run in on_fresh_prompts(repository, rounds)}
    tried = {run.experiment_id for run in runs if run.id in fresh}
    result: list[RunView] = []
    for run in runs:
        key = run.experiment_id, run.setting_id, run.id in fresh
        if not is_calibration_round(run):
            result.append(run)
        elif run.id in fresh or run.experiment_id not in tried:
            result += [other for other in rounds if (other.experiment_id, other.setting_id, other.id in fresh) == key]
    return result


def grouped(runs: Sequence[RunView]) -> list[tuple[RunView, ...]]:
    """Return the runs to pool, in the order of each group's first run, and rounds in the order of their prompts.

    Runs of another calibration are a separate measurement, even on the same prompts.
    """
    groups: dict[tuple[object, ...], dict[str, RunView]] = {}
    for run in runs:
        key = (run.experiment_id, run.setting_id, run.task, run.seed)
        groups.setdefault(key if is_calibration_round(run) else (run.id,), {})[run.id] = run
    return [tuple(sorted(group.values(), key=lambda run: run.position)) for group in groups.values()]


def pooled(repository: Repository | None, runs: Sequence[RunView], prompts: Prompts) -> list[Pool]:
    """Return the measurements of the runs. A prompt that was done twice counts as in the later run.

    Where a calibration timed its finalists again, only the times of that time count. Without a ``repository`` no run is
    of a calibration. Raises ``UnknownName`` as above.
    """
    ids = dict.fromkeys(run.experiment_id for run in runs if is_calibration_round(run))
    trial_of: dict[str | None, Mapping[DecodingConfig, Trial]] = {}
    for id in filter(None, ids):
        assert repository is not None
        trial_of[id] = trials(repository, repository.experiment(id))
    pools = [_pool(group, prompts) for group in grouped(runs)]
    return [pool._replace(run=_tried(pool, trial_of[pool.calibration])) if pool.calibration else pool for pool in pools]


def _tried(pool: Pool, trial_of: Mapping[DecodingConfig, Trial]) -> RunView:
    trial = trial_of.get(pool.run.decoding, Trial())
    return replace(pool.run, trial=trial, rounds=tuple(run.id for run in pool.runs))


def _pool(runs: tuple[RunView, ...], prompts: Prompts) -> Pool:
    counted: dict[int, PromptCounts] = {}
    writers: dict[int, str] = {}
    for run in runs:
        done = prompts.get(run.id, {})
        if run.config.again and done:  # from here on only these times count
            counted = {position: counts._replace(timed=False) for position, counts in counted.items()}
        counted |= done
        writers |= dict.fromkeys(done, run.id)
    first, *later = runs
    if not later:
        return Pool(first, runs, counted, writers)
    combined = replace(
        first,
        status=next((run.status for run in runs if run.status != "finished"), "finished"),
        metrics=summarise(list(counted.values()), None) if counted else None,
        provenance=(first.provenance or {})
        | {READING_VERSIONS: str({i for run in runs for i in run.reading_versions})},
        prompts_done=len(counted),
        prompts_total=sum(run.prompts_total for run in runs if not run.config.again),
        decoding_seconds=sum(run.decoding_seconds for run in runs),
        measurement_sessions=tuple(
            measurement_session for run in runs for measurement_session in run.measurement_sessions
        ),
    )
    return Pool(combined, runs, counted, writers)
