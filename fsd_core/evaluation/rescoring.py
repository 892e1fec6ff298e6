"""Answers scored once more, from the texts that are stored: nothing is generated, and no model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fsd_core.engines.kinds import with_engine_rates
from fsd_core.errors import NotApplicable, Stale, WrongState
from fsd_core.evaluation.aggregate import published_figures, summarise
from fsd_core.storage.records import READ_BEFORE, READING_VERSIONS, GenerationView, RunView
from fsd_core.storage.repository import Repository
from fsd_core.tasks import Example, Score, Task
from fsd_core.tasks.custom.custom_task import CustomTask, find_task, keep
from fsd_core.tasks.readings import READING_VERSION


def rescore(repository: Repository, run_id: str) -> int:
    """Score every prompt of an ended run with its current task and return how many scores changed. The run records the
    version of the reading, and what it had counted by another one.

    Raises ``InvalidSetting`` for a run that has not ended, or whose prompts are no longer those of the task.
    """
    run = _ended(repository.run(run_id))
    task = find_task(run.task, repository)
    scored = _scored(repository, run, task)
    is_reread = bool({*run.reading_versions} - {READING_VERSION})
    return _store(repository, run, task, scored, is_reread) if is_reread or _changes(scored) else 0


class Read(NamedTuple):
    """What is read of a stored answer."""

    generation: GenerationView
    example: Example
    score: Score


def _ended(run: RunView) -> RunView:
    if not run.ended:
        raise WrongState(f"The run {run.id} has not ended: wait for it, or cancel it.")
    return run


def _changes(scored: Sequence[Read]) -> dict[int, tuple[str, str | None]]:
    return {
        g.id: (score.outcome, score.answer)
        for g, _, score in scored
        if (score.outcome, score.answer) != (g.outcome, g.answer)
    }


def _scored(repository: Repository, run: RunView, task: Task) -> list[Read]:
    """Return the scores of all prompts by a task that asks the same. Raises ``Stale`` for one that asks others."""
    task, examples = task.of_model(run.provenance), task.examples_of(run.config)
    read = []
    for generation in repository.generations(run.id):
        example = examples[generation.position]
        if (generation.example_id, generation.prompt) != (example.id, example.prompt):
            raise Stale(
                f"Prompt {generation.position + 1} of the task '{task.name}' has changed since the run {run.id}: "
                "measure the setting again."
            )
        score = Score(generation.outcome, generation.answer)  # pyright: ignore[reportArgumentType]
        if generation.stop_reason != "error":  # else there is no text to score
            score = task.score(generation.text, example, generation.stop_reason, thinking=generation.only_thought)
        read.append(Read(generation, example, score))
    return read


def _store(repository: Repository, run: RunView, task: Task, scored: Sequence[Read], is_reread: bool) -> int:
    """Store the scores with the metrics that follow from them, and return how many changed."""
    rescored = [replace(g, outcome=score.outcome, answer=score.answer) for g, _, score in scored]
    former = run.metrics or {}
    has_traces = repository.has_traces(run.id)
    metrics = summarise(rescored, (records for _, records in repository.traces(run.id)) if has_traces else None)
    published = published_figures(task.of_model(run.provenance), rescored)
    metrics = with_engine_rates(former | metrics | published)  # fidelity stays as it is
    counts = {name: former.get(name) for name in ("correct", "wrong", "truncated", "failed")}
    about = {key: value for key, value in (run.provenance or {}).items() if key != READ_BEFORE}
    about |= {READING_VERSIONS: str(READING_VERSION)} | ({READ_BEFORE: counts} if is_reread else {})
    repository.set_scores(run.id, changes := _changes(scored), metrics, about)
    return len(changes)


def read_with(repository: Repository, run_id: str, pattern: str) -> list[Read]:
    """Return what a regular expression reads of the answers of a run of which nothing could be read. Nothing is stored.

    Raises ``InvalidSetting`` for a task of the program, and for an expression that cannot be used.
    """
    run = repository.run(run_id)
    return [
        read for read in _scored(repository, run, _with_pattern(repository, run, pattern)) if read.generation.unread
    ]


def rescore_with(repository: Repository, run_id: str, pattern: str, who: str) -> dict[str, int]:
    """Make a regular expression part of the task of a run, as a new version with the same prompts, and score the runs
    of its experiment on that task by it. Returns how many scores changed, by run.

    Raises ``InvalidSetting`` as :func:`read_with` does, and while one of the runs has not ended.
    """
    run = repository.run(run_id)
    siblings = repository.experiment(run.experiment_id).runs if run.experiment_id else (run,)
    runs = [_ended(one) for one in siblings if one.task == run.task and not one.measured_elsewhere]
    task = _with_pattern(repository, run, pattern)
    scored = {one.id: _scored(repository, one, task) for one in runs}  # each can be, before anything is stored
    version = keep(repository, task, who).full_name
    repository.move_to_task([one.id for one in runs], version)
    return {one.id: _store(repository, one, task, scored[one.id], is_reread=False) for one in runs}


def _with_pattern(repository: Repository, run: RunView, pattern: str) -> CustomTask:
    task = find_task(run.task, repository)
    if not isinstance(task, CustomTask) or not task.scored:
        raise NotApplicable(
            f"The answers of the task '{task.name}' are read as its authors read them: an expression is for a task of "
            "one's own that has references."
        )
    return task.with_pattern(pattern)
