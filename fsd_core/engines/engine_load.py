"""Many questions to an engine, so many at once, from a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fsd_core.engines.answer_stream import AnswerStream
from fsd_core.engines.engine_arrivals import arriving
from fsd_core.engines.engine_client import AnswerTimes, EngineClient, EngineQuestion
from fsd_core.engines.engine_hosts import EngineHosts
from fsd_core.rules import Served

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
