"""One streamed answer of an engine, event by event."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from fsd_core.engines.engine_traits import Takes
from fsd_core.errors import EngineUnavailable, FsdError

DONE = "[DONE]"
_LONGEST_MESSAGE = 300
_FINISHED = {"stop": "eos", "eos": "eos", "length": "length"}


class AnswerBroken(FsdError, RuntimeError):
    """An answer that ended with an error, in the middle or before its first token."""

    code = "answer-broken"


@dataclass
class AnswerStream:
    """The received part of an answer. Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events"""

    takes: Takes
    model: str
    text: list[str] = field(default_factory=list)
    token_ids: list[int] | None = None
    """of the answer, where the engine sends them"""
    finish_reason: str | None = None
    tokens: int | None = None
    """as the engine counts them"""
    prompt_tokens: int | None = None
    drafted: int = 0
    accepted: int = 0

    def take(self, line: str) -> bool:
        """Read one line. Return whether it brought a part of the text.

        Raises ``AnswerBroken`` for an error that the engine sends, and for an event that cannot be read, and
        ``EngineUnavailable`` for the answer of another model.
        """
        if not line.startswith("data:"):
            return False
        data = line[5:].strip()
        if data == DONE:
            return False
        try:
            event = json.loads(data)
        except ValueError:
            raise AnswerBroken(f"The engine sent an event that is no JSON: {shortened(data)}") from None
        if not isinstance(event, dict):
            raise AnswerBroken(f"The engine sent an event that is no object: {shortened(data)}")
        if "error" in event:
            raise AnswerBroken(f"The engine reports an error: {message_of(event)}")
        self._check_model(event.get("model"))
        self._count(event)
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish_reason = reason
        if isinstance(ids := choice.get("token_ids"), list):
            self.token_ids = [*(self.token_ids or []), *(int(id) for id in ids)]
        part, is_new = self._part(choice)
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

    def _part(self, choice: dict[str, Any]) -> tuple[str, bool]:
        """Return the new text, and whether anything was written, be it a thought that stands beside the text."""
        if self.takes != "messages":
            part = choice.get("text")
            return (part, bool(part)) if isinstance(part, str) else ("", False)
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        part = delta.get("content")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        return (part if isinstance(part, str) else ""), bool(part or thought)

    def _count(self, event: dict[str, Any]) -> None:
        usage, timings = event.get("usage"), event.get("timings")
        if isinstance(usage, dict):
            self.tokens = _number(usage.get("completion_tokens"), self.tokens)
            self.prompt_tokens = _number(usage.get("prompt_tokens"), self.prompt_tokens)
        if isinstance(timings, dict):
            self.drafted = _number(timings.get("draft_n"), None) or self.drafted
            self.accepted = _number(timings.get("draft_n_accepted"), None) or self.accepted

    def _check_model(self, model: Any) -> None:
        """Servers add a revision or a date to the name, or leave a part out."""
        if not isinstance(model, str) or not model or model.startswith(self.model) or self.model.startswith(model):
            return
        raise EngineUnavailable(
            f"The engine answers as the model {shortened(model)!r}, and the endpoint says '{self.model}': correct the "
            "endpoint, or start the engine with that model."
        )


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


def _number(value: Any, otherwise: int | None) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else otherwise
