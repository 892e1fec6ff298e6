"""Requests of pages to the worker: frozen values, stored as JSON in the database between them.

A job's class defines its payload. ``as_json`` returns what is stored. ``read`` parses it, and raises ``DataDamaged``
for anything else. The JSON keys are the same in every version, so that jobs of an earlier one can be read. Both sides
use these classes, never the keys. :mod:`fsd_core.storage.playground_chunks` has the answers to a playground job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fsd_core.config import DecodingConfig, first_error
from fsd_core.errors import DataDamaged

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
    :class:`fsd_core.storage.playground_chunks.Chunk`."""

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
