"""Generation, scoring and timing of the prompts of a run.

Writers of the prompts of runs: this process, with pairs that it has loaded, or another ``TextGenerator``.

``runner`` alone decides what is recorded, and when a run starts and ends.
"""

from __future__ import annotations

import bisect
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import torch
from transformers import PreTrainedTokenizerBase

from fsd_core import provenance
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import FsdError, ModelUnavailable, user_message
from fsd_core.evaluation.speed import MeterOf, metered, nvml_meter
from fsd_core.models.conversation import kept_marks, opens_thought, split_thoughts
from fsd_core.models.loading import LoadedPair, gpu_name
from fsd_core.models.prompt import prompt_hash, template_marks
from fsd_core.storage.records import GenerationRecord, RunView
from fsd_core.tasks import Score
from fsd_core.tasks.base import Example, Said, Task

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository


class TurnFailed(FsdError):
    """A turn of a conversation cannot be asked, because an earlier one failed."""

    code = "turn-failed"


def asked_prompt(repository: Repository, run_id: str, task: Task, position: int) -> Example:
    """Return a prompt of a run as it is asked, with what the run wrote in earlier turns. Raises ``TurnFailed``."""
    turn = task.all_examples()[position].turn
    earlier = [repository.generations(run_id, position=position - back) for back in range(turn, 0, -1)]
    if any(not found or found[0].outcome == "failed" for found in earlier):
        raise TurnFailed(
            "An earlier turn of this conversation failed, so this one could not be asked. Resume the run to try again."
        )
    return task.asked(position, [Said(found[0].text, found[0].only_thought) for found in earlier])


# Stands in for a probability of 0: the smallest positive number in float32.
SMALLEST_PROBABILITY = 2.0**-149
_LONGEST_MARK = 24
"""tokens of a thought's first mark, with what may stand behind it"""


class WithTokenizer(Protocol):
    """A pair, or whatever else reads texts as its target does."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase: ...


def prompt_seed(seed: int, position: int) -> int:
    """Return the seed of one prompt. It depends only on the run's seed and the position, not on setting or order."""
    digest = hashlib.sha256(f"{seed}:{position}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # 31 bits


def run_examples(
    decoder: PairDecoder, task: Task, examples: Mapping[int, Example], seed: int, rows: int = 1
) -> Iterator[GenerationRecord]:
    """Yield a scored record for each prompt as soon as its text ends.

    ``examples`` are by position, ``seed`` is the run's, ``rows`` is the batch size. An error in a prompt or in its
    scoring becomes a record of outcome ``failed`` with the error message. An error while several texts are written
    fails all unfinished ones.
    """
    if rows == 1:
        for position, example in examples.items():
            yield run_example(decoder, task, example, position, seed)
        return
    started, ids = time.perf_counter(), {}
    for position, example in examples.items():
        try:
            ids[position] = decoder.fitting(decoder.prompt_ids(example.model_input))
        except Exception as error:
            yield failure(example, position, error, 0.0)
    positions, pending = list(ids), set(ids)
    try:
        seeds = [prompt_seed(seed, position) for position in positions]
        for index, generation in decoder.generate_all(list(ids.values()), seeds, rows) if ids else ():
            position = positions[index]
            pending.remove(position)
            yield _record(decoder, task, examples[position], position, generation, ids[position])
    except Exception as error:
        share = (time.perf_counter() - started) / len(examples)
        for position in sorted(pending, key=positions.index):
            yield failure(examples[position], position, error, share)


def run_example(decoder: PairDecoder, task: Task, example: Example, position: int, seed: int) -> GenerationRecord:
    """Return the record of one prompt, generated alone. See :func:`run_examples`."""
    started = time.perf_counter()
    try:
        ids = decoder.prompt_ids(example.model_input)
        generation = decoder.generate(ids, prompt_seed(seed, position))
    except Exception as error:
        return failure(example, position, error, time.perf_counter() - started)
    return _record(decoder, task, example, position, generation, ids)


def _record(
    decoder: PairDecoder, task: Task, example: Example, position: int, generation: GeneratedText, ids: Sequence[int]
) -> GenerationRecord:
    thinking = opens_thinking(decoder.pair, ids, task)
    text = written(decoder.pair, generation.tokens)
    score, error = scored(task, text, example, generation.stop_reason, thinking)
    records = generation.records
    return GenerationRecord(
        position=position,
        example_id=example.id,
        prompt=example.prompt,
        turn=example.turn,
        group=example.group,
        prompt_hash=prompt_hash(ids),
        reference=example.reference,
        text=text,
        answer=score.answer,
        outcome=score.outcome,
        stop_reason=generation.stop_reason,
        error=error,
        tokens=len(generation.tokens),
        thought_tokens=thought_tokens(decoder.pair, generation.tokens, text, task, thinking),
        rounds=len(records),
        drafted=sum(len(r.drafted) for r in records),
        accepted=sum(r.accepted for r in records),
        fuzzy=sum(r.kinds.count("lenient") for r in records),
        negative_log_likelihood=negative_log_likelihood(records),
        seconds=generation.seconds,
        time_to_first_token=generation.time_to_first_token,
        latency=generation.latency,
        cpu_seconds=generation.cpu_seconds,
        records=records,
    )


def scored(task: Task, text: str, example: Example, stop_reason: str, thinking: bool) -> tuple[Score, str | None]:
    """Return the score. If the scorer fails, return outcome ``failed`` and its message. ``rescore`` can score later."""
    try:
        return task.score(text, example, stop_reason, thinking=thinking), None
    except Exception as error:
        return Score("failed", None), _sentence(error)


def written(pair: WithTokenizer, tokens: list[int]) -> str:
    """Return the text of new tokens, without special tokens."""
    return pair.tokenizer.batch_decode([tokens], skip_special_tokens=True)[0]


def opens_thinking(pair: WithTokenizer, prompt: Sequence[int], task: Task) -> bool:
    """Return whether a prompt ends inside of a thought, as the templates of some models write it."""
    return opens_thought(pair.tokenizer.batch_decode([list(prompt[-_LONGEST_MARK:])])[0], task.thought_marks)


def thought_tokens(pair: WithTokenizer, tokens: list[int], text: str, task: Task, thinking: bool) -> int:
    """Return the number of a text's tokens that belong to thoughts, with their marks.

    A token belongs where its last character does.
    """
    thoughts = split_thoughts(text, thinking=thinking, marks=task.thought_marks).thoughts

    def index(character: int) -> int:
        """Return the first number of tokens whose text reaches as far as ``character``."""
        return bisect.bisect_left(range(len(tokens)), character, key=lambda n: len(written(pair, tokens[:n])))

    return sum(index(end) - index(start) for start, end in thoughts)


def negative_log_likelihood(records: Sequence[RoundRecord]) -> float:
    """Return that of the emitted tokens, in nats. It is finite even if the model gives a token probability 0."""
    return -sum(math.log(max(p, SMALLEST_PROBABILITY)) for r in records for p in r.emitted_probability)


def failure(example: Example, position: int, error: Exception, seconds: float) -> GenerationRecord:
    """Return the record of a failed prompt, with its error message."""
    return GenerationRecord(
        position=position,
        example_id=example.id,
        prompt=example.prompt,
        turn=example.turn,
        group=example.group,
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
    """Return the user message, or a plain ``RuntimeError``, as torch raises it for exhausted memory and the like."""
    has_message = isinstance(error, FsdError) or not isinstance(error, RuntimeError)
    return user_message(error) if has_message else f"{type(error).__name__}: {error}"


logger = logging.getLogger(__name__)

PairLoader = Callable[[str, str, str], LoadedPair]
"""(name, device, dtype) -> pair: ``load_pair`` itself, or a loader with a cache."""
_T = TypeVar("_T")
Plan = Sequence[tuple[RunView, Sequence[int]]]
"""runs with the positions of some of their prompts, in the order of writing"""

_WARM_UP_ROUNDS = 3


@runtime_checkable
class TextGenerator(Protocol):
    """Writes prompts of runs. A run is opened before any other call for it."""

    def open(self, run: RunView) -> dict[str, Any]:
        """Return the provenance of the texts to be written, with ``weights`` if these have fingerprints.

        An ``identity`` of the pair stands beside it. Raises what ``load_pair`` raises, and ``DeviceUnavailable``.
        """
        ...

    def warm_up(self, run: RunView, example: Example) -> None:
        """Run and discard some rounds: the first ones of a process are slow and would be charged to one prompt."""
        ...

    def prompt_hash(self, run: RunView, example: Example) -> str:
        """Return the hash of the token ids that a prompt is rendered to, without a forward."""
        ...

    def plan(self, plan: Plan) -> None:
        """Receive the complete plan, once, when all runs are open."""
        ...

    def write(self, run: RunView, task: Task, examples: Mapping[int, Example]) -> Iterator[GenerationRecord]:
        """Yield a record for each prompt, by position, as soon as it is written. See ``harness.run_examples``."""
        ...

    def ask(self, pair: str, device: str, dtype: str, query: Callable[[LoadedPair], _T]) -> _T:
        """Return the answer of a picklable function for a pair. Raises what ``load_pair`` and the function raise."""
        ...

    def threads(self) -> int:
        """Return the current number of CPU threads."""
        ...


class LocalGenerator:
    """Writes in this process, with pairs from a loader."""

    def __init__(self, pair_loader: PairLoader, meter_of: MeterOf = nvml_meter) -> None:
        """``meter_of``: finds what reads the energy and the memory of a device."""
        self._pair_loader, self._meter_of = pair_loader, cache(meter_of)
        self._decoders: dict[str, PairDecoder] = {}  # by run

    def open(self, run: RunView) -> dict[str, Any]:
        pair = self._pair_loader(run.pair, run.config.device, run.config.dtype)
        self._decoders[run.id] = PairDecoder(pair, run.decoding)
        return about(pair)

    def warm_up(self, run: RunView, example: Example) -> None:
        warm_up(self._decoders[run.id], example)

    def prompt_hash(self, run: RunView, example: Example) -> str:
        return prompt_hash(self._decoders[run.id].prompt_ids(example.model_input))

    def plan(self, plan: Plan) -> None:
        """Do nothing: this generator needs no plan."""

    def write(self, run: RunView, task: Task, examples: Mapping[int, Example]) -> Iterator[GenerationRecord]:
        decoder = self._decoders[run.id]
        records = run_examples(decoder, task, examples, run.seed, run.config.batch)
        pair = decoder.pair  # what several devices take, one meter does not tell
        return metered(records, None if pair.target.split else self._meter_of(pair.device))

    def ask(self, pair: str, device: str, dtype: str, query: Callable[[LoadedPair], _T]) -> _T:
        return query(self._pair_loader(pair, device, dtype))

    def threads(self) -> int:
        return torch.get_num_threads()


def about(pair: LoadedPair) -> dict[str, Any]:
    """Return the provenance of the texts that a pair writes in this process."""
    details = provenance.collect(pair.computed_on, pair.dtype, torch.get_num_threads(), gpu_name(pair.device))
    details |= {"identity": pair.identity} if pair.identity else {}
    details |= ({"weights": pair.weights} if pair.weights else {}) | ({"note": pair.note} if pair.note else {})
    return details | kept_marks(template_marks(pair.tokenizer))


def warm_up(decoder: PairDecoder, example: Example) -> None:
    """See :meth:`TextGenerator.warm_up`. Raises ``ModelUnavailable`` if no prompt can be read."""
    try:
        list(islice(decoder.stream(decoder.prompt_ids(example.model_input), seed=0), _WARM_UP_ROUNDS))
    except ModelUnavailable:
        raise
    except Exception as error:  # a bad prompt is reported when its turn comes
        logger.info("The warm-up ended early: %s", error)
