"""HTTP to one running engine: which hosts may be asked, and its answers within bounds.

Which servers people who sign in may have asked, and a transport that connects to no other.

Whoever names an address that a server asks makes it look behind its own firewall. So where access is on, an address is
public and asked over TLS, or the operator names its host. Names are resolved again for each request, and the connection
goes to the address that was checked.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

import httpx
from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json

from fsd_core.config.vllm_plugin import WORKER_EXTENSION
from fsd_core.errors import EngineUnavailable, FsdError, Malformed, Misconfigured, Refused
from fsd_core.frozen import Frozen, sentence
from fsd_core.rules import Served
from fsd_core.texts import LOOPBACK, is_plain_host, is_public

if TYPE_CHECKING:
    from fsd_core.settings import Settings


_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class EngineHosts:
    """Hosts that the operator allows beside public ones."""

    named: frozenset[str]
    """``host``, for any port, or ``host:port``; in small letters"""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the hosts of FSD_ENDPOINT_HOSTS."""
        names = settings.endpoint_hosts.split(",")
        return cls(frozenset(name.strip().lower() for name in names if name.strip()))

    def names(self, url: str) -> bool:
        """Whether the operator has named the host of an address."""
        parts = urlsplit(url)
        host = _bracketed(parts.hostname or "")
        return not self.named.isdisjoint((host, f"{host}:{parts.port or _PORTS[parts.scheme]}"))

    def check(self, served: Served) -> None:
        """Raise ``Refused`` for an address that is neither named nor asked over TLS, before anything is asked."""
        if not self.names(served.url) and urlsplit(served.url).scheme != "https":
            raise Refused(
                f"{served.url} is not asked over https, and others reach this installation: give an address with "
                "https://, or have the operator name the host in FSD_ENDPOINT_HOSTS."
            )


class CheckedTransport(httpx.AsyncBaseTransport):
    """Sends requests to one server, unless its name leads to an address that may not be asked. It uses no proxy of the
    environment, which would resolve the name itself."""

    def __init__(self, hosts: EngineHosts, limits: httpx.Limits) -> None:
        self._hosts, self._sending = hosts, httpx.AsyncHTTPTransport(limits=limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raise ``EngineUnavailable`` for an address that may not be asked, ``httpx.ConnectError`` for a name without
        one."""
        url = request.url
        if self._hosts.names(str(url)):
            return await self._sending.handle_async_request(request)
        host = url.raw_host.decode("ascii")
        address = await self._address(host, url.port or _PORTS[url.scheme])
        checked = httpx.Request(
            request.method, url.copy_with(host=address), headers=request.headers, stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )  # fmt: skip
        return await self._sending.handle_async_request(checked)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._sending.aclose()

    async def _address(self, host: str, port: int) -> str:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(f"{host} has no address") from error
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not all(map(is_public, addresses)):
            raise EngineUnavailable(
                f"{host} is at a private or loopback address, which is not asked for people who sign in: have the "
                "operator name the host in FSD_ENDPOINT_HOSTS."
            )
        return addresses[0]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


LARGEST_PAGE = 4_000_000
"""bytes of an answer that is read whole"""
LARGEST_EVENT = 1_000_000
"""bytes of an event, beside those of its question, which an engine may repeat"""
BYTES_PER_TOKEN = 4_096
"""of the events of an answer, for each token that was asked for"""
SHORTEST_KEY = 6
"""characters; what is shorter, such as EMPTY, is no secret and may be a word of an answer"""
_LONGEST_MESSAGE = 300
_LINE_END = re.compile(rb"[\r\n]")
_DONE = "[DONE]"


class AnswerBroken(FsdError, RuntimeError):
    """An answer that ended with an error, in the middle or before its first token."""

    code = "answer-broken"


class EngineFields(Frozen):
    """The fields of a message that are read. Engines send many more."""

    model_config = ConfigDict(extra="ignore")


Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Delta(EngineFields):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(EngineFields):
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    token_ids: list[Count] | None = None


class Usage(EngineFields):
    completion_tokens: Count | None = None
    prompt_tokens: Count | None = None


class Timings(EngineFields):
    """Counts of llama.cpp."""

    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class StreamEvent(EngineFields):
    """One event of a streamed answer."""

    model: str | None = None
    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None


class ListedModel(EngineFields):
    id: str
    max_model_len: Count | None = None


class ListOfModels(EngineFields):
    data: list[ListedModel]


class WorkerAnswers(EngineFields):
    results: Annotated[list[Any], Field(min_length=1)]


class MessageReader:
    """Reads the answers of one engine. Its errors are :class:`AnswerBroken`, and of ``httpx`` where a connection
    breaks."""

    def __init__(self, key: str) -> None:
        self._key = key if len(key) >= SHORTEST_KEY else ""

    def redacted(self, value: Any) -> Any:
        """Return a text, or the texts in a value of JSON, without the key."""
        if not self._key:
            return value
        if isinstance(value, str):
            return value.replace(self._key, "***")
        if isinstance(value, dict):
            return {self.redacted(name): self.redacted(part) for name, part in value.items()}
        return [self.redacted(part) for part in value] if isinstance(value, list) else value

    async def text(self, response: httpx.Response) -> str:
        """Return an answer as it came."""
        data = bytearray()
        async for part in response.aiter_raw():
            data += part
            if len(data) > LARGEST_PAGE:
                raise AnswerBroken(
                    f"The engine's answer to {response.request.url.path} has more than {LARGEST_PAGE:,} bytes."
                )
        return data.decode("utf-8", "replace")

    def json(self, text: str) -> Any:
        """Return a value of JSON. Raises ``ValueError``, for one that is nested too deep as well."""
        return self.redacted(from_json(text))

    async def events(self, response: httpx.Response, tokens: int) -> AsyncIterator[StreamEvent]:
        """Yield the events of an answer for which so many tokens were asked.

        Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events
        """
        longest = LARGEST_EVENT + len(response.request.content)
        most, read, line = longest + BYTES_PER_TOKEN * tokens, 0, bytearray()
        async for part in response.aiter_raw():
            read += len(part)
            first, *others = _LINE_END.split(part)
            line += first
            for start in others:
                if (event := self._event(line)) is not None:
                    yield event
                line = bytearray(start)
            if len(line) > longest:
                raise AnswerBroken(f"The engine sent an event of more than {longest:,} bytes.")
            if read > most:
                raise AnswerBroken(f"The engine sent more than {most:,} bytes for the {tokens:,} tokens of an answer.")
        if (event := self._event(line)) is not None:
            yield event

    def _event(self, line: bytearray) -> StreamEvent | None:
        """Return the event of a line, ``None`` if it has none."""
        if not line.startswith(b"data:") or (data := line[5:].strip().decode("utf-8", "replace")) == _DONE:
            return None
        try:
            event = self.json(data)
        except ValueError:
            raise AnswerBroken(f"The engine sent an event that is no JSON: {self.shortened(data)}") from None
        if not isinstance(event, dict):
            raise AnswerBroken(f"The engine sent an event that is no object: {self.shortened(data)}")
        if event.get("error") is not None:
            raise AnswerBroken(f"The engine reports an error: {message_of(event)}")
        try:
            return StreamEvent.model_validate(event)
        except ValidationError as error:
            raise AnswerBroken(f"The engine sent an event that cannot be read. {shortened(sentence(error))}") from None

    def shortened(self, text: str) -> str:
        """Return the beginning of what an engine sent, on one line and without the key."""
        return shortened(self.redacted(text))


def message_of(answer: Any) -> str:
    """Return the message of an engine's error, in one of the forms that engines send."""
    for key in ("error", "message", "detail"):
        if isinstance(answer, dict) and answer.get(key):
            answer = answer[key]
    return shortened(answer if isinstance(answer, str) else json.dumps(answer))


def shortened(text: str) -> str:
    """Return the beginning of a server's message, on one line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST_MESSAGE]).split())
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + " …"


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
        """See :class:`fsd_core.engines.client.EngineClient`. Raises as it does."""
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
