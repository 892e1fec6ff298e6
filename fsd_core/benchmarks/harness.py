"""Does a run: every prompt of its task once, each one recorded before the next begins.

A run that was interrupted in any way is continued by calling :func:`execute_run`
again: prompts that are recorded are not done twice.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

import torch

from fsd_core.benchmarks.metrics import summarise
from fsd_core.benchmarks.tasks import Example, Task, get_task
from fsd_core.decoding.decoder import Decoder
from fsd_core.decoding.trace import StepRecord
from fsd_core.errors import Cancelled, DatabaseUnavailable, FsdError
from fsd_core.models.loading import LoadedPair
from fsd_core.tracking import provenance
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.records import GenerationRecord, RunView

PairLoader = Callable[[str, str, str], LoadedPair]
"""(name, device, dtype) -> pair: ``load_pair`` itself, or one that keeps what it has loaded."""

WARM_UP_ROUNDS = 3
# A token the target gives no probability at all costs this much: float32 can tell no smaller one from 0.
SMALLEST_PROBABILITY = 2.0**-149


def prompt_seed(seed: int, position: int) -> int:
    """The seed of one prompt, of the run's seed and the position alone: the same for every setting and order."""
    digest = hashlib.sha256(f"{seed}:{position}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # 31 bits


def run_example(decoder: Decoder, task: Task, example: Example, position: int, seed: int) -> GenerationRecord:
    """Generates for one prompt and scores it; ``seed`` is the run's.

    An error of this prompt becomes a record of outcome ``failed`` that carries its sentence.
    """
    begun = time.perf_counter()
    try:
        generation = decoder.generate(decoder.prompt_ids(example.prompt), prompt_seed(seed, position))
    except (FsdError, RuntimeError) as error:  # torch tells of exhausted memory and the like by RuntimeError
        return _failure(example, position, error, time.perf_counter() - begun)
    text = written(decoder.pair, generation.tokens)
    score = task.score(text, example.reference, generation.stop_reason)
    records = generation.records
    return GenerationRecord(
        position=position,
        example_id=example.id,
        prompt=example.prompt,
        reference=example.reference,
        text=text,
        answer=score.answer,
        outcome=score.outcome,
        stop_reason=generation.stop_reason,
        error=None,
        tokens=len(generation.tokens),
        rounds=len(records),
        drafted=sum(len(r.drafted) for r in records),
        accepted=sum(r.accepted for r in records),
        fuzzy=sum(r.kinds.count("lenient") for r in records),
        negative_log_likelihood=negative_log_likelihood(records),
        seconds=generation.seconds,
        time_to_first_token=generation.time_to_first_token,
        records=records,
    )


def written(pair: LoadedPair, tokens: list[int]) -> str:
    """The text of new tokens, without the special ones."""
    return pair.tokenizer.batch_decode([tokens], skip_special_tokens=True)[0]


def negative_log_likelihood(records: Sequence[StepRecord]) -> float:
    """Of the emitted tokens, in nats; finite even where the model gives a token no probability."""
    return -sum(math.log(max(p, SMALLEST_PROBABILITY)) for r in records for p in r.emitted_probability)


def execute_run(
    repository: Repository,
    run_id: str,
    pair_loader: PairLoader,
    on_prompt: Callable[[RunView], None] | None = None,
) -> None:
    """Does what is left of a run, then writes its figures.

    ``on_prompt`` is called before each prompt with the run as it stands, and may serve others meanwhile; raised
    from it, ``Cancelled`` marks the run cancelled, other errors that are no ``FsdError`` leave it to be continued. A
    run that has ended already is left alone; one in which every prompt failed is marked failed.

    Raises the ``FsdError`` for which the run was marked failed or cancelled, and ``DatabaseUnavailable``, after
    which the run can be continued.
    """
    run = repository.run(run_id)
    if run.ended:
        return
    try:
        _do_prompts(repository, run, pair_loader, on_prompt)
        generations = repository.generations(run_id)
        if all(g.outcome == "failed" for g in generations):
            raise FsdError(f"Every prompt of the run failed, the first one so: {generations[0].error}")
        traces = (records for _, records in repository.traces(run_id))
        repository.finish_run(run_id, summarise(generations, traces))
    except Cancelled:
        repository.cancel_run(run_id)
        raise
    except DatabaseUnavailable:
        raise
    except FsdError as error:
        repository.fail_run(run_id, str(error))
        raise


def _do_prompts(
    repository: Repository, run: RunView, pair_loader: PairLoader, on_prompt: Callable[[RunView], None] | None
) -> None:
    task = get_task(run.task)
    done = repository.done_positions(run.id)
    left = [(i, example) for i, example in enumerate(task.examples(run.config.limit)) if i not in done]
    if not left:
        return
    pair = pair_loader(run.pair, run.config.device, run.config.dtype)
    decoder = Decoder(pair, run.decoding)
    told = provenance.collect(pair.device, pair.dtype, torch.get_num_threads())
    repository.start_run(run.id, told | ({"weights": pair.weights} if pair.weights else {}))
    _warm_up(decoder, left[0][1])
    for position, example in left:
        if on_prompt:
            on_prompt(repository.run(run.id))
        repository.record_generation(run.id, run_example(decoder, task, example, position, run.seed))


def _warm_up(decoder: Decoder, example: Example) -> None:
    """A few rounds that are thrown away: the first ones of a process are slow, and would be charged to one prompt."""
    with suppress(FsdError, RuntimeError):  # what is wrong with the prompt is told when its turn comes
        list(islice(decoder.stream(decoder.prompt_ids(example.prompt), seed=0), WARM_UP_ROUNDS))


def _failure(example: Example, position: int, error: Exception, seconds: float) -> GenerationRecord:
    told = str(error) if isinstance(error, FsdError) else f"{type(error).__name__}: {error}"
    return GenerationRecord(
        position=position,
        example_id=example.id,
        prompt=example.prompt,
        reference=example.reference,
        text="",
        answer=None,
        outcome="failed",
        stop_reason="error",
        error=told,
        tokens=0,
        rounds=0,
        drafted=0,
        accepted=0,
        fuzzy=0,
        negative_log_likelihood=0.0,
        seconds=seconds,
        time_to_first_token=0.0,
        records=[],
    )
