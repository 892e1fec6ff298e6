"""Runs of running engines: their prompts are asked over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import ValidationError
from transformers import PreTrainedTokenizerBase

from fsd_core.config.model_names import template_arguments_of
from fsd_core.engines.client import (
    EngineAnswer,
    EngineClient,
    EngineKnob,
    EngineLoad,
    EngineQuestion,
    check_sampling,
    poisson_arrivals,
)
from fsd_core.engines.connection import EngineHosts
from fsd_core.engines.kinds import TRAITS, EngineReading, Snapshot
from fsd_core.errors import EngineUnavailable, FsdError, PromptTooLong, UnfitEngine, UnknownName
from fsd_core.evaluation.harness import (
    Plan,
    TextGenerator,
    failure,
    opens_thinking,
    prompt_seed,
    scored,
    thought_tokens,
    written,
)
from fsd_core.frozen import text_hash
from fsd_core.models.conversation import TOOLS, fields_of, kept_marks, split_thoughts
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.prompt import encode_prompt, prompt_hash, render_prompt, template_marks, tokenizer_of
from fsd_core.rules import Served
from fsd_core.settings import get_settings
from fsd_core.storage.records import GenerationRecord, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import ServedEngineRow
from fsd_core.tasks import Example, Task

READING_SECONDS = 5.0
"""between two readings of an engine's counters while it answers"""
PADDING = 1_024
"""rows that a model may have beyond its tokenizer's tokens"""


def served_by(run: RunView) -> Served | None:
    """Return the engine that writes a run's texts, or ``None`` where a pair does."""
    rule = run.decoding.acceptance
    return rule if isinstance(rule, Served) else None


@dataclass
class ServedRun:
    """One run of an engine, while this process measures it."""

    run: RunView
    served: Served
    tokenizer: PreTrainedTokenizerBase
    """the pair's, which renders the prompts and counts what the engine does not"""
    load: EngineLoad
    context: int | None
    """of the engine, in tokens; ``None``: unknown"""
    record: Callable[[str, dict[str, Any]], None]
    """stores a reading of the counters, by the id of its stretch"""
    knob: EngineKnob | None = None
    """tells the engine the run's rule; ``None`` if it has none"""
    stretch: str = field(default_factory=lambda: uuid4().hex)
    reading: EngineReading | None = None

    def prompt_ids(self, example: Example) -> list[int]:
        """Return the token ids of a prompt, as the pair's target would read it. Raises as ``encode_prompt`` does."""
        template = self.run.decoding.template.filled(template_arguments_of(self.run.pair))
        return encode_prompt(self.tokenizer, example.model_input, self.context, template)

    def question(self, example: Example, position: int) -> EngineQuestion:
        """Return a prompt as the engine is asked it.

        Raises ``PromptTooLong`` for one that fills the engine's context, and ``InvalidSetting`` for one that an engine
        would read otherwise than the pair's target.
        """
        decoding, longest = self.run.decoding, self.run.decoding.max_new_tokens
        prompt: Any
        if TRAITS[self.served.engine].takes == "messages":
            prompt = _messages(example)
        else:
            prompt = ids = self.prompt_ids(example)
            if self.context is not None:
                longest = min(longest, self.context - len(ids))
                if longest < 1:
                    raise PromptTooLong(
                        f"The prompt has {len(ids)} tokens, and the engine's context is {self.context}: shorten it, or "
                        "start the engine with a longer one."
                    )
            if TRAITS[self.served.engine].takes == "text":
                prompt = self._text(example, ids)
        # What the engine remembers of a prompt would make it faster for the rule that comes second.
        salt = "" if self.knob is None else self.run.id
        seed, vocabulary = prompt_seed(self.run.seed, position), len(self.tokenizer) + PADDING
        return EngineQuestion(prompt, longest, seed, decoding.sampling, vocabulary, salt)

    def prompt_hash(self, example: Example) -> str:
        """Return the hash of the prompt as the engine reads it."""
        if TRAITS[self.served.engine].takes == "messages":
            return text_hash(json.dumps(_messages(example)))
        return prompt_hash(self.prompt_ids(example))

    def write(self, task: Task, examples: Mapping[int, Example]) -> Generator[GenerationRecord]:
        """Yield a record for each prompt, as soon as its answer ends. The counters are read before and after.

        An engine with a knob is told the run's rule before, and says that it is in force after each answer. Raises
        ``EngineUnavailable``, after the answers that ended before.
        """
        questions = {}
        for position, example in examples.items():
            try:
                questions[position] = self.question(example, position)
            except Exception as error:
                yield failure(example, position, error, 0.0)
        if self.knob is not None:
            self.knob.tell(self.load, self.served)
        before, base = self._snapshot(), self.reading
        part, read_at, asked = EngineReading(), time.monotonic(), set(questions)
        try:
            for position, answer in self.load.ask(questions, self.run.config.batch, self._arrivals(len(questions))):
                record, counted = self._record(task, examples[position], position, answer)
                part = _plus(part, **counted)
                asked.discard(position)
                if asked and time.monotonic() - read_at > READING_SECONDS:
                    self._read(base, before, _plus(part, unfinished=self.run.config.batch))
                    read_at = time.monotonic()
                elif not asked:
                    part = self._read(base, before, part)
                if self.knob is not None:
                    self.knob.check(self.load, self.served)
                    record = _with_counts(record, part) if len(questions) == 1 else record
                yield record
        finally:
            if asked and part.requests:
                self._read(base, before, _plus(part, unfinished=len(asked)))

    def _arrivals(self, count: int) -> list[float]:
        """Return when so many prompts arrive, in seconds from now; none where the next is asked as one ends."""
        rate = self.run.config.rate
        return poisson_arrivals(count, rate, self.run.seed) if rate else []

    def _read(self, base: EngineReading | None, before: Snapshot | None, part: EngineReading) -> EngineReading:
        """Record what the counters say since ``before``, and return it with ``part``."""
        part = part.counted(before, self._snapshot(), TRAITS[self.served.engine].no_acceptance)
        self.reading = part if base is None else base.plus(part)
        self.record(self.stretch, self.reading.as_json())
        return part

    def _snapshot(self) -> Snapshot | None:
        return self.load.call(EngineClient.snapshot)

    def _text(self, example: Example, ids: list[int]) -> str:
        template = self.run.decoding.template.filled(template_arguments_of(self.run.pair))
        text, _ = render_prompt(self.tokenizer, example.model_input, template)
        if self.tokenizer(text, verbose=False)["input_ids"] != ids:
            raise UnfitEngine(
                "The engine takes texts alone and would add special tokens to this prompt, which the template has "
                "written already: choose an engine that takes token ids, such as vllm."
            )
        return text

    def _record(
        self, task: Task, example: Example, position: int, answer: EngineAnswer
    ) -> tuple[GenerationRecord, dict[str, int]]:
        """Return the record of an answer, and what it adds to the counts of :class:`EngineReading`."""
        stream, text = answer.stream, "".join(answer.stream.text)
        if answer.error is not None:
            return replace(failure(example, position, answer.error, answer.share), text=text), {"unfinished": 1}
        takes_messages = TRAITS[self.served.engine].takes == "messages"
        ids = [] if takes_messages else self.prompt_ids(example)
        tokens = stream.token_ids or self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        own = written(self, stream.token_ids) if stream.token_ids else ""
        text = (
            own if split_thoughts(own, marks=task.thought_marks).thoughts else text
        )  # engines leave out special tokens
        thinking = bool(ids) and opens_thinking(self, ids, task)
        stop = stream.stop_reason
        asked = self.run.decoding.max_new_tokens
        if stop == "length" and self.context is not None and self.context - len(ids) < asked:
            stop = "context"
        score, error = scored(task, text, example, stop, thinking)
        differs = bool(ids) and stream.prompt_tokens not in (None, len(ids))
        record = GenerationRecord(
            position=position, example_id=example.id, prompt=example.prompt, turn=example.turn, group=example.group,
            prompt_hash=self.prompt_hash(example) if takes_messages else prompt_hash(ids),
            reference=example.reference, text=text, answer=score.answer,
            outcome=score.outcome, stop_reason=stop, error=error,
            tokens=len(tokens) if stream.tokens is None else stream.tokens,
            thought_tokens=thought_tokens(self, tokens, text, task, thinking),
            rounds=0, drafted=stream.drafted, accepted=stream.accepted, fuzzy=0, negative_log_likelihood=0.0,
            seconds=answer.share, time_to_first_token=answer.waited + answer.timing.time_to_first_token,
            latency=answer.waited + answer.timing.seconds,
        )  # fmt: skip
        counts = {"requests": 1, "tokens": record.tokens, "prompts_differ": int(differs), "held": int(answer.held)}
        return record, counts | {"counted_here": int(stream.tokens is None)}


def _plus(part: EngineReading, **counts: int) -> EngineReading:
    return part.model_copy(update={name: getattr(part, name) + number for name, number in counts.items()})


def _with_counts(record: GenerationRecord, part: EngineReading) -> GenerationRecord:
    """Return the record of the only answer of a stretch with what the engine counted meanwhile, if it was all ours."""
    if part.drafted is None or part.accepted is None or part.other_traffic is not False:
        return record
    return replace(record, drafted=part.drafted, accepted=part.accepted)


def _messages(example: Example) -> list[dict[str, Any]]:
    """Return a prompt as messages of OpenAI's API. Raises ``InvalidSetting`` for one with tools."""
    asked = example.model_input
    messages = [("user", asked)] if isinstance(asked, str) else asked
    if any(message[0] == TOOLS for message in messages):
        raise UnfitEngine("An engine that takes messages is not told of tools here: choose one that takes token ids.")
    return [{"role": message[0], "content": message[1], **fields_of(message)} for message in messages]


def readings_of(repository: Repository, run_id: str) -> list[EngineReading]:
    """Return the readings of a run's counters so far, without those that cannot be read."""
    readings = []
    for stored in repository.readings(run_id):
        try:
            readings.append(EngineReading.model_validate(stored))
        except (ValidationError, FsdError):
            continue
    return readings


_T = TypeVar("_T")


class WithEngines:
    """A :class:`fsd_core.evaluation.harness.TextGenerator` that asks engines for their runs, and another one for all
    other runs. To be closed, as a context manager."""

    def __init__(
        self, others: TextGenerator, repository: Repository, knob: EngineKnob, on_wait: Callable[[], None]
    ) -> None:
        """``knob``: tells engines the rules of runs that have one. ``on_wait``: see :class:`EngineLoad`."""
        self._others, self._repository, self._knob, self._on_wait = others, repository, knob, on_wait
        self._served: dict[str, ServedRun] = {}
        self._writing: dict[str, Generator[GenerationRecord]] = {}
        """by run; what was cut off reads the counters when it is closed"""

    def __enter__(self) -> WithEngines:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as ends:  # an error of one leaves the others to be closed
            for served in self._served.values():
                ends.callback(served.load.close)
            for writing in self._writing.values():
                ends.callback(writing.close)
        self._served.clear()

    def open(self, run: RunView) -> dict[str, Any]:
        """Return the provenance of a run's texts: for an engine its kind and version, and the load."""
        served = served_by(run)
        if served is None:
            return self._others.open(run)
        check_sampling(served, run.decoding.sampling)
        spec = get_pair(run.pair)
        tokenizer = tokenizer_of(spec.target, spec.adapter)
        engine = self._endpoint(served)
        hosts = EngineHosts.of(get_settings()) if engine.guarded else None
        knob = None if served.rule is None else self._knob
        load = EngineLoad(
            lambda: EngineClient(served, engine.key_variable, parallel=run.config.batch, hosts=hosts), self._on_wait
        )
        try:
            if knob is not None:
                knob.tell(load, served)
            facts = load.call(EngineClient.check)
        except BaseException:
            load.close()
            raise

        def record(stretch: str, reading: dict[str, Any]) -> None:
            self._repository.record_reading(run.id, stretch, reading)

        self._served[run.id] = ServedRun(run, served, tokenizer, load, facts.get("max_model_len"), record, knob)
        facts |= kept_marks(template_marks(tokenizer))
        return facts | ({"gpu": engine.hardware} if engine.hardware else {})

    def warm_up(self, run: RunView, example: Example) -> None:
        """Leave an engine alone: what it does first is its affair, and a text would count in its metrics."""
        if run.id not in self._served:
            self._others.warm_up(run, example)

    def prompt_hash(self, run: RunView, example: Example) -> str:
        """Return the hash of the prompt as the pair or the engine reads it."""
        served = self._served.get(run.id)
        return self._others.prompt_hash(run, example) if served is None else served.prompt_hash(example)

    def plan(self, plan: Plan) -> None:
        """Hand on the plan of the runs that no engine writes."""
        self._others.plan([(run, positions) for run, positions in plan if run.id not in self._served])

    def write(self, run: RunView, task: Task, examples: Mapping[int, Example]) -> Iterator[GenerationRecord]:
        """Yield the records of a run's prompts, from whoever writes them."""
        served = self._served.get(run.id)
        if served is None:
            return self._others.write(run, task, examples)
        writing = self._writing[run.id] = served.write(task, examples)
        return writing

    def ask(self, pair: str, device: str, dtype: str, query: Callable[[LoadedPair], _T]) -> _T:
        """Ask the generator of the pairs."""
        return self._others.ask(pair, device, dtype, query)

    def threads(self) -> int:
        """Return the number of CPU threads of the generator of the pairs."""
        return self._others.threads()

    def _endpoint(self, served: Served) -> ServedEngineRow:
        """Return an endpoint, which must be what the run says. Raises ``EngineUnavailable``."""
        try:
            engine = self._repository.engine(served.endpoint)
        except UnknownName:
            raise EngineUnavailable(
                f"There is no endpoint '{served.endpoint}' any more: add it again with `endpoints add`."
            ) from None
        if engine.served != served.engine_alone:
            raise EngineUnavailable(
                f"The endpoint '{served.endpoint}' is another engine now than the one of this run ({served.url}): add "
                "it as it was, or start a new run."
            )
        return engine
