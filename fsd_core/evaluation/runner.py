"""Does runs: every prompt of their tasks once, each one recorded before the next begins.

Runs that were interrupted in any way are continued by calling :func:`execute_runs`
again: prompts that are recorded are not done twice, and one that keeps killing its
process is set aside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from fsd_core.conditions import Conditions, conditions_of
from fsd_core.errors import Cancelled, DatabaseUnavailable, DataDamaged, DeviceUnavailable, FsdError, user_message
from fsd_core.evaluation.aggregate import summarise
from fsd_core.evaluation.fidelity import ComparedText, fidelity
from fsd_core.evaluation.generator import LocalGenerator, PairLoader, TextGenerator
from fsd_core.evaluation.harness import failure
from fsd_core.evaluation.observer import UNOBSERVED, RunObserver, Writing
from fsd_core.evaluation.versus import versus_target
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.records import GenerationRecord, RunView
from fsd_core.tasks import Example, Task
from fsd_core.tasks.custom.lookup import find_task

logger = logging.getLogger(__name__)

BATCHES_A_TURN = 4
"""so many batches of texts a run does before the next run's turn: rows that end are filled again meanwhile"""
LOSSES_ALLOWED = 3
"""so many processes may die while they write a prompt before it is set aside"""


@dataclass(frozen=True)
class _Turn:
    """What is left of one run."""

    run: RunView
    task: Task
    left: dict[int, Example]
    """by position"""
    conditions: Conditions
    """that decide speed; of them the number of threads may change from prompt to prompt"""


def execute_runs(
    repository: Repository,
    run_ids: Sequence[str],
    generator: PairLoader | TextGenerator,
    observer: RunObserver = UNOBSERVED,
) -> None:
    """Does what is left of some runs, then writes their figures. ``generator`` writes their prompts; of a loader of
    pairs, this process does.

    The runs take turns prompt by prompt, at every prompt another one first: a machine that grows slower meanwhile
    does so for all of them, and the difference between their speeds is that of their settings.

    What ``observer`` raises ends or leaves the runs (:class:`RunObserver`). ``DatabaseUnavailable``, an interrupt from
    the keyboard and ``DeviceUnavailable`` from anywhere leave them to be continued.
    What goes wrong with one run fails that run with its sentence and the figures of what is done, and not the others;
    what goes wrong with a prompt is that prompt's outcome. A prompt at which processes have died again and again is
    recorded as failed. Runs that have ended are left alone.
    """
    if not isinstance(generator, TextGenerator):
        generator = LocalGenerator(generator)
    try:
        turns, tasks = [], cache(partial(find_task, repository=repository))  # runs of a task share its prompts
        for run_id in run_ids:
            run = repository.run(run_id)
            if not run.ended:
                observer.on_start(run)
                with _failing_alone(repository, run_id):
                    turns += _begin(repository, run, tasks, generator, observer.writing)
        generator.plan([(turn.run, list(examples)) for turn, examples in _in_turn(turns)])
        for turn, examples in _in_turn(turns):
            _take_turn(repository, generator, turn, examples, observer)
        runs = [repository.run(run_id) for run_id in run_ids]
        texts = cache(partial(_texts, repository))  # of a target alone, which several runs are held against
        for run in runs:
            with _failing_alone(repository, run.id):
                _finish(repository, run, _target_alone(run, runs), texts)
    except Cancelled:
        for run_id in run_ids:
            repository.cancel_run(run_id, _figures(repository, run_id))
        raise


def give_up(repository: Repository, run_ids: Sequence[str], error: str) -> None:
    """Fails what is left of some runs with a sentence, and keeps the figures of what is done."""
    for run_id in run_ids:
        repository.fail_run(run_id, error, _figures(repository, run_id))


def _take_turn(
    repository: Repository,
    generator: TextGenerator,
    turn: _Turn,
    examples: Mapping[int, Example],
    observer: RunObserver,
) -> None:
    # Whatever a process died with is done alone, so that another death is laid to the right one.
    alone = [{position: examples[position]} for position in examples if position in turn.run.losses]
    together = {position: examples[position] for position in examples if position not in turn.run.losses}
    for some in (*alone, *([together] if together else [])):
        records = generator.write(turn.run, turn.task, some)
        left = list(some)
        while left:
            run = repository.run(turn.run.id)
            if run.ended:
                return
            observer.on_prompt(run)
            conditions = dict(turn.conditions) | {"threads": generator.threads()}
            with _failing_alone(repository, run.id):
                with observer.writing(run.id, left if turn.run.config.batch > 1 else left[:1]):
                    record = next(records)
                repository.record_generation(run.id, record, conditions)
                left.remove(record.position)


def _in_turn(turns: Sequence[_Turn]) -> Iterator[tuple[_Turn, dict[int, Example]]]:
    """Position by position, those that have it left; the first one of them changes from each to the next.

    Texts that are written side by side take a turn together, some batches of them.
    """
    rows = max((turn.run.config.batch for turn in turns), default=1)
    size = 1 if rows == 1 else BATCHES_A_TURN * rows
    positions = sorted({position for turn in turns for position in turn.left})
    for start in range(0, len(positions), size):
        some = positions[start : start + size]
        first = (some[0] // size) % len(turns)
        for turn in (*turns[first:], *turns[:first]):
            if examples := {position: turn.left[position] for position in some if position in turn.left}:
                yield turn, examples


@contextmanager
def _failing_alone(repository: Repository, run_id: str) -> Iterator[None]:
    """An error in the block is this run's own end; only a database or a device that does not answer is everybody's."""
    try:
        yield
    except (DatabaseUnavailable, DeviceUnavailable):
        raise
    except Exception as error:
        give_up(repository, [run_id], user_message(error))


def _begin(
    repository: Repository, run: RunView, tasks: Callable[[str], Task], generator: TextGenerator, writing: Writing
) -> list[_Turn]:
    """Marks a run as running and warms it up; nothing for one that has nothing left."""
    task = tasks(run.task)
    done = repository.done_positions(run.id)
    left = {i: example for i, example in task.examples_of(run.config).items() if i not in done}
    for position in [i for i in left if run.losses.get(i, 0) >= LOSSES_ALLOWED]:
        repository.record_generation(run.id, _set_aside(left.pop(position), position, run.losses[position]))
    if not left:
        return []
    about = generator.open(run)
    if done and run.weights and run.weights != about.get("weights"):
        raise FsdError(
            f"The weights of '{run.pair}' have changed since the first {len(done)} prompts: start a new run with the "
            "same settings."
        )
    repository.start_run(run.id, about)
    first = next(iter(left))
    with writing(run.id, [first]):
        generator.warm_up(run, left[first])
    return [_Turn(run, task, left, conditions_of(about))]


def _set_aside(example: Example, position: int, losses: int) -> GenerationRecord:
    error = FsdError(
        f"The process died {losses} times at this prompt, so the prompt was set aside. Resume the run to try it again."
    )
    return failure(example, position, error, 0.0)


def _target_alone(run: RunView, runs: Sequence[RunView]) -> str | None:
    """The other run among these in which the target alone answered the same prompts by the same sampling.

    ``None`` too for a draft alone, which never asks the target.
    """

    def grounds(run: RunView) -> tuple:
        return run.pair, run.task, run.seed, run.decoding.sampling, run.decoding.max_new_tokens

    if run.decoding.acceptance.kind == "draft-only":
        return None
    alone = (other for other in runs if other.decoding.acceptance.kind == "autoregressive")
    found = next((other.id for other in alone if grounds(other) == grounds(run)), None)
    return None if found == run.id else found


def _finish(
    repository: Repository, run: RunView, target_alone: str | None, texts: Callable[[str], dict[int, ComparedText]]
) -> None:
    if run.ended:
        return
    generations = repository.generations(run.id)
    if all(g.outcome == "failed" for g in generations):
        raise FsdError(f"Every prompt of the run failed. The first error: {generations[0].error}")
    figures = summarise(generations, _records(repository, run.id))
    if target_alone is not None:
        figures |= versus_target(generations, repository.generations(target_alone))
        figures |= fidelity(_texts(repository, run.id), texts(target_alone), greedy=run.decoding.sampling.greedy)
    repository.finish_run(run.id, figures)


def _texts(repository: Repository, run_id: str) -> dict[int, ComparedText]:
    """What was written, by position, without the prompts that failed."""
    likelihoods = {
        g.position: g.negative_log_likelihood for g in repository.generations(run_id) if g.outcome != "failed"
    }
    return {
        position: ComparedText([token for record in records for token in record.emitted], likelihoods[position])
        for position, records in repository.traces(run_id)
        if position in likelihoods
    }


def _figures(repository: Repository, run_id: str) -> dict[str, Any] | None:
    """Of what is done of a run; ``None`` if nothing is, or if it cannot be read."""
    generations = repository.generations(run_id)
    with suppress(DataDamaged):
        return summarise(generations, _records(repository, run_id)) if generations else None


def _records(repository: Repository, run_id: str) -> Iterator[list]:
    return (records for _, records in repository.traces(run_id))
