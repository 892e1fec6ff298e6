"""Scores texts of an earlier run again, for instance after a scorer was fixed. Nothing is generated."""

from __future__ import annotations

from dataclasses import replace

from fsd_core.engines.engine_counters import with_engine_rates
from fsd_core.errors import Stale, WrongState
from fsd_core.evaluation.aggregate import published_figures, summarise
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.records import READ_BEFORE, READING_VERSIONS
from fsd_core.tasks.custom.lookup import find_task
from fsd_core.tasks.readings import READING_VERSION


def rescore(repository: Repository, run_id: str) -> int:
    """Score every prompt of an ended run with its current task and return how many scores changed. The run records the
    version of the reading, and what it had counted by another one.

    Raises ``InvalidSetting`` for a run that has not ended, or whose prompts are no longer those of the task.
    """
    run = repository.run(run_id)
    if not run.ended:
        raise WrongState(f"The run {run.id} has not ended: wait for it, or cancel it.")
    task, generations = find_task(run.task, repository).of_model(run.provenance), repository.generations(run.id)
    examples = task.examples_of(run.config)
    changes, rescored = {}, []
    for generation in generations:
        example = examples[generation.position]
        if (generation.example_id, generation.prompt) != (example.id, example.prompt):
            raise Stale(
                f"Prompt {generation.position + 1} of the task '{task.name}' has changed since the run {run.id}: "
                "measure the setting again."
            )
        if generation.stop_reason == "error":  # no text to score
            rescored.append(generation)
            continue
        score = task.score(generation.text, example, generation.stop_reason, thinking=generation.only_thought)
        if (score.outcome, score.answer) != (generation.outcome, generation.answer):
            changes[generation.id] = (score.outcome, score.answer)
        rescored.append(replace(generation, outcome=score.outcome, answer=score.answer))
    former = run.metrics or {}
    is_reread = bool({*run.reading_versions} - {READING_VERSION})
    if changes or is_reread:
        has_traces = repository.has_traces(run.id)
        metrics = summarise(rescored, (records for _, records in repository.traces(run.id)) if has_traces else None)
        metrics = with_engine_rates(former | metrics | published_figures(task, rescored))  # fidelity stays as it is
        counts = {name: former.get(name) for name in ("correct", "wrong", "truncated", "failed")}
        about = {key: value for key, value in (run.provenance or {}).items() if key != READ_BEFORE}
        about |= {READING_VERSIONS: str(READING_VERSION)} | ({READ_BEFORE: counts} if is_reread else {})
        repository.set_scores(run.id, changes, metrics, about)
    return len(changes)
