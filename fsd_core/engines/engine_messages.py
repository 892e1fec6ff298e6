"""What an engine sends, read within bounds, as typed messages, and without the key. Nothing else reads a byte of it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json

from fsd_core.errors import FsdError
from fsd_core.frozen import Frozen, sentence

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
