"""What pages ask of the worker, and what it answers: frozen values, stored as JSON in the database between them.

A job's class says what its payload holds; a playground job is answered in chunks. ``as_json`` gives what is stored,
``read`` takes it back and raises ``DataDamaged`` for anything else. Their JSON has the same keys in every version, so
that jobs and chunks written by an earlier one can be read. Both sides use these classes alone, never the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from types import NoneType
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fsd_core.config import DecodingConfig, sentence
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import DataDamaged, InvalidSetting

Json = dict[str, Any]


@cache
def _adapter(message: type[Any]) -> TypeAdapter[Any]:
    """Made once for each class: a page that follows a job reads its message several times a second."""
    return TypeAdapter(message)


class JobMessage:
    """What a job asks for; each kind of job is one frozen dataclass, whose fields are the payload's keys."""

    kind: ClassVar[str]
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def as_json(self) -> Json:
        return asdict(self)  # pyright: ignore[reportArgumentType] # the base has no fields of its own

    @classmethod
    def read(cls, payload: object) -> Self:
        """The job that a payload asks for. Raises ``DataDamaged`` for one that is damaged or of another version."""
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
class BoundsJob(JobMessage):
    """The bounds of several drafts where a run has been."""

    kind = "bounds"
    run_id: str
    temperature: float | None
    """``None``: that of the run"""


@dataclass(frozen=True)
class FetchJob(JobMessage):
    """The files of a task, from the Hugging Face hub."""

    kind = "fetch"
    task: str


@dataclass(frozen=True)
class PlaygroundJob(JobMessage):
    """Several settings on one prompt. Its answer is a stream of :class:`Chunk`."""

    kind = "playground"
    pair: str
    prompt: str
    seed: int
    settings: tuple[Json, ...]
    """each a ``DecodingConfig`` as JSON, read on its own by :meth:`decoding`: a wrong one leaves the others alone"""
    owner: str | None = None
    """who asked, and alone may see it; ``None`` where nobody had signed in: then whoever knows the job's id may"""

    @classmethod
    def of(
        cls, pair: str, prompt: str, seed: int, decodings: Sequence[DecodingConfig], owner: str | None = None
    ) -> Self:
        return cls(pair, prompt, seed, tuple(decoding.as_json() for decoding in decodings), owner)

    def as_json(self) -> Json:
        value = super().as_json()
        return value if self.owner is not None else {name: value[name] for name in value if name != "owner"}

    def decoding(self, index: int) -> DecodingConfig:
        """A setting. Raises ``InvalidSetting`` for one that cannot work."""
        try:
            return DecodingConfig.model_validate(self.settings[index])
        except ValidationError as error:
            raise InvalidSetting(sentence(error)) from None

    @property
    def decodings(self) -> list[DecodingConfig]:
        """Every setting. Raises ``InvalidSetting`` where one of them cannot work."""
        return [self.decoding(i) for i in range(len(self.settings))]


class EmittedToken(NamedTuple):
    """A token that was written, its text, and why it was written.

    ``divergence``, ``p`` and ``q`` are of the drafted token that was judged in its place, and ``None`` where none was.
    A named tuple, because a page reads thousands of them at once.
    """

    text: str
    """the characters that it completes; empty where it ends inside one"""
    id: int
    kind: str
    """a ``trace.Kind``"""
    divergence: float | None = None
    """``None`` also where it is infinite, which JSON cannot say: then ``p`` is given"""
    p: float | None = None
    """the target's probability"""
    q: float | None = None
    """the draft's probability"""
    probability: float | None = None
    """of the token itself under the model that wrote it"""
    rejected: str | None = None
    """of a correction: the text of the token that it replaces"""

    def as_json(self) -> Json:
        value = {
            "text": self.text, "id": self.id, "kind": self.kind, "divergence": self.divergence, "p": self.p,
            "q": self.q, "probability": self.probability,
        }  # fmt: skip
        return value if self.rejected is None else value | {"rejected": self.rejected}

    @classmethod
    def read(cls, value: Json) -> EmittedToken:
        """Raises ``LookupError``, ``TypeError`` or ``AttributeError`` for what is no token."""
        get = value.get
        token = cls(
            value["text"], value["id"], value["kind"], get("divergence"), get("p"), get("q"), get("probability"),
            get("rejected"),
        )  # fmt: skip
        if not _TOKEN_TYPES.issuperset(zip(cls._fields, map(type, token), strict=True)):
            raise TypeError(f"no token: {token}")
        return token


# What a field may be: one look at a set is several times as fast as looking at each field by itself.
_TOKEN_TYPES = {
    ("text", str), ("id", int), ("kind", str), ("rejected", str), ("rejected", NoneType),
    *product(("divergence", "p", "q", "probability"), (float, int, NoneType)),
}  # fmt: skip


_OWN = 0.8
"""share of a text's time for which a process that computes alone has the processor, at least"""


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """How a setting of the playground has fared so far."""

    tokens: int
    rounds: int
    seconds: float
    """of its own clock"""
    tokens_per_second: float
    acceptance_rate: float | None
    """``None`` where nothing was drafted"""
    mean_acceptance_length: float
    """tokens a round"""
    cpu_seconds: float | None = None
    """of the processor, meanwhile, for this process; ``None`` where another device computes, or nobody looked"""

    @property
    def held_up(self) -> bool:
        """Whether other processes had the processor for a good part of the time, so that the speed is not its own."""
        return self.cpu_seconds is not None and self.cpu_seconds < _OWN * self.seconds

    @classmethod
    def of(
        cls, *, tokens: int, rounds: int, drafted: int, accepted: int, seconds: float, cpu_seconds: float | None = None
    ) -> StreamFigures:
        """The figures that follow from counts; ``drafted`` and ``accepted`` are tokens."""
        return cls(
            tokens,
            rounds,
            seconds,
            tokens_per_second=tokens / seconds if seconds else 0.0,
            acceptance_rate=accepted / drafted if drafted else None,
            mean_acceptance_length=tokens / rounds if rounds else 0.0,
            cpu_seconds=cpu_seconds,
        )

    @classmethod
    def of_text(cls, records: Sequence[RoundRecord], seconds: float) -> StreamFigures:
        """The figures of a text that is written, from its rounds."""
        return cls.of(
            tokens=sum(len(record.emitted) for record in records),
            rounds=len(records),
            drafted=sum(len(record.drafted) for record in records),
            accepted=sum(record.accepted for record in records),
            seconds=seconds,
        )

    def as_json(self) -> dict[str, Any]:
        """As it is stored; without the processor's time where that is not known."""
        return {name: value for name, value in asdict(self).items() if value is not None or name != "cpu_seconds"}

    @classmethod
    def read(cls, value: Json) -> StreamFigures:
        """Raises ``LookupError`` or ``TypeError`` for what are no figures."""
        rate, cpu = value["acceptance_rate"], value.get("cpu_seconds")
        names = "tokens", "rounds", "seconds", "tokens_per_second", "mean_acceptance_length"
        numbers = {name: value[name] for name in names}
        for number in (*numbers.values(), *(one for one in (rate, cpu) if one is not None)):
            if not isinstance(number, float | int):
                raise TypeError(f"no number: {number!r}")
        return cls(**numbers, acceptance_rate=rate, cpu_seconds=cpu)


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one setting of a playground job has written since its last chunk, and how it stands."""

    setting: int
    """its index in the job"""
    tokens: tuple[EmittedToken, ...]
    figures: StreamFigures
    done: bool = False
    stop_reason: str | None = None
    error: str | None = None
    """the sentence that says why it could not go on"""

    def as_json(self) -> Json:
        return {
            "setting": self.setting, "tokens": [token.as_json() for token in self.tokens],
            "stats": self.figures.as_json(), "done": self.done, "stop_reason": self.stop_reason, "error": self.error,
        }  # fmt: skip

    @classmethod
    def read(cls, value: Any) -> Chunk:
        """Raises ``DataDamaged`` for what is no chunk."""
        try:
            tokens = tuple(map(EmittedToken.read, value["tokens"]))
            figures = StreamFigures.read(value["stats"])
            chunk = cls(value["setting"], tokens, figures, value["done"], value["stop_reason"], value["error"])
            words = chunk.stop_reason, chunk.error
            if not (isinstance(chunk.setting, int) and chunk.setting >= 0 and isinstance(chunk.done, bool)):
                raise TypeError(f"no setting: {chunk.setting!r}, {chunk.done!r}")
            if not all(isinstance(word, str | None) for word in words):
                raise TypeError(f"no words: {words}")
            return chunk
        except (LookupError, TypeError, AttributeError) as error:
            raise DataDamaged(
                "What the worker wrote for the playground cannot be read: it was damaged, or written by another "
                "version. Generate the texts again."
            ) from error
