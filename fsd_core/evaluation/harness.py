"""The prompts of a run: generated, scored and timed."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence

from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import FsdError, user_message
from fsd_core.models.loading import LoadedPair
from fsd_core.storage.records import GenerationRecord
from fsd_core.tasks import Example, Score, Task

# A token the target gives no probability at all costs this much: float32 can tell no smaller one from 0.
SMALLEST_PROBABILITY = 2.0**-149


def prompt_seed(seed: int, position: int) -> int:
    """The seed of one prompt, of the run's seed and the position alone: the same for every setting and order."""
    digest = hashlib.sha256(f"{seed}:{position}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # 31 bits


def run_examples(
    decoder: PairDecoder, task: Task, examples: Mapping[int, Example], seed: int, rows: int = 1
) -> Iterator[GenerationRecord]:
    """Generates for prompts by their position and scores them, each as soon as it ends; ``seed`` is the run's.

    ``rows``: texts written side by side. An error of a prompt, or of its scoring, becomes a record of outcome
    ``failed`` that carries its sentence; an error while several are written fails all that are.
    """
    if rows == 1:
        for position, example in examples.items():
            yield run_example(decoder, task, example, position, seed)
        return
    begun, left = time.perf_counter(), {}
    for position, example in examples.items():
        try:
            left[position] = decoder.fitting(decoder.prompt_ids(example.asked))
        except Exception as error:
            yield failure(example, position, error, 0.0)
    positions = list(left)
    try:
        seeds = [prompt_seed(seed, position) for position in positions]
        for place, generation in decoder.generate_all(list(left.values()), seeds, rows) if left else ():
            del left[positions[place]]
            yield _record(decoder, task, examples[positions[place]], positions[place], generation)
    except Exception as error:
        share = (time.perf_counter() - begun) / len(examples)
        for position in left:
            yield failure(examples[position], position, error, share)


def run_example(decoder: PairDecoder, task: Task, example: Example, position: int, seed: int) -> GenerationRecord:
    """One prompt alone; see :func:`run_examples`."""
    begun = time.perf_counter()
    try:
        generation = decoder.generate(decoder.prompt_ids(example.asked), prompt_seed(seed, position))
    except Exception as error:
        return failure(example, position, error, time.perf_counter() - begun)
    return _record(decoder, task, example, position, generation)


def _record(
    decoder: PairDecoder, task: Task, example: Example, position: int, generation: GeneratedText
) -> GenerationRecord:
    text = written(decoder.pair, generation.tokens)
    score, error = _scored(task, text, example, generation.stop_reason)
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
        error=error,
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


def _scored(task: Task, text: str, example: Example, stop_reason: str) -> tuple[Score, str | None]:
    """The verdict; of a scorer that fails, the outcome ``failed`` and its sentence. ``rescore`` can judge it later."""
    try:
        return task.score(text, example, stop_reason), None
    except Exception as error:
        return Score("failed", None), _sentence(error)


def written(pair: LoadedPair, tokens: list[int]) -> str:
    """The text of new tokens, without the special ones."""
    return pair.tokenizer.batch_decode([tokens], skip_special_tokens=True)[0]


def negative_log_likelihood(records: Sequence[RoundRecord]) -> float:
    """Of the emitted tokens, in nats; finite even where the model gives a token no probability."""
    return -sum(math.log(max(p, SMALLEST_PROBABILITY)) for r in records for p in r.emitted_probability)


def failure(example: Example, position: int, error: Exception, seconds: float) -> GenerationRecord:
    """A prompt that came to nothing, with the sentence that says why."""
    return GenerationRecord(
        position=position,
        example_id=example.id,
        prompt=example.prompt,
        reference=example.reference,
        text="",
        answer=None,
        outcome="failed",
        stop_reason="error",
        error=_sentence(error),
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


def _sentence(error: Exception) -> str:
    """Torch tells of exhausted memory and the like by ``RuntimeError``, in words of its own."""
    own = isinstance(error, FsdError) or not isinstance(error, RuntimeError)
    return user_message(error) if own else f"{type(error).__name__}: {error}"
