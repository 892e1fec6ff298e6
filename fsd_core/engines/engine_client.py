"""Questions to one running engine, with retries, and the facts that it tells of itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import ValidationError

from fsd_core.config import SamplingConfig
from fsd_core.engines.answer_stream import AnswerStream
from fsd_core.engines.engine_connection import RPC, AskAgain, EngineConnection
from fsd_core.engines.engine_counters import Snapshot, read_metrics
from fsd_core.engines.engine_hosts import EngineHosts
from fsd_core.engines.engine_messages import AnswerBroken, ListOfModels, WorkerAnswers, shortened
from fsd_core.engines.engine_traits import TRAITS
from fsd_core.errors import EngineUnavailable, UnfitEngine
from fsd_core.rules import ENGINE_TITLES, Served

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
        for wait in (*self._waits, None):
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
                if wait is None:
                    raise EngineUnavailable(again.sentence) from None
                await asyncio.sleep(again.pause(wait))
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
