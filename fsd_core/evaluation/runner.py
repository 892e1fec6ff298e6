"""Executes runs: every prompt of their tasks once, each recorded before the next begins.

To resume interrupted runs, call :func:`execute_runs` again. Recorded prompts are not repeated, and a prompt that keeps
killing its process is set aside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from typing import Any

from fsd_core.config.model_names import called, template_arguments_of
from fsd_core.engines.client import EngineKnob, PluginKnob
from fsd_core.engines.kinds import engine_figures
from fsd_core.errors import (
    Cancelled,
    DatabaseUnavailable,
    DataDamaged,
    DeviceUnavailable,
    FsdError,
    user_message,
)
from fsd_core.evaluation.aggregate import cost_figures, published_figures, summarise
from fsd_core.evaluation.harness import LocalGenerator, PairLoader, TextGenerator, TurnFailed, asked_prompt, failure
from fsd_core.evaluation.served_runs import WithEngines, readings_of, served_by
from fsd_core.evaluation.versus import ComparedText, fidelity, text_fidelity, versus_target
from fsd_core.metrics import Conditions, conditions_of
from fsd_core.storage.records import (
    READING_VERSIONS,
    GenerationRecord,
    GenerationView,
    RunView,
    same_weights,
)
from fsd_core.storage.repository import Repository
from fsd_core.tasks import TASKS, Example, Task
from fsd_core.tasks.custom.custom_task import find_task
from fsd_core.tasks.readings import READING_VERSION

Writing = Callable[[str, Sequence[int]], AbstractContextManager[None]]
"""(run id, positions): context manager around all work on these prompts, so that a crash can be attributed to them"""


class Interrupted(Exception):
    """Leaves all runs to be resumed, wherever it is raised."""


@dataclass(frozen=True)
class RunObserver:
    """Callbacks of the runner. If ``on_start``, ``on_prompt`` or ``on_wait`` raises ``Cancelled``, the remaining runs
    end with their metrics so far. Any other exception leaves the runs to be resumed; of ``on_wait`` it is
    ``Interrupted``."""

    on_prompt: Callable[[RunView], None] = lambda run: None
    """called before each prompt, with the current state of its run"""
    writing: Writing = lambda run_id, positions: nullcontext()
    on_start: Callable[[RunView], None] = lambda run: None
    """called before a run's pair is loaded"""
    on_calibration_round: Callable[[int, int, int], None] = lambda settings, start, end: None
    """called when a calibration starts new runs: number of settings, first prompt, and the one after the last"""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """recorded with each run beside what its generator says"""
    on_wait: Callable[[], None] = lambda: None
    """called now and then while an engine is awaited"""


UNOBSERVED = RunObserver()


def target_alone(run: RunView, runs: Sequence[RunView]) -> str | None:
    """Return the id of another run here in which the target alone answered the same prompts with the same sampling.

    Return ``None`` also for a draft alone, which never uses the target.
    """

    def comparison_key(run: RunView) -> tuple:
        return run.pair, run.task, run.seed, run.decoding.shared

    if run.decoding.acceptance.kind == "draft-only":
        return None
    candidates = [other for other in runs if other.decoding.acceptance.kind == "autoregressive"]
    candidates.sort(key=lambda other: other.config.load != run.config.load)  # its speed is compared as well
    baseline_id = next((other.id for other in candidates if comparison_key(other) == comparison_key(run)), None)
    return None if baseline_id == run.id else baseline_id


def finish(
    repository: Repository, run: RunView, baseline_id: str | None, texts: Callable[[str], dict[int, ComparedText]]
) -> None:
    """Write a run's metrics and end it. Raises ``FsdError`` if every prompt failed.

    ``baseline_id``: the run of the target alone that it is compared with. ``texts`` returns what that wrote.
    """
    if run.ended:
        return
    generations = repository.generations(run.id)
    if all(g.outcome == "failed" for g in generations):
        raise FsdError(f"Every prompt of the run failed. The first error: {generations[0].error}")
    figures = _summary(repository, run.id, generations)
    if baseline_id is not None:
        alone, greedy = repository.generations(baseline_id), run.decoding.sampling.greedy
        figures |= versus_target(generations, alone)
        groups = {g.position: g.group for g in generations if g.group}
        figures |= (
            text_fidelity(_whole_texts(generations), _whole_texts(alone), greedy=greedy, groups=groups)
            if served_by(run)
            else fidelity(written_texts(repository, run.id), texts(baseline_id), greedy=greedy, groups=groups)
        )
    repository.finish_run(run.id, figures)


def written_texts(repository: Repository, run_id: str) -> dict[int, ComparedText]:
    """Return the written texts, by position, without the prompts that failed. All turns of a conversation are one text,
    at the position of the first. A conversation with a failed turn is left out."""
    generations = {g.position: g for g in repository.generations(run_id)}
    failed = {g.position - g.turn for g in generations.values() if g.outcome == "failed"}
    texts: dict[int, ComparedText] = {}
    for position, records in repository.traces(run_id):
        generation = generations[position]
        first, tokens = position - generation.turn, [token for record in records for token in record.emitted]
        if first in failed:
            continue
        before = texts.get(first, ComparedText([], 0.0))
        nats = before.negative_log_likelihood + generation.negative_log_likelihood
        texts[first] = ComparedText([*before.tokens, *tokens], nats)
    return texts


def _whole_texts(generations: Sequence[GenerationView]) -> dict[int, str]:
    """Return the texts as :func:`written_texts` does, by their characters."""
    failed = {g.position - g.turn for g in generations if g.outcome == "failed"}
    texts: dict[int, str] = {}
    for g in generations:
        if (first := g.position - g.turn) not in failed:
            texts[first] = texts.get(first, "") + g.text
    return texts


def figures_so_far(repository: Repository, run_id: str) -> dict[str, Any] | None:
    """Return the metrics of a run so far, or ``None`` if nothing is done or it cannot be read."""
    generations = repository.generations(run_id)
    with suppress(DataDamaged):
        return _summary(repository, run_id, generations) if generations else None


def _summary(repository: Repository, run_id: str, generations: Sequence[GenerationView]) -> dict[str, Any]:
    """Return the metrics of a run's prompts, those that an engine's counters give, and what it cost."""
    run = repository.run(run_id)
    figures = summarise(generations, _records(repository, run_id)) | engine_figures(readings_of(repository, run_id))
    if run.task in TASKS:
        figures |= published_figures(TASKS[run.task].of_model(run.provenance), generations)
    return figures | cost_figures(generations, run.price_per_hour)


def _records(repository: Repository, run_id: str) -> Iterator[list]:
    return (records for _, records in repository.traces(run_id))


logger = logging.getLogger(__name__)

BATCHES_A_TURN = 4
"""batches that a run writes per turn; rows that end are refilled meanwhile"""
LOSSES_ALLOWED = 3
"""processes that may die while writing a prompt before it is set aside"""


@dataclass(frozen=True)
class _OpenRun:
    """The remaining prompts of one run."""

    run: RunView
    task: Task
    remaining: dict[int, Example]
    """by position"""
    conditions: Conditions
    """those that affect speed; the number of threads may change from prompt to prompt"""


def execute_runs(
    repository: Repository,
    run_ids: Sequence[str],
    generator: PairLoader | TextGenerator,
    observer: RunObserver = UNOBSERVED,
    among: Sequence[str] = (),
    knob: EngineKnob | None = None,
) -> None:
    """Execute the remaining prompts of some runs, then write their metrics.

    ``generator`` writes the prompts. If it is a pair loader, this process writes them. ``knob`` tells engines the rules
    of runs that have one; by default our plug-in for vLLM is told.

    The runs take turns prompt by prompt, and another run goes first at every prompt. A machine that slows down then
    slows all runs alike, and differences between their speeds are those of their settings.

    An exception of ``observer`` ends or leaves the runs (:class:`RunObserver`). ``DatabaseUnavailable``,
    ``DeviceUnavailable`` and a keyboard interrupt, from anywhere, leave them to be resumed.
    An error in one run fails only that run, with its message and the metrics so far. An error in a prompt is that
    prompt's outcome. A prompt that has killed its process repeatedly is recorded as failed. Runs that have ended are
    left alone.

    ``among``: all runs of their experiment, some of which another process executes. A run that is compared with one of
    these waits unended, with all its prompts, until somebody executes both.
    """
    if not isinstance(generator, TextGenerator):
        generator = LocalGenerator(generator)
    with WithEngines(generator, repository, knob or PluginKnob(), observer.on_wait) as every_generator:
        _execute(repository, run_ids, every_generator, observer, among or run_ids)


def _execute(
    repository: Repository,
    run_ids: Sequence[str],
    generator: TextGenerator,
    observer: RunObserver,
    among: Sequence[str],
) -> None:
    """See :func:`execute_runs`."""
    try:
        open_runs, tasks = [], cache(partial(find_task, repository=repository))  # runs of a task share its prompts
        for run_id in run_ids:
            run = repository.run(run_id)
            if not run.ended:
                observer.on_start(run)
                with _fail_on_error(repository, run_id):
                    open_runs += _begin(repository, run, tasks, generator, observer)
        generator.plan([(open_run.run, list(examples)) for open_run, examples in _in_turn(open_runs)])
        for open_run, examples in _in_turn(open_runs):
            _take_turn(repository, generator, open_run, examples, observer)
        runs = {run_id: repository.run(run_id) for run_id in among}
        texts = cache(partial(written_texts, repository))  # of a target alone, the baseline of several runs
        for run in map(runs.__getitem__, run_ids):
            baseline = target_alone(run, list(runs.values()))
            if baseline is not None and baseline not in run_ids and not runs[baseline].ended:
                continue
            with _fail_on_error(repository, run.id):
                finish(repository, run, baseline, texts)
    except Cancelled:
        for run_id in run_ids:
            repository.cancel_run(run_id, figures_so_far(repository, run_id))
        raise


def give_up(repository: Repository, run_ids: Sequence[str], error: str) -> None:
    """Fail the unfinished runs with a message and keep their metrics so far."""
    for run_id in run_ids:
        repository.fail_run(run_id, error, figures_so_far(repository, run_id))


def _take_turn(
    repository: Repository,
    generator: TextGenerator,
    open_run: _OpenRun,
    examples: Mapping[int, Example],
    observer: RunObserver,
) -> None:
    if repository.run(open_run.run.id).ended:
        return
    asked: dict[int, Example] = {}
    with _fail_on_error(repository, open_run.run.id):
        asked = _continued(repository, open_run, examples)
    # A prompt that killed a process is written alone, so that another crash is attributed to the right prompt.
    separate = [{position: asked[position]} for position in asked if position in open_run.run.losses]
    together = {position: asked[position] for position in asked if position not in open_run.run.losses}
    for group in (*separate, *([together] if together else [])):
        records = generator.write(open_run.run, open_run.task, group)
        remaining = list(group)
        while remaining:
            run = repository.run(open_run.run.id)
            if run.ended:
                return
            observer.on_prompt(run)
            served = served_by(run)
            conditions = dict(open_run.conditions) | ({} if served else {"threads": generator.threads()})
            with _fail_on_error(repository, run.id):
                # An engine's prompts kill no process of ours.
                writing = [] if served else remaining if open_run.run.config.batch > 1 else remaining[:1]
                with observer.writing(run.id, writing):
                    record = next(records)
                repository.record_generation(run.id, record, conditions)
                remaining.remove(record.position)


def _continued(repository: Repository, open_run: _OpenRun, examples: Mapping[int, Example]) -> dict[int, Example]:
    """Return the examples as they are asked, with what was written in earlier turns. One whose earlier turn failed is
    recorded as failed, and left out."""
    asked: dict[int, Example] = {}
    for position, example in examples.items():
        try:
            asked[position] = asked_prompt(repository, open_run.run.id, open_run.task, position)
        except TurnFailed as error:
            repository.record_generation(open_run.run.id, failure(example, position, error, 0.0))
    return asked


def _in_turn(open_runs: Sequence[_OpenRun]) -> Iterator[tuple[_OpenRun, dict[int, Example]]]:
    """Yield the runs with their examples, position by position. Another run goes first at each position.

    With batches, a run writes several of them in its turn. An engine that is asked several at once gets all prompts in
    one turn where no pair waits for its own, so that its load is steady. First turns of conversations come before
    second ones.
    """
    rows = max((open_run.run.config.batch for open_run in open_runs), default=1)
    positions = sorted({position for open_run in open_runs for position in open_run.remaining})
    size = 1 if rows == 1 else BATCHES_A_TURN * rows
    if rows > 1 and all(served_by(open_run.run) for open_run in open_runs):
        size = max(1, len(positions))
    for start in range(0, len(positions), size):
        chunk = positions[start : start + size]
        first = (chunk[0] // size) % len(open_runs)
        in_order = *open_runs[first:], *open_runs[:first]
        asked = [open_run.remaining[i] for open_run in in_order for i in chunk if i in open_run.remaining]
        for turn, open_run in product(sorted({example.turn for example in asked}), in_order):
            remaining = {i: open_run.remaining[i] for i in chunk if i in open_run.remaining}
            if examples := {i: example for i, example in remaining.items() if example.turn == turn}:
                yield open_run, examples


@contextmanager
def _fail_on_error(repository: Repository, run_id: str) -> Iterator[None]:
    """Fail this run on an error in the block. Errors of the database or the device, and ends of all runs, are
    raised."""
    try:
        yield
    except (DatabaseUnavailable, DeviceUnavailable, Cancelled, Interrupted):
        raise
    except Exception as error:
        give_up(repository, [run_id], user_message(error))


def _begin(
    repository: Repository, run: RunView, tasks: Callable[[str], Task], generator: TextGenerator, observer: RunObserver
) -> list[_OpenRun]:
    """Mark a run as running and warm it up. Return ``[]`` if no prompt remains."""
    task = tasks(run.task)
    done = repository.done_positions(run.id)
    remaining = {i: example for i, example in task.examples_of(run.config).items() if i not in done}
    for position in [i for i in remaining if run.losses.get(i, 0) >= LOSSES_ALLOWED]:
        repository.record_generation(run.id, _set_aside(remaining.pop(position), position, run.losses[position]))
    if not remaining:
        return []
    about = {**generator.open(run), **observer.provenance}
    identity, expected = about.pop("identity", None), run.config.setting.identity
    if expected and identity not in (None, expected):
        raise FsdError(f"The models of '{called(run.pair)}' have changed since the run was created: start a new one.")
    about[READING_VERSIONS] = ", ".join(map(str, sorted({*run.reading_versions, READING_VERSION})))
    if arguments := run.decoding.template.filled(template_arguments_of(run.pair)).arguments:
        about = {**about, "template_arguments": arguments}  # in force, whether the setting or the pair gives them
    task = task.of_model(about)
    if done:
        _check_unchanged(repository, run, task, generator, about)
    repository.start_run(run.id, about)
    first = min(remaining, key=lambda position: remaining[position].turn)
    with suppress(TurnFailed):  # recorded when its turn comes
        example = asked_prompt(repository, run.id, task, first)
        with observer.writing(run.id, [first]):
            generator.warm_up(run, example)
    return [_OpenRun(run, task, remaining, conditions_of(about))]


def _check_unchanged(
    repository: Repository, run: RunView, task: Task, generator: TextGenerator, about: Mapping[str, Any]
) -> None:
    """Raise ``FsdError`` if the models, or what they are asked, are not what the run began with."""
    since = f"since the first {run.prompts_done} prompts: start a new run with the same settings."
    if run.weights and not same_weights(run.weights, about.get("weights") or {}):
        raise FsdError(f"The models of '{called(run.pair)}' have changed {since}")
    done = repository.prompts([run.id])[run.id]
    position = next((i for i, counts in done.items() if counts.prompt_hash is not None and not counts.turn), None)
    if position is None:
        return
    if generator.prompt_hash(run, task.all_examples()[position]) != done[position].prompt_hash:
        raise FsdError(f"The chat template or the tokenizer of '{called(run.pair)}' has changed {since}")


def _set_aside(example: Example, position: int, losses: int) -> GenerationRecord:
    error = FsdError(
        f"The process died {losses} times at this prompt, so the prompt was set aside. Resume the run to try it again."
    )
    return failure(example, position, error, 0.0)
