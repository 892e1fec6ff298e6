"""Questions to one running engine, alone or many at once, and how it is told its rule.

How a running engine is told which rule to judge its drafts by: over HTTP, or by a command that restarts it.

The protocol is in docs/engines.md. Another engine has a knob if it answers as our plug-in for vLLM does
(:class:`PluginKnob`), or if a command can start it with one (:class:`RestartKnob`).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import queue
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import IO, Any, Protocol, Self, TypeVar

import httpx
from pydantic import ValidationError

from fsd_core.config import SamplingConfig
from fsd_core.config.vllm_plugin import OFF_KIND, SERVED_RULES, told_options
from fsd_core.engines.connection import (
    RPC,
    AnswerBroken,
    AskAgain,
    Choice,
    Delta,
    EngineConnection,
    EngineHosts,
    ListOfModels,
    MessageReader,
    StreamEvent,
    Timings,
    Usage,
    WorkerAnswers,
    key_of,
    shortened,
)
from fsd_core.engines.kinds import TRAITS, Snapshot, Takes, read_metrics
from fsd_core.errors import EngineUnavailable, Malformed, NotCalibratable, UnfitEngine
from fsd_core.rules import ENGINE_TITLES, Rule, Served

LONGEST_TOKEN = 1_024
"""characters, on the average of an answer"""
_FINISHED = {"stop": "eos", "eos": "eos", "length": "length"}


@dataclass
class AnswerStream:
    """The received part of an answer."""

    takes: Takes
    model: str
    most: int
    """tokens that were asked for"""
    vocabulary: int
    """one more than the largest token id"""
    text: list[str] = field(default_factory=list)
    token_ids: list[int] | None = None
    """of the answer, where the engine sends them"""
    finish_reason: str | None = None
    tokens: int | None = None
    """as the engine counts them"""
    prompt_tokens: int | None = None
    drafted: int = 0
    accepted: int = 0
    _characters: int = 0

    def take(self, event: StreamEvent) -> bool:
        """Take an event. Return whether it brought a part of the text.

        Raises ``AnswerBroken`` for more than was asked for, and ``EngineUnavailable`` for the answer of another model.
        """
        self._check_model(event.model)
        self._count(event.usage or Usage(), event.timings or Timings())
        choice = event.choices[0] if event.choices else Choice()
        self.finish_reason = choice.finish_reason or self.finish_reason
        if choice.token_ids is not None:
            self._take_ids(choice.token_ids)
        part, is_new = self._part(choice)
        self._characters += len(part)
        if self._characters > LONGEST_TOKEN * self.most:
            raise AnswerBroken(f"The engine wrote more characters than {self.most:,} tokens can have.")
        if part:
            self.text.append(part)
        return is_new

    @property
    def stop_reason(self) -> str:
        """``eos`` or ``length``. Raises ``AnswerBroken`` for an answer that did not end, or ended otherwise."""
        if self.finish_reason is None:
            raise AnswerBroken("The answer ended without saying why: the engine stopped in the middle of it.")
        if self.finish_reason not in _FINISHED:
            raise AnswerBroken(f"The engine ended the answer for the reason '{shortened(self.finish_reason)}'.")
        return _FINISHED[self.finish_reason]

    def _take_ids(self, ids: list[int]) -> None:
        self.token_ids = self.token_ids or []
        self.token_ids += ids
        if (largest := max(ids, default=0)) >= self.vocabulary:
            raise AnswerBroken(
                f"The engine sent the token id {largest}, which is beyond the pair's vocabulary: name a pair whose "
                "target is the engine's model."
            )
        self._check_number(len(self.token_ids))

    def _part(self, choice: Choice) -> tuple[str, bool]:
        """Return the new text, and whether anything was written, be it a thought that stands beside the text."""
        if self.takes != "messages":
            return choice.text or "", bool(choice.text)
        delta = choice.delta or Delta()
        return delta.content or "", bool(delta.content or delta.reasoning_content or delta.reasoning)

    def _count(self, usage: Usage, timings: Timings) -> None:
        if usage.completion_tokens is not None:
            self.tokens = usage.completion_tokens
            self._check_number(self.tokens)
        if usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
        self.drafted, self.accepted = timings.draft_n or self.drafted, timings.draft_n_accepted or self.accepted
        if self.accepted > self.drafted:
            raise AnswerBroken(f"The engine says that it accepted {self.accepted} of {self.drafted} drafted tokens.")

    def _check_number(self, tokens: int) -> None:
        if tokens > self.most:
            raise AnswerBroken(f"The engine says that it wrote {tokens:,} tokens, and {self.most:,} were asked for.")

    def _check_model(self, model: str | None) -> None:
        """Servers add a revision or a date to the name, or leave a part out."""
        if not model or model.startswith(self.model) or self.model.startswith(model):
            return
        raise EngineUnavailable(
            f"The engine answers as the model {shortened(model)!r}, and the endpoint says '{self.model}': correct the "
            "endpoint, or start the engine with that model."
        )


RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""waits before a request is sent again"""
DEADLINE = 600.0
"""seconds for one answer"""


@dataclass(frozen=True)
class EngineQuestion:
    """One prompt as an engine is asked it."""

    prompt: list[int] | str | list[dict[str, Any]]
    """token ids, a text or messages: whatever its kind takes"""
    max_new_tokens: int
    seed: int
    sampling: SamplingConfig
    vocabulary: int
    """one more than the largest token id of an answer"""
    salt: str = ""
    """keeps what vLLM remembers of a prompt to the questions with the same one; empty for what all may share"""


@dataclass(frozen=True)
class AnswerTimes:
    """Wall seconds of one answer, from its request."""

    seconds: float
    time_to_first_token: float


class EngineClient:
    """One engine. It is used in one event loop, and closed there."""

    def __init__(
        self,
        engine: Served,
        key_variable: str = "",
        *,
        parallel: int = 1,
        deadline: float | None = None,
        waits: tuple[float, ...] | None = None,
        hosts: EngineHosts | None = None,
    ) -> None:
        """``key_variable``: the environment variable with the key; empty for none. ``hosts``: those that may be asked
        beside public ones; ``None``: any may. Raises ``InvalidSetting``, and ``Refused`` for an address by ``hosts``.
        """
        self.engine, self._traits = engine, TRAITS[engine.engine]
        self._deadline = DEADLINE if deadline is None else deadline
        self._waits = RETRY_SECONDS if waits is None else waits
        self._connection = EngineConnection(
            engine, key_variable, parallel=parallel, deadline=self._deadline, waits=self._waits, hosts=hosts
        )

    async def close(self) -> None:
        await self._connection.close()

    async def answer(self, question: EngineQuestion) -> tuple[AnswerStream, AnswerTimes, Exception | None]:
        """Return an answer, its times, and why it is not whole, if it is not.

        A request that was not answered at all is sent again, with growing waits. Once a part of an answer has come it
        is never asked for again, so nothing is counted twice. Raises ``EngineUnavailable``.
        """
        path, body = self._body(question)
        for delay in (*self._waits, None):
            stream = AnswerStream(self._traits.takes, self.engine.model, question.max_new_tokens, question.vocabulary)
            started, first, last = time.perf_counter(), 0.0, 0.0

            def timing(started: float = started) -> float:
                return time.perf_counter() - started

            try:
                async with (
                    asyncio.timeout(self._deadline),
                    self._connection.stream(path, body, streamed=True) as response,
                ):
                    async for event in self._connection.reader.events(response, question.max_new_tokens):
                        if stream.take(event) and not first:
                            first = timing()
                        last = timing()
                _ = stream.stop_reason
                return stream, AnswerTimes(last, first or last), None
            except AskAgain as again:
                if delay is None:
                    raise EngineUnavailable(again.sentence) from None
                await asyncio.sleep(again.pause(delay))
            except TimeoutError:
                error = AnswerBroken(
                    f"The engine did not end its answer within {self._deadline:g} seconds: ask for shorter answers or "
                    "fewer at once."
                )
                return stream, AnswerTimes(timing(), first), error
            except AnswerBroken as broken:
                return stream, AnswerTimes(timing(), first), broken
            except (httpx.HTTPError, httpx.StreamError) as error:
                said = f"The connection to the engine broke in the middle of its answer ({type(error).__name__})."
                return stream, AnswerTimes(timing(), first), AnswerBroken(said)
            finally:  # a key may come in several events
                stream.text = [self._connection.reader.redacted("".join(stream.text))]
        raise AssertionError("unreachable")

    async def check(self) -> dict[str, Any]:
        """Return ``engine``, its title and version, and ``max_model_len`` where it says so.

        Raises ``EngineUnavailable`` if it does not answer, is no engine, lacks the model, or makes its acceptance up.
        """
        facts: dict[str, Any] = {"engine": await self._title()}
        if not self._traits.lists_models:
            await self._connection.get_json("/health")
            return facts
        answer = await self._connection.get_json("/v1/models")
        try:
            models = {model.id: model for model in ListOfModels.model_validate(answer).data}
        except ValidationError:
            raise self._connection.no_engine("its list of models is none") from None
        if self.engine.model not in models:
            names = ", ".join(shortened(name)[:80] for name in list(models)[:10]) or "none"
            raise EngineUnavailable(
                f"The engine at {self.engine.url} has no model '{self.engine.model}': it serves {names}."
            )
        longest = models[self.engine.model].max_model_len
        return facts | ({} if longest is None else {"max_model_len": longest})

    async def snapshot(self) -> Snapshot | None:
        """Return the engine's counters, or ``None`` if it has no page of metrics, or none that can be read."""
        names = self._traits.counters
        page = await self._connection.page("/metrics") if names else None
        return Snapshot.of(read_metrics(page), names, self.engine.model) if names and page else None

    async def _title(self) -> str:
        title, path = ENGINE_TITLES[self.engine.engine], self._traits.version_path
        try:
            answer = await self._connection.get_json(path) if path else {}
        except EngineUnavailable:
            return title
        if synthetic := _synthetic(answer):
            raise EngineUnavailable(
                f"The engine makes its acceptance up ({synthetic}), and its texts with it: start it without that "
                "option, for nothing that it says is evidence."
            )
        told = answer if isinstance(answer, dict) else {}
        version = next((told[key] for key in ("version", "build_info") if isinstance(told.get(key), str)), "")
        return f"{title} {shortened(version)[:60]}".strip()

    async def ask_workers(self, method: str, *arguments: Any) -> list[Any]:
        """Return the answers of vLLM's workers to a call of a method of the extension that it was started with.

        It is sent again as long as the engine does not answer, so the method must stand being called twice. Raises
        ``EngineUnavailable``, and ``AnswerBroken`` with the engine's message if the method raised.
        """
        answer = await self._connection.ask_json(RPC, {"method": method, "args": list(arguments)})
        try:
            return WorkerAnswers.model_validate(answer).results
        except ValidationError:
            raise self._connection.no_engine(f"its answer to {RPC} has no results") from None

    def _body(self, question: EngineQuestion) -> tuple[str, dict[str, Any]]:
        """Return path and body of a request. What an engine would add to the sampling by itself is switched off."""
        sampling, traits = question.sampling, self._traits
        body: dict[str, Any] = {
            "model": self.engine.model, "temperature": sampling.temperature, "top_p": sampling.top_p,
            "seed": question.seed, "stream": True, **traits.neutral,
        }  # fmt: skip
        given = {"top_k": sampling.top_k or -1, "min_p": sampling.min_p}
        body |= {name: given[name] for name in traits.truncates}
        if self.engine.engine != "transformers-serve":  # it counts without being asked, and knows no such field
            body["stream_options"] = {"include_usage": True}
        if traits.takes == "messages":
            return "/v1/chat/completions", body | {
                "messages": question.prompt, "max_completion_tokens": question.max_new_tokens,
            }  # fmt: skip
        if question.salt and self.engine.engine == "vllm":
            body["cache_salt"] = question.salt
        return "/v1/completions", body | {"prompt": question.prompt, "max_tokens": question.max_new_tokens}


def check_sampling(engine: Served, sampling: SamplingConfig) -> None:
    """Raise ``InvalidSetting`` for a way of sampling that an engine does not take."""
    takes = TRAITS[engine.engine].truncates
    asked = {"top_k": sampling.top_k, "min_p": sampling.min_p}
    for name, value in asked.items():
        if value and name not in takes:
            raise UnfitEngine(
                f"{ENGINE_TITLES[engine.engine]} takes no {name.replace('_', '-')}: leave it out, or choose an engine "
                "of another kind."
            )


def _synthetic(answer: Any, path: str = "") -> str:
    """Return the name of a setting by which llama.cpp makes up what is accepted, such as ``--spec-synth-len``, if one
    is in force."""
    if isinstance(answer, dict):
        return next(filter(None, (_synthetic(value, str(key)) for key, value in answer.items())), "")
    is_on = bool(answer) and not (isinstance(answer, int | float) and answer <= 0)
    return path if "synth" in path and is_on else ""


_T = TypeVar("_T")


def poisson_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Return when each of ``count`` prompts arrives, in seconds from the first: a Poisson process of ``rate`` a second.

    The gaps are independent and exponential with the mean 1 / rate, so prompts come in bunches as those of people do.
    The same seed draws the same gaps, which scale with 1 / rate.
    """
    draw = Random(seed)
    return list(accumulate([0.0, *(draw.expovariate(1.0) / rate for _ in range(count - 1))][:count]))


async def arriving(
    questions: Iterable[tuple[float, _T]], most: int, ask: Callable[[_T, float, bool], Awaitable[None]]
) -> None:
    """Ask each question when it arrives, in seconds from now, ascending. At most ``most`` are open at once.

    ``ask`` is given the question, the seconds since it arrived, and whether it was held back because as many were open
    as may be. The clock is the running loop's. Raises the first error of ``ask``, in a group.
    """
    loop, free = asyncio.get_running_loop(), asyncio.Semaphore(most)
    started, full_until = loop.time(), -math.inf

    async def asked(question: _T, waited: float, held: bool) -> None:
        try:
            await ask(question, waited, held)
        finally:
            free.release()

    async with asyncio.TaskGroup() as group:
        for arrival, question in questions:
            at = started + arrival
            await asyncio.sleep(max(0.0, at - loop.time()))
            was_full = free.locked()
            await free.acquire()
            full_until = loop.time() if was_full else full_until
            group.create_task(asked(question, max(0.0, loop.time() - at), at <= full_until))


POLL_SECONDS = 0.25
"""between two looks whether to go on waiting"""


@dataclass(frozen=True)
class EngineAnswer:
    """An answer as it arrived."""

    stream: AnswerStream
    timing: AnswerTimes
    share: float
    """seconds, as its share of the time in which it and others were being answered; they sum to the wall time"""
    error: Exception | None
    """why it is not whole"""
    waited: float = 0.0
    """seconds from its arrival to its request, where prompts arrive at a rate"""
    held: bool = False
    """whether it was held back on arrival, since as many were open as may be"""


class _SharedClock:
    """Divides the time among the questions that are open, as a batch divides its rounds among its texts."""

    def __init__(self) -> None:
        self._open, self._each, self._at = 0, 0.0, time.perf_counter()

    def open(self) -> float:
        """Count one more. Return what :meth:`close` needs."""
        self._advance()
        self._open += 1
        return self._each

    def close(self, opened: float) -> float:
        """Count one less. Return its share in seconds."""
        self._advance()
        self._open -= 1
        return self._each - opened

    def _advance(self) -> None:
        now = time.perf_counter()
        if self._open:
            self._each += (now - self._at) / self._open
        self._at = now


class EngineLoad:
    """Asks one engine from a thread with an event loop. To be closed."""

    def __init__(self, make_client: Callable[[], EngineClient], on_wait: Callable[[], None] = lambda: None) -> None:
        """``make_client`` is called in the thread. ``on_wait`` is called now and then while an answer is awaited, and
        raises what should end that. Raises what both raise."""
        self._on_wait = on_wait
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()

        async def made() -> EngineClient:
            return make_client()

        try:
            self.client = self._wait(made())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """End what is open, and the thread."""
        with suppress(Exception):  # whatever a broken connection raises
            asyncio.run_coroutine_threadsafe(self.client.close(), self._loop).result()
        self._stop()

    def call(self, method: Callable[[EngineClient], Any]) -> Any:
        """Run a coroutine method of the client and return its result."""
        return self._wait(method(self.client))

    def ask(
        self, questions: Mapping[int, EngineQuestion], parallel: int, arrivals: Sequence[float] = ()
    ) -> Iterator[tuple[int, EngineAnswer]]:
        """Yield the answers by key as they end, ``parallel`` questions at a time, in the order of the mapping.

        With ``arrivals``, in seconds from now, a question is asked when it arrives, and at most ``parallel`` are open.

        Raises ``EngineUnavailable`` after the answers that ended before. Closing the iterator ends what is open.
        """
        answers: queue.SimpleQueue[tuple[int, EngineAnswer] | BaseException | None] = queue.SimpleQueue()
        work = asyncio.run_coroutine_threadsafe(self._ask(questions, parallel, arrivals, answers.put), self._loop)
        try:
            while True:
                try:
                    item = answers.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    self._on_wait()
                    continue
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            work.cancel()

    async def _ask(
        self,
        questions: Mapping[int, EngineQuestion],
        parallel: int,
        arrivals: Sequence[float],
        put: Callable[[tuple[int, EngineAnswer] | BaseException | None], None],
    ) -> None:
        waiting, clock = iter(questions.items()), _SharedClock()

        async def ask_one(item: tuple[int, EngineQuestion], waited: float = 0.0, held: bool = False) -> None:
            key, question = item
            opened = clock.open()
            try:
                stream, timing, error = await self.client.answer(question)
            finally:
                share = clock.close(opened)
            put((key, EngineAnswer(stream, timing, share, error, waited, held)))

        async def ask_in_turn() -> None:
            for item in waiting:
                await ask_one(item)

        try:
            if arrivals:
                await arriving(zip(arrivals, waiting, strict=True), parallel, ask_one)
                put(None)
                return
            async with asyncio.TaskGroup() as group:
                for _ in range(min(parallel, len(questions))):
                    group.create_task(ask_in_turn())
        except BaseExceptionGroup as errors:
            put(errors.exceptions[0])
        except BaseException as error:
            put(error)
            raise
        else:
            put(None)

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        result = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while not wait([result], POLL_SECONDS).done:
                self._on_wait()
            return result.result()
        finally:
            result.cancel()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def check_engine(
    served: Served, key_variable: str = "", *, hosts: EngineHosts | None = None, quickly: bool = False
) -> dict[str, Any]:
    """Return facts on a running engine. Raises as :meth:`EngineClient.check` and its constructor do.

    ``quickly`` asks once and waits for ten seconds, for a person who waits.
    """
    waits, deadline = ((), 10.0) if quickly else (None, None)
    load = EngineLoad(lambda: EngineClient(served, key_variable, waits=waits, deadline=deadline, hosts=hosts))
    try:
        return load.call(EngineClient.check)
    finally:
        load.close()


START_SECONDS = 1800.0
"""within which a restarted engine must answer"""
_METHOD = "fsd_lab_rule"
"""of the workers: with a rule it puts it in force; it answers the rule in force"""
_STOP_SECONDS = 30.0
_PLACE = re.compile(r"\{(rule|kind|knob)\}")


class EngineKnob(Protocol):
    """A way to tell an engine its rule."""

    by_restart: bool
    """whether telling takes so long that settings do their prompts one after the other, and not in turns"""

    def tell(self, load: EngineLoad, served: Served) -> None:
        """Have the engine use ``served.rule`` from now on; if it does already, do nothing that matters.

        Raises ``EngineUnavailable``, and ``FsdError`` for a rule that the engine refuses.
        """
        ...

    def check(self, load: EngineLoad, served: Served) -> None:
        """Raise ``EngineUnavailable`` if the engine says that another rule is in force."""
        ...


def is_told(served: Served) -> bool:
    """Whether an engine of this kind can be told a rule while it runs."""
    return served.engine == "vllm"


def check_told(served: Served) -> None:
    """Raise ``EngineUnavailable`` for an engine that is told no rule while it runs."""
    if not is_told(served):
        raise EngineUnavailable(
            f"{ENGINE_TITLES[served.engine]} is told no rule while it runs: have it restarted by a command, with "
            "`calibrate --endpoint … --restart …`."
        )


class PluginKnob:
    """``POST /collective_rpc`` of a vLLM development server with our plug-in's worker extension."""

    by_restart: bool = False

    def tell(self, load: EngineLoad, served: Served) -> None:
        check_told(served)
        self._hold(served, load.call(lambda client: client.ask_workers(_METHOD, told_options(served.rule))))

    def check(self, load: EngineLoad, served: Served) -> None:
        self._hold(served, load.call(lambda client: client.ask_workers(_METHOD)))

    def _hold(self, served: Served, told: Sequence[Any]) -> None:
        """Hold what the workers say against what they were told."""
        rule, expected = served.rule, told_options(served.rule)
        needed = {"kind"} | ({rule.knob.field} if rule is not None and rule.knob is not None else set())
        for answer in told:
            known = answer if isinstance(answer, dict) else {}
            if needed - known.keys() or any(known[name] != expected[name] for name in known.keys() & expected.keys()):
                raise EngineUnavailable(
                    f"The engine at {served.url} was told the rule {json.dumps(expected)} and says that "
                    f"{shortened(json.dumps(answer))} is in force: it ignores its knob, or somebody else turns it. Let "
                    "one program at a time use it."
                )


class RestartKnob:
    """A command that starts or restarts the engine, from a template. It is run without a shell. To be closed.

    A command that goes on is the engine, and is stopped before the next start and at the end. One that ends with 0 has
    restarted the engine elsewhere.
    """

    by_restart: bool = True

    def __init__(self, command: str, rules: Sequence[Rule], key_variable: str = "") -> None:
        """``command``: words as a shell reads them, with ``{rule}``, ``{kind}`` or ``{knob}``. ``rules``: all that will
        be told. ``key_variable``: see :class:`EngineClient`. Raises ``InvalidSetting``."""
        self._key_variable = key_variable
        self._words, self._strict = template_words(command), _strict_rule(rules)
        self._process: subprocess.Popen[bytes] | None = None
        self._told: Rule | None = None
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 — closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._output.close()

    def tell(self, load: EngineLoad, served: Served) -> None:
        """See :meth:`EngineKnob.tell`. Waits until the engine answers."""
        rule = served.rule
        if rule == self._told and (self._process is None or self._process.poll() is None):
            return
        self._stop()
        was_there = self._answers(served)
        self._output.truncate(0)
        words = filled(self._words, rule, self._strict)
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise EngineUnavailable(f"The command '{shortened(words[0])}' cannot be run: {error}.") from None
        self._wait(self._process, served, was_there)
        self._told = rule

    def check(self, load: EngineLoad, served: Served) -> None:
        """Raise ``EngineUnavailable`` if the engine that was started has ended."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise EngineUnavailable(f"The engine that the command started has ended. {self._last_words()}")

    def _wait(self, process: subprocess.Popen[bytes], served: Served, was_there: bool) -> None:
        """Wait until the new engine answers; the one that was there before is not taken for it."""
        begun = time.monotonic()
        while time.monotonic() - begun < START_SECONDS:
            status = process.poll()
            if status:
                busy = f" Something else answers at {served.url}: stop it." if was_there else ""
                raise EngineUnavailable(f"The command ended with {status}.{busy} {self._last_words()}")
            if (status == 0 or not was_there) and self._answers(served):
                return
            time.sleep(0.2)
        self._stop()
        raise EngineUnavailable(
            f"The command was started, and no new engine answered at {served.url} within {START_SECONDS:g} seconds. "
            f"{self._last_words()}"
        )

    def _answers(self, served: Served) -> bool:
        """Whether an engine is there, asked once."""
        load = EngineLoad(lambda: EngineClient(served, self._key_variable, deadline=5.0, waits=()))
        try:
            load.call(EngineClient.check)
        except EngineUnavailable:
            return False
        finally:
            load.close()
        return True

    def _stop(self) -> None:
        """End what the command started, and all that this started."""
        process, self._process, self._told = self._process, None, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)

    def _last_words(self) -> str:
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 2000))
        lines = self._output.read().decode("utf-8", "replace").strip().splitlines()
        reader = MessageReader(key_of(self._key_variable))
        return f"Its last line: {reader.shortened(lines[-1])}" if lines else "It printed nothing."


def template_words(command: str) -> list[str]:
    """Return the words of a command's template. Raises ``InvalidSetting``."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Malformed(f"The command cannot be read ({error}): quote it as for a shell.") from None
    if not any(_PLACE.search(word) for word in words):
        raise UnfitEngine(
            "The command has no place for the rule: write {rule} where its JSON belongs, or {knob} where its value "
            "does."
        )
    return words


def filled(words: Sequence[str], rule: Rule | None, strict: Rule) -> list[str]:
    """Return a command. A value stays inside of its word, whatever it holds. ``strict`` stands for no rule."""
    rule = strict if rule is None or rule.lossless else rule
    options = told_options(None) if rule is strict else told_options(rule)
    value = rule.knob_value
    values = {"rule": json.dumps(options), "kind": rule.kind, "knob": OFF_KIND if value is None else f"{value:g}"}
    return [_PLACE.sub(lambda place: values[place[1]], word) for word in words]


def _strict_rule(rules: Sequence[Rule]) -> Rule:
    """Return the rule whose knob stands at its strict value. Raises ``InvalidSetting`` unless there is one."""
    lossy = [rule for rule in rules if not rule.lossless]
    kinds = list(dict.fromkeys(rule.kind for rule in lossy))
    knob = lossy[0].knob if len(kinds) == 1 else None
    if knob is None or not knob.is_off:
        raise NotCalibratable(
            "A command that restarts the engine turns the knob of one rule that can be strict: name one with "
            f"--acceptance, such as {SERVED_RULES[1]}, and not {' and '.join(kinds) or 'none'}."
        )
    return lossy[0].model_copy(update={knob.field: knob.strict})
