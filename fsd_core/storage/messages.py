"""Messages that the database hands on: requests of pages, answers of the worker, mail that waits.

Requests of pages to the worker: frozen values, stored as JSON in the database between them.

A job's class defines its payload. ``as_json`` returns what is stored. ``read`` parses it, and raises ``DataDamaged``
for anything else. The JSON keys are the same in every version, so that jobs of an earlier one can be read. Both sides
use these classes, never the keys.

Answers of the worker to a playground job, in chunks: tokens, figures and status, stored as JSON.

The JSON keys are the same in every version, as those of the job are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from itertools import product
from types import NoneType
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fsd_core.config import DecodingConfig, first_error
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import DataDamaged
from fsd_core.frozen import Frozen
from fsd_core.metrics import MOST_TAKEN, taken

Json = dict[str, Any]


@cache
def _adapter(message: type[Any]) -> TypeAdapter[Any]:
    """Return the adapter, made once per class: a page that follows a job reads its message several times a second."""
    return TypeAdapter(message)


class JobMessage:
    """The request of a job. Each kind of job is one frozen dataclass, whose fields are the payload's keys."""

    kind: ClassVar[str]
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def as_json(self) -> Json:
        return asdict(self)  # pyright: ignore[reportArgumentType] # the base has no fields of its own

    @classmethod
    def read(cls, payload: object) -> Self:
        """Return the request in a payload. Raises ``DataDamaged`` if it is damaged or from another version."""
        try:
            return _adapter(cls).validate_python(payload)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            raise DataDamaged(
                f"The request of this job ({cls.kind}) cannot be read ({where}: {first['msg']}): it was damaged, or "
                "written by another version. Send it again."
            ) from None


@dataclass(frozen=True)
class ExperimentJob(JobMessage):
    """All runs of an experiment."""

    kind = "experiment"
    experiment_id: str


@dataclass(frozen=True)
class RunJob(JobMessage):
    """A run that belongs to no experiment."""

    kind = "run"
    run_id: str


@dataclass(frozen=True)
class ExperimentRunJob(JobMessage):
    """One run of an experiment whose runs several workers share. Its job has the run's id."""

    kind = "experiment-run"
    experiment_id: str
    run_id: str


@dataclass(frozen=True)
class BoundsJob(JobMessage):
    """The bounds on acceptance with several drafts, at positions of a run's texts."""

    kind = "bounds"
    run_id: str
    temperature: float | None
    """``None``: the run's"""


@dataclass(frozen=True)
class FetchJob(JobMessage):
    """A download of a task's files from the Hugging Face hub."""

    kind = "fetch"
    task: str


@dataclass(frozen=True)
class PairFetchJob(JobMessage):
    """A download of a pair's models from the Hugging Face hub."""

    kind = "fetch-pair"
    pair: str
    """as runs of it are recorded"""


@dataclass(frozen=True)
class PlaygroundJob(JobMessage):
    """Several settings on one prompt. Its answer is a stream of
    :class:`Chunk`."""

    kind = "playground"
    pair: str
    prompt: str
    seed: int
    settings: tuple[Json, ...]
    """each a ``DecodingConfig`` as JSON, read separately by :meth:`decoding`: an invalid one does not affect the
    others"""
    owner: str | None = None
    """who sent it, and alone may see it; ``None`` if nobody had signed in, when whoever knows the job's id may see
    it"""

    @classmethod
    def of(
        cls, pair: str, prompt: str, seed: int, decodings: Sequence[DecodingConfig], owner: str | None = None
    ) -> Self:
        return cls(pair, prompt, seed, tuple(decoding.as_json() for decoding in decodings), owner)

    def as_json(self) -> Json:
        value = super().as_json()
        return value if self.owner is not None else {name: value[name] for name in value if name != "owner"}

    def decoding(self, index: int) -> DecodingConfig:
        """Return a setting. Raises ``InvalidSetting`` for one that cannot work."""
        try:
            return DecodingConfig.model_validate(self.settings[index])
        except ValidationError as error:
            raise first_error(error) from None

    @property
    def decodings(self) -> list[DecodingConfig]:
        """All settings. Raises ``InvalidSetting`` if one of them cannot work."""
        return [self.decoding(i) for i in range(len(self.settings))]


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


NoticeKind = Literal[
    "review-requested", "commented", "approved", "changes-requested", "declined", "evidence-chosen", "waived",
    "withdrawn", "approval-expired", "rolled-back", "test",
]  # fmt: skip


class NoticeContent(Frozen):
    """The content of a message. Its JSON keys never change; newer fields have defaults."""

    kind: NoticeKind
    at: str
    """when it happened, in UTC, as ISO 8601"""
    use: str
    """id of the use"""
    use_name: str
    who: str
    """who did it; empty for what nobody did"""
    text: str
    """one sentence"""
    proposal: str | None = None
    setting: str | None = None
    words: str = ""
    """that somebody wrote with it"""
    reviewers: tuple[str, ...] = ()
    """who is asked for a verdict"""
    waits_for: tuple[str, ...] = ()
    """whose verdict or changes the proposal waits for"""
    page: str = ""
    """address or path of the page to look at"""


@dataclass(frozen=True)
class OutboxMessage:
    """One message to one recipient."""

    id: str
    channel: str
    """webhook or mail"""
    recipient: str
    """a mail address; empty for the webhook"""
    content: NoticeContent
    created_at: datetime
    attempts: int = 0
    claim: str = ""
    """of whoever tries to send it"""
    error: str = ""
    """of the last attempt"""
    given_up: bool = False


def message_id(*told: object) -> str:
    """Return the id of a message, 32 hexadecimal digits, from what it tells, its channel and its recipient."""
    return hashlib.sha256(repr(told).encode()).hexdigest()[:32]
