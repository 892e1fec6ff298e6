"""HTTP requests to one running engine: its key, retries, and the sentences for answers that are none of an engine's."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from fsd_core.addresses import LOOPBACK, is_plain_host
from fsd_core.config.vllm_plugin import WORKER_EXTENSION
from fsd_core.engines.engine_hosts import CheckedTransport, EngineHosts
from fsd_core.engines.engine_messages import AnswerBroken, MessageReader, message_of
from fsd_core.errors import EngineUnavailable, Malformed, Misconfigured
from fsd_core.rules import Served

RPC = "/collective_rpc"
"""address of vLLM's development server that calls a method of its workers"""
_LONGEST_WAIT = 60.0
_AGAIN = (429, 502, 503, 504)
_GONE = "Server disconnected"
"""how ``httpcore`` begins to say that a server ended a connection without an answer; anything else is no HTTP"""


class AskAgain(Exception):
    """Nothing of an answer has come, and asking again may help."""

    def __init__(self, sentence: str, seconds: float = 0.0) -> None:
        super().__init__(sentence)
        self.sentence, self.seconds = sentence, seconds

    def pause(self, wait: float) -> float:
        """Return the seconds before the next try: ``wait``, or longer if the engine asks for it."""
        return min(_LONGEST_WAIT, max(wait, self.seconds))


class EngineConnection:
    """Requests to one engine. It is used in one event loop, and closed there. The key stays in memory."""

    def __init__(
        self,
        engine: Served,
        key_variable: str,
        *,
        parallel: int,
        deadline: float,
        waits: tuple[float, ...],
        hosts: EngineHosts | None,
    ) -> None:
        """See :class:`fsd_core.engines.engine_client.EngineClient`. Raises as it does."""
        host = _plain_host(engine.url)
        if hosts is not None:
            hosts.check(engine)
        self.engine, self._deadline, self._waits = engine, deadline, waits
        self._key_variable, self._key = key_variable, key_of(key_variable)
        self.reader = MessageReader(self._key)
        limits = httpx.Limits(max_connections=parallel + 1, max_keepalive_connections=parallel + 1)
        try:
            self._http = httpx.AsyncClient(
                base_url=engine.url,
                headers={
                    "Accept-Encoding": "identity",
                    **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
                },
                timeout=httpx.Timeout(None, connect=min(10.0, self._deadline)),
                limits=limits,
                trust_env=host not in LOOPBACK,
                transport=CheckedTransport(hosts, limits) if hosts is not None else None,
            )
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:  # of the environment
            raise Misconfigured(
                f"The engine at {engine.url} cannot be asked ({type(error).__name__}: {str(error)[:100]}): correct the "
                "variables ALL_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE, or unset them."
            ) from None

    async def close(self) -> None:
        await self._http.aclose()

    async def ask_json(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the JSON of an answer. Raises ``EngineUnavailable``, and ``AnswerBroken`` for a refusal."""
        for wait in (*self._waits, None):
            try:
                async with (
                    asyncio.timeout(min(30.0, self._deadline)),
                    self.stream(path, body, streamed=False) as response,
                ):
                    return self.reader.json(await self.reader.text(response))
            except AskAgain as again:
                if wait is None:
                    raise EngineUnavailable(again.sentence) from None
                await asyncio.sleep(again.pause(wait))
            except (TimeoutError, httpx.HTTPError) as error:
                raise EngineUnavailable(
                    f"The engine at {self.engine.url} did not answer {path} ({type(error).__name__}): expected an "
                    "engine that has started."
                ) from None
            except ValueError:
                raise self.no_engine(f"its answer to {path} is no JSON") from None
        raise AssertionError("unreachable")

    async def get_json(self, path: str) -> Any:
        """Return the JSON at a path. Raises ``EngineUnavailable``, for a refusal too."""
        try:
            return await self.ask_json(path)
        except AnswerBroken as error:
            raise EngineUnavailable(f"{error} Expected an engine at {self.engine.url}.") from None

    async def page(self, path: str) -> str | None:
        """Return the text of a page, or ``None`` if there is none or it is too long."""
        try:
            async with asyncio.timeout(min(30.0, self._deadline)), self._http.stream("GET", path) as response:
                is_there = response.status_code == 200 and not _encoding(response)
                return await self.reader.text(response) if is_there else None
        except (httpx.HTTPError, TimeoutError, AnswerBroken):
            return None

    @asynccontextmanager
    async def stream(self, path: str, body: dict[str, Any] | None, *, streamed: bool) -> AsyncIterator[httpx.Response]:
        """Send a request; yield its answer if that is one of an engine. Raises ``AskAgain`` before anything came."""
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
            if isinstance(error, httpx.RemoteProtocolError) and not str(error).startswith(_GONE):
                raise self.no_engine("it does not answer as HTTP does") from None
            raise AskAgain(
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
            raise AskAgain(said, _retry_after(response))
        if status in (401, 403):
            key = f"the key in {self._key_variable}" if self._key else "a request without a key"
            raise EngineUnavailable(
                f"The engine at {self.engine.url} refused {key} ({status}): name the environment variable that holds "
                "the right one with --key-variable."
            )
        if 300 <= status < 400:
            raise self.no_engine(f"it leads to another address ({status})")
        if encoding := _encoding(response):
            raise self.no_engine(f"it compresses its answers ({self.reader.shortened(encoding)}), unasked")
        if kind == "text/html":
            raise self.no_engine("it answers with a page for people")
        if status == 404 and path == RPC:
            raise EngineUnavailable(
                f"The engine at {self.engine.url} cannot be told a rule while it runs, for it has no {RPC}: start it "
                f"with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls {WORKER_EXTENSION}, on a port that is closed "
                "to others, or have it restarted by a command."
            )
        if status == 404:
            raise self.no_engine(f"it has no {path}, or not the model '{self.engine.model}'")
        if status != 200:
            what = "the rule" if path == RPC else "the prompt" if streamed else path
            raise AnswerBroken(f"The engine refused {what} ({status}): {await self._said(response)}")
        if streamed and kind != "text/event-stream":
            raise self.no_engine(
                f"it does not stream its answers, but sends {self.reader.shortened(kind) or 'no type'}"
            )

    async def _said(self, response: httpx.Response) -> str:
        said = await self.reader.text(response)
        try:
            return message_of(self.reader.json(said))
        except ValueError:
            return self.reader.shortened(said)

    def no_engine(self, why: str) -> EngineUnavailable:
        """Return the error for an address at which no engine answers."""
        return EngineUnavailable(
            f"The address {self.engine.url} is none of an engine that speaks as OpenAI's API does: {why}. Expected a "
            "base address such as http://127.0.0.1:8000/v1."
        )


def _plain_host(url: str) -> str:
    """Return the host of an address. Raises ``InvalidSetting`` for one that programs read differently."""
    host = urlsplit(url).hostname or ""
    with suppress(httpx.InvalidURL, UnicodeError):
        if is_plain_host(host) and httpx.URL(url).host:
            return host
    raise Malformed(
        f"The host {host[:80]!r} is spelled in a way that programs read differently: expected a name in ASCII, an IPv4 "
        "address as four decimal numbers, or an IPv6 address."
    )


def key_of(variable: str) -> str:
    """Return the key in an environment variable. Raises ``InvalidSetting``, without the key."""
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise Misconfigured(f"The environment variable {variable} is not set: put the engine's key there.")
    if not key.isascii() or not key.isprintable():
        raise Misconfigured(f"The environment variable {variable} holds no key: expected one line of ASCII.")
    return key


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


def _encoding(response: httpx.Response) -> str:
    return response.headers.get("content-encoding", "").replace("identity", "").strip()


def _untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
