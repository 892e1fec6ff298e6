"""Requests to one running engine, with retries. Its key is read from the environment and stays in memory."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from fsd_core.addresses import LOOPBACK
from fsd_core.config import SamplingConfig
from fsd_core.config.vllm_plugin import WORKER_EXTENSION
from fsd_core.engines.answer_stream import AnswerBroken, AnswerStream, message_of, shortened
from fsd_core.engines.engine_counters import Sample, read_metrics
from fsd_core.engines.engine_hosts import CheckedTransport, EngineHosts
from fsd_core.engines.engine_traits import TRAITS
from fsd_core.errors import EngineUnavailable, InvalidSetting
from fsd_core.rules import ENGINE_TITLES, Served

RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""waits before a request is sent again"""
DEADLINE = 600.0
"""seconds for one answer"""
RPC = "/collective_rpc"
"""address of vLLM's development server that calls a method of its workers"""
_LONGEST_WAIT = 60.0
_AGAIN = (429, 502, 503, 504)
_LARGEST_PAGE = 5_000_000
"""bytes of a page that is read whole"""


@dataclass(frozen=True)
class EngineQuestion:
    """One prompt as an engine is asked it."""

    prompt: list[int] | str | list[dict[str, Any]]
    """token ids, a text or messages: whatever its kind takes"""
    max_new_tokens: int
    seed: int
    sampling: SamplingConfig
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
        if hosts is not None:
            hosts.check(engine)
        self.engine, self._traits = engine, TRAITS[engine.engine]
        self._deadline = DEADLINE if deadline is None else deadline
        self._waits = RETRY_SECONDS if waits is None else waits
        self._key_variable, self._key = key_variable, _key(key_variable)
        is_local = urlsplit(engine.url).hostname in LOOPBACK
        limits = httpx.Limits(max_connections=parallel + 1, max_keepalive_connections=parallel + 1)
        self._http = httpx.AsyncClient(
            base_url=engine.url,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(None, connect=min(10.0, self._deadline)),
            limits=limits,
            trust_env=not is_local,
            transport=CheckedTransport(hosts, limits) if hosts is not None else None,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def answer(self, question: EngineQuestion) -> tuple[AnswerStream, AnswerTimes, Exception | None]:
        """Return an answer, its times, and why it is not whole, if it is not.

        A request that was not answered at all is sent again, with growing waits. Once a part of an answer has come it
        is never asked for again, so nothing is counted twice. Raises ``EngineUnavailable``.
        """
        path, body = self._body(question)
        for wait in (*self._waits, None):
            stream = AnswerStream(self._traits.takes, self.engine.model)
            started, first, last = time.perf_counter(), 0.0, 0.0

            def timing(started: float = started) -> float:
                return time.perf_counter() - started

            try:
                async with asyncio.timeout(self._deadline), self._stream(path, body, streamed=True) as response:
                    async for line in response.aiter_lines():
                        if stream.take(line) and not first:
                            first = timing()
                        last = timing()
                _ = stream.stop_reason
                return stream, AnswerTimes(last, first or last), None
            except _Again as again:
                if wait is None:
                    raise EngineUnavailable(again.sentence) from None
                await asyncio.sleep(min(_LONGEST_WAIT, max(wait, again.seconds)))
            except TimeoutError:
                error = AnswerBroken(
                    f"The engine did not end its answer within {self._deadline:g} seconds: ask for shorter answers or "
                    "fewer at once."
                )
                return stream, AnswerTimes(timing(), first), error
            except AnswerBroken as broken:
                return stream, AnswerTimes(timing(), first), AnswerBroken(self._redacted(str(broken)))
            except (httpx.HTTPError, httpx.StreamError) as error:
                said = f"The connection to the engine broke in the middle of its answer ({type(error).__name__})."
                return stream, AnswerTimes(timing(), first), AnswerBroken(said)
        raise AssertionError("unreachable")

    async def models(self) -> dict[str, dict[str, Any]]:
        """Return the engine's facts on each model that it serves, by id. Raises ``EngineUnavailable``."""
        answer = await self._get_json("/v1/models")
        listed = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            raise self._no_engine("its list of models is none")
        return {str(model["id"]): model for model in listed if isinstance(model, dict) and "id" in model}

    async def check(self) -> dict[str, Any]:
        """Return ``engine``, its title and version, and ``max_model_len`` where it says so.

        Raises ``EngineUnavailable`` if it does not answer, is no engine, lacks the model, or makes its acceptance up.
        """
        facts: dict[str, Any] = {"engine": await self._title()}
        if not self._traits.lists_models:
            await self._get_json("/health")
            return facts
        models = await self.models()
        if self.engine.model not in models:
            names = ", ".join(shortened(name)[:80] for name in list(models)[:10]) or "none"
            raise EngineUnavailable(
                f"The engine at {self.engine.url} has no model '{self.engine.model}': it serves {names}."
            )
        longest = models.get(self.engine.model, {}).get("max_model_len")
        return facts | ({"max_model_len": longest} if isinstance(longest, int) else {})

    async def samples(self) -> list[Sample] | None:
        """Return the engine's page of metrics, or ``None`` if there is none or it cannot be read."""
        try:
            async with asyncio.timeout(min(30.0, self._deadline)):
                response = await self._http.get("/metrics")
        except (httpx.HTTPError, TimeoutError):
            return None
        if response.status_code != 200 or len(response.content) > _LARGEST_PAGE:
            return None
        return read_metrics(response.text) or None

    async def _title(self) -> str:
        title, path = ENGINE_TITLES[self.engine.engine], self._traits.version_path
        try:
            answer = await self._get_json(path) if path else {}
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
        answer = await self._json(RPC, {"method": method, "args": list(arguments)})
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or not results:
            raise self._no_engine(f"its answer to {RPC} has no results")
        return results

    async def _get_json(self, path: str) -> Any:
        try:
            return await self._json(path)
        except AnswerBroken as error:
            raise EngineUnavailable(f"{error} Expected an engine at {self.engine.url}.") from None

    async def _json(self, path: str, body: dict[str, Any] | None = None) -> Any:
        for wait in (*self._waits, None):
            try:
                async with (
                    asyncio.timeout(min(30.0, self._deadline)),
                    self._stream(path, body, streamed=False) as response,
                ):
                    return json.loads(await response.aread())
            except _Again as again:
                if wait is None:
                    raise EngineUnavailable(again.sentence) from None
                await asyncio.sleep(min(_LONGEST_WAIT, max(wait, again.seconds)))
            except (TimeoutError, httpx.HTTPError) as error:
                raise EngineUnavailable(
                    f"The engine at {self.engine.url} did not answer {path} ({type(error).__name__}): expected an "
                    "engine that has started."
                ) from None
            except ValueError:
                raise self._no_engine(f"its answer to {path} is no JSON") from None
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _stream(self, path: str, body: dict[str, Any] | None, *, streamed: bool) -> AsyncIterator[httpx.Response]:
        """Send a request; yield its answer if that is one of an engine. Raises ``_Again`` before anything came."""
        request = self._http.build_request("GET" if body is None else "POST", path, json=body)
        try:
            response = await self._http.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ReadError, httpx.WriteError,
                httpx.RemoteProtocolError) as error:  # fmt: skip
            if _untrusted(error):
                raise EngineUnavailable(
                    f"The certificate of {self.engine.url} is not trusted: name the file of its authority in "
                    "SSL_CERT_FILE, or use the address for which it was made."
                ) from None
            raise _Again(
                f"The engine at {self.engine.url} does not answer ({type(error).__name__}): start it, or correct the "
                "endpoint's address."
            ) from None
        except httpx.TimeoutException as error:
            raise TimeoutError from error
        try:
            await self._check(response, path, streamed=streamed)
            yield response
        finally:
            await response.aclose()

    async def _check(self, response: httpx.Response, path: str, *, streamed: bool) -> None:
        """Raise for an answer that is none of an engine's."""
        status, kind = response.status_code, response.headers.get("content-type", "").partition(";")[0].strip()
        if status in _AGAIN:
            said = f"The engine at {self.engine.url} is too busy or still starting: it answered {status} each time."
            raise _Again(said, _retry_after(response))
        if status in (401, 403):
            key = f"the key in {self._key_variable}" if self._key else "a request without a key"
            raise EngineUnavailable(
                f"The engine at {self.engine.url} refused {key} ({status}): name the environment variable that holds "
                "the right one with --key-variable."
            )
        if 300 <= status < 400:
            raise self._no_engine(f"it leads to another address ({status})")
        if kind == "text/html":
            raise self._no_engine("it answers with a page for people")
        if status == 404 and path == RPC:
            raise EngineUnavailable(
                f"The engine at {self.engine.url} cannot be told a rule while it runs, for it has no {RPC}: start it "
                f"with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls {WORKER_EXTENSION}, on a port that is closed "
                "to others, or have it restarted by a command."
            )
        if status == 404:
            raise self._no_engine(f"it has no {path}, or not the model '{self.engine.model}'")
        if status != 200:
            what = "the rule" if path == RPC else "the prompt" if streamed else path
            raise AnswerBroken(f"The engine refused {what} ({status}): {await self._said(response)}")
        if streamed and kind != "text/event-stream":
            raise self._no_engine(f"it does not stream its answers, but sends {shortened(kind) or 'no type'}")

    async def _said(self, response: httpx.Response) -> str:
        content = (await response.aread())[:_LARGEST_PAGE]
        try:
            return self._redacted(message_of(json.loads(content)))
        except ValueError:
            return self._redacted(shortened(content.decode("utf-8", "replace")))

    def _no_engine(self, why: str) -> EngineUnavailable:
        return EngineUnavailable(
            f"The address {self.engine.url} is none of an engine that speaks as OpenAI's API does: {why}. Expected a "
            "base address such as http://127.0.0.1:8000/v1."
        )

    def _redacted(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

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


class _Again(Exception):
    """Nothing of an answer has come, and asking again may help."""

    def __init__(self, sentence: str, seconds: float = 0.0) -> None:
        super().__init__(sentence)
        self.sentence, self.seconds = sentence, seconds


def check_sampling(engine: Served, sampling: SamplingConfig) -> None:
    """Raise ``InvalidSetting`` for a way of sampling that an engine does not take."""
    takes = TRAITS[engine.engine].truncates
    asked = {"top_k": sampling.top_k, "min_p": sampling.min_p}
    for name, value in asked.items():
        if value and name not in takes:
            raise InvalidSetting(
                f"{ENGINE_TITLES[engine.engine]} takes no {name.replace('_', '-')}: leave it out, or choose an engine "
                "of another kind."
            )


def _key(variable: str) -> str:
    """Return the key in an environment variable. Raises ``InvalidSetting``, without the key."""
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InvalidSetting(f"The environment variable {variable} is not set: put the engine's key there.")
    if not key.isascii() or not key.isprintable():
        raise InvalidSetting(f"The environment variable {variable} holds no key: expected one line of ASCII.")
    return key


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


def _untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _synthetic(answer: Any, path: str = "") -> str:
    """Return the name of a setting by which llama.cpp makes up what is accepted, such as ``--spec-synth-len``, if one
    is in force."""
    if isinstance(answer, dict):
        return next(filter(None, (_synthetic(value, str(key)) for key, value in answer.items())), "")
    is_on = bool(answer) and not (isinstance(answer, int | float) and answer <= 0)
    return path if "synth" in path and is_on else ""
