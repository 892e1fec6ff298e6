"""One streamed answer of an engine, event by event."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsd_core.engines.engine_messages import AnswerBroken, Choice, Delta, StreamEvent, Timings, Usage, shortened
from fsd_core.engines.engine_traits import Takes
from fsd_core.errors import EngineUnavailable

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
