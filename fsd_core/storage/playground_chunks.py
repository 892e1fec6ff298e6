"""Answers of the worker to a playground job, in chunks: tokens, figures and status, stored as JSON.

The JSON keys are the same in every version, as those of the job are (:mod:`fsd_core.storage.messages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from types import NoneType
from typing import Any, NamedTuple

from fsd_core.conditions import MOST_TAKEN, taken
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import DataDamaged


class EmittedToken(NamedTuple):
    """An emitted token, its text, and why it was emitted.

    ``divergence``, ``p`` and ``q`` belong to the drafted token verified at its position, and are ``None`` without one.
    A named tuple, because a page reads thousands of them at once.
    """

    text: str
    """the characters that it completes; empty if it ends inside one"""
    id: int
    kind: str
    """a ``trace.Kind``"""
    divergence: float | None = None
    """``None`` also if it is infinite, which JSON cannot express; ``p`` is then given"""
    p: float | None = None
    """the target's probability"""
    q: float | None = None
    """the draft's probability"""
    probability: float | None = None
    """of the token itself under the model that emitted it"""
    rejected: str | None = None
    """for a recovered token: the text of the rejected token that it replaces"""
    likeliest: str | None = None
    """the text of the target's likeliest token here, if that is another one and known"""

    def as_json(self) -> dict[str, Any]:
        value = {
            "text": self.text, "id": self.id, "kind": self.kind, "divergence": self.divergence, "p": self.p,
            "q": self.q, "probability": self.probability,
        }  # fmt: skip
        texts = {"rejected": self.rejected, "likeliest": self.likeliest}
        return value | {name: text for name, text in texts.items() if text is not None}

    @classmethod
    def read(cls, value: dict[str, Any]) -> EmittedToken:
        """Return the token in JSON. Raises ``LookupError``, ``TypeError`` or ``AttributeError`` for anything else."""
        get = value.get
        token = cls(
            value["text"], value["id"], value["kind"], get("divergence"), get("p"), get("q"), get("probability"),
            get("rejected"), get("likeliest"),
        )  # fmt: skip
        if not _TOKEN_TYPES.issuperset(zip(cls._fields, map(type, token), strict=True)):
            raise TypeError(f"no token: {token}")
        return token


# Allowed types of fields: one set comparison is several times as fast as checking each field.
_TOKEN_TYPES = {
    ("text", str), ("id", int), ("kind", str), *product(("rejected", "likeliest"), (str, NoneType)),
    *product(("divergence", "p", "q", "probability"), (float, int, NoneType)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """Progress and speed of a playground setting so far."""

    tokens: int
    rounds: int
    seconds: float
    """of its own clock"""
    tokens_per_second: float
    acceptance_rate: float | None
    """``None`` if nothing was drafted"""
    mean_acceptance_length: float
    """tokens per round"""
    cpu_seconds: float | None = None
    """CPU time of this process meanwhile; ``None`` if another device computes, or if it was not measured"""
    target_tokens_per_second: float | None = None
    """of the target alone, for as many tokens of the same prompt, from its first rounds; ``None`` if not measured"""

    @property
    def speed_up(self) -> float | None:
        """How many times as fast as the target alone; ``None`` if that was not measured."""
        return self.tokens_per_second / self.target_tokens_per_second if self.target_tokens_per_second else None

    @property
    def held_up(self) -> bool:
        """Whether other processes used the processor for a good part of the time and so distorted the speed."""
        share = taken([(self.seconds, self.cpu_seconds)])
        return share is not None and share > MOST_TAKEN

    @classmethod
    def of(
        cls, *, tokens: int, rounds: int, drafted: int, accepted: int, seconds: float,
        cpu_seconds: float | None = None, target_tokens_per_second: float | None = None,
    ) -> StreamFigures:  # fmt: skip
        """Return the figures that follow from counts; ``drafted`` and ``accepted`` are tokens."""
        return cls(
            tokens,
            rounds,
            seconds,
            tokens_per_second=tokens / seconds if seconds else 0.0,
            acceptance_rate=accepted / drafted if drafted else None,
            mean_acceptance_length=tokens / rounds if rounds else 0.0,
            cpu_seconds=cpu_seconds,
            target_tokens_per_second=target_tokens_per_second,
        )

    @classmethod
    def of_text(cls, records: Sequence[RoundRecord], seconds: float) -> StreamFigures:
        """Return the figures of an emitted text, from its rounds."""
        return cls.of(
            tokens=sum(len(record.emitted) for record in records),
            rounds=len(records),
            drafted=sum(len(record.drafted) for record in records),
            accepted=sum(record.accepted for record in records),
            seconds=seconds,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the stored form, without figures that were not measured."""
        measured = ("cpu_seconds", "target_tokens_per_second")
        return {name: value for name, value in asdict(self).items() if value is not None or name not in measured}

    @classmethod
    def read(cls, value: dict[str, Any]) -> StreamFigures:
        """Return the figures in JSON. Raises ``LookupError`` or ``TypeError`` for anything else."""
        rate, cpu, target = value["acceptance_rate"], value.get("cpu_seconds"), value.get("target_tokens_per_second")
        names = "tokens", "rounds", "seconds", "tokens_per_second", "mean_acceptance_length"
        numbers = {name: value[name] for name in names}
        for number in (*numbers.values(), *(figure for figure in (rate, cpu, target) if figure is not None)):
            if not isinstance(number, float | int):
                raise TypeError(f"no number: {number!r}")
        return cls(**numbers, acceptance_rate=rate, cpu_seconds=cpu, target_tokens_per_second=target)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Output of one setting of a playground job since its last chunk, and its status."""

    setting: int
    """its index in the job"""
    tokens: tuple[EmittedToken, ...]
    figures: StreamFigures
    done: bool = False
    stop_reason: str | None = None
    error: str | None = None
    """the sentence that explains why it could not continue"""

    def as_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting, "tokens": [token.as_json() for token in self.tokens],
            "stats": self.figures.as_json(), "done": self.done, "stop_reason": self.stop_reason, "error": self.error,
        }  # fmt: skip

    @classmethod
    def read(cls, value: Any) -> Chunk:
        """Return the chunk in JSON. Raises ``DataDamaged`` for anything else."""
        try:
            tokens = tuple(map(EmittedToken.read, value["tokens"]))
            figures = StreamFigures.read(value["stats"])
            chunk = cls(value["setting"], tokens, figures, value["done"], value["stop_reason"], value["error"])
            texts = chunk.stop_reason, chunk.error
            if not (isinstance(chunk.setting, int) and chunk.setting >= 0 and isinstance(chunk.done, bool)):
                raise TypeError(f"no setting: {chunk.setting!r}, {chunk.done!r}")
            if not all(isinstance(text, str | None) for text in texts):
                raise TypeError(f"no words: {texts}")
            return chunk
        except (LookupError, TypeError, AttributeError) as error:
            raise DataDamaged(
                "What the worker wrote for the playground cannot be read: it was damaged, or written by another "
                "version. Generate the texts again."
            ) from error
