"""Values that the repository takes and returns: plain, frozen and free of the database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from fsd_core.config import DecodingConfig, RunConfig, SettingConfig, SweepConfig
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import Malformed, NotGiven, OutOfRange
from fsd_core.metrics import Conditions, PromptCounts, conditions_of, mixed
from fsd_core.statistics.intervals import Estimate
from fsd_core.storage.review_events import ReviewEvent


@dataclass(frozen=True)
class SettingView:
    """A pair and its decoding configuration. Its id is the hash of its content."""

    id: str
    pair: str
    label: str
    config: SettingConfig
    created_at: datetime


@dataclass(frozen=True)
class SettingSummary:
    """A setting in a list, with how often it was measured."""

    id: str
    pair: str
    label: str
    runs: int
    last: datetime
    """when its latest run was created"""
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class TaskView:
    """A version of a custom task, without its content."""

    name: str
    version: str
    """first 16 hex digits of the SHA-256 of its content"""
    title: str
    scorer: str
    prompts: int
    added_by: str
    added_at: datetime

    @property
    def full_name(self) -> str:
        """Name under which runs are recorded, such as ``support@0123456789abcdef``."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, kw_only=True)
class _Generation(PromptCounts):
    position: int
    """index of the prompt in the task"""
    example_id: str
    prompt: str
    """the question, without earlier turns"""
    reference: str | None
    text: str = field()
    answer: str | None
    """extracted from the text"""
    error: str | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "unread", self.outcome == "wrong" and self.answer is None)

    @property
    def only_thought(self) -> bool:
        """Whether all of it belongs to a thought, as of a text that was cut off inside of one."""
        return 0 < self.thought_tokens == self.tokens


@dataclass(frozen=True, kw_only=True)
class GenerationRecord(_Generation):
    """One prompt of one run as it is recorded, with its trace."""

    records: list[RoundRecord] = field(default_factory=list)

    def columns(self) -> dict[str, Any]:
        """Return the values of its row's columns."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("records", "unread", "timed")}


@dataclass(frozen=True, kw_only=True)
class GenerationView(_Generation):
    """One prompt of one run as it is read back, without its trace."""

    id: int
    run_id: str
    sitting_id: int | None
    """``None`` if it was measured before measurement sessions were recorded, or not at all"""
    created_at: datetime


@dataclass(frozen=True)
class MeasurementSession:
    """Prompts of a run that were measured under the same conditions."""

    id: int
    conditions: Conditions
    """empty if not recorded"""
    started_at: datetime | None
    """when the first of its prompts was recorded"""


Prompts = Mapping[str, Mapping[int, PromptCounts]]
"""by run and position of the prompt"""


@dataclass(frozen=True)
class LoggedEvent:
    """One row of the review log."""

    id: int
    use_id: str
    sequence: int
    """1, 2, … within its use"""
    at: datetime
    who: str
    role: str
    """of that person, at that time"""
    event: ReviewEvent
    owner: str | None = None
    """of the program that acted; ``None``: a person did"""


UNDER_WAY = ("queued", "running")
"""statuses of a run, an experiment or a job that a process has or will have"""

UNENDED = (*UNDER_WAY, "stopped")
"""statuses of work that has not ended; stopped work waits until somebody resumes it"""


ORIGIN = "measured_elsewhere"
"""key of a run's provenance that says where figures come from that were not measured here"""
READING_VERSIONS = "reading_versions"
"""key of a run's provenance: by which versions of the reading its answers were scored"""
READ_BEFORE = "read_before"
"""key of a run's provenance: counts of its outcomes before another version of the reading scored them"""


def fingerprint_of(fingerprint_origin: str) -> str:
    """Return the fingerprint part of a ``fingerprint origin`` string."""
    return fingerprint_origin.partition(" ")[0]


def same_weights(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Whether no role that both have differs, and both or neither are known."""
    roles = first.keys() & second.keys()
    return bool(first) == bool(second) and all(same_model(first[role], second[role]) for role in roles)


def same_model(first: str, second: str) -> bool:
    """Whether two fingerprints, with their origins if any, are of the same weights. Where one of them has no part for
    what stands after the first MiB of large files, as earlier versions wrote it, the others are compared."""
    (first, _, from_first), (second, _, from_second) = first.partition(" "), second.partition(" ")
    return from_first == from_second and (first.startswith(second) or second.startswith(first))


class Trial(NamedTuple):
    """The trial of a calibration that a measurement is of. Its outcomes said when it ended, so its bets decide."""

    chose: Mapping[int, PromptCounts] = MappingProxyType({})
    """what the same setting did on the prompts that chose"""
    fresh: tuple[int, ...] = ()
    """prompts that count, in the order of their use"""
    groups: Mapping[int, str] = MappingProxyType({})
    most: int = 1
    """prompts of the largest group"""
    bound: float = 0.49
    """mean of (1 + gain) / 2 at the margin of the promise"""
    finalists: int = 1
    """that share the chance of an error"""

    @property
    def margin(self) -> float:
        """Points of accuracy that the calibration lets a setting lose."""
        return round(100 * (1 - 2 * self.bound), 6)


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run: setting x task x prompts x seed."""

    id: str
    experiment_id: str | None
    experiment_name: str | None
    position: int
    """index in its experiment"""
    setting_id: str
    pair: str
    label: str
    decoding: DecodingConfig
    task: str
    seed: int
    config: RunConfig
    status: str
    """queued, running, finished, failed or cancelled; or stopped, if the process that ran it without a job was
    interrupted"""
    error: str | None
    prompts_done: int
    prompts_total: int
    decoding_seconds: float
    """spent on the prompts done"""
    losses: dict[int, int]
    """workers lost while generating a prompt, by its position"""
    metrics: dict[str, Any] | None
    provenance: dict[str, Any] | None
    """of the process that last continued the run"""
    measurement_sessions: tuple[MeasurementSession, ...] = ()
    """in the order of their start; none for a run measured before they were recorded"""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    mlflow_run_id: str | None
    predicted: dict[str, Any] | None = None
    """some metrics with their intervals, as replay predicted them before any measurement"""
    note: str = ""
    tags: tuple[str, ...] = ()
    archived: bool = False
    """hidden from lists and choices unless requested, never from links"""
    edits: int = 0
    """number of edits of name, note, tags and archiving"""
    trial: Trial | None = None
    rounds: tuple[str, ...] = ()
    """ids of the rounds of a calibration that are pooled in it"""

    @property
    def ids(self) -> tuple[str, ...]:
        return self.rounds or (self.id,)

    @property
    def conditions(self) -> list[Conditions]:
        """Conditions to compare with other runs': those of all measurement sessions, else the provenance's.

        A requested dtype is part of the comparison, so it is left out.
        """
        recorded = [session.conditions for session in self.measurement_sessions] or [conditions_of(self.provenance)]
        excluded = {"dtype"} if self.config.dtype != "auto" else set()
        return [{key: value for key, value in conditions.items() if key not in excluded} for conditions in recorded]

    @property
    def weights(self) -> dict[str, str]:
        """Fingerprint and origin of the weights it was measured with, by role (target, draft, head, adapter); empty
        if not recorded."""
        recorded = (self.provenance or {}).get("weights")
        return {role: str(fingerprint) for role, fingerprint in recorded.items()} if isinstance(recorded, dict) else {}

    @property
    def note_on_models(self) -> str:
        """Notes from loading the pair, such as an end token that the target's configuration lacks."""
        recorded = (self.provenance or {}).get("note")
        return recorded if isinstance(recorded, str) else ""

    @property
    def price_per_hour(self) -> float | None:
        """Price of the machine that last continued it, in any currency; ``None`` if nobody has named one."""
        recorded = (self.provenance or {}).get("price_per_hour")
        return float(recorded) if isinstance(recorded, int | float) and recorded > 0 else None

    @property
    def speed_mixed(self) -> tuple[str, ...]:
        """Names of the differences between its measurement sessions; empty if its speeds and times are one figure."""
        return mixed([session.conditions for session in self.measurement_sessions])

    @property
    def reading_versions(self) -> tuple[int, ...]:
        """Versions of the reading that scored its answers; several if it was resumed under another one. Version 1 for
        runs of before they were recorded; empty if nothing was read here."""
        recorded = re.findall(r"\b\d{1,4}\b", str((self.provenance or {}).get(READING_VERSIONS, 1)))
        return tuple(sorted(set(map(int, recorded)))) if self.prompts_done and not self.measured_elsewhere else ()

    @property
    def as_read_before(self) -> RunView:
        """The run with its counts from before another version of the reading rescored it; itself if none did."""
        counts = (self.provenance or {}).get(READ_BEFORE)
        return replace(self, metrics={**(self.metrics or {}), **counts}) if isinstance(counts, dict) else self

    @property
    def measured_elsewhere(self) -> bool:
        """Whether its figures were logged or imported, so that nothing here has verified them."""
        return self.decoding.acceptance.logged

    @property
    def origin(self) -> dict[str, Any]:
        """Where figures that were measured elsewhere come from: tool, version, file, date; empty if not recorded."""
        recorded = (self.provenance or {}).get(ORIGIN)
        return recorded if isinstance(recorded, dict) else {}

    @property
    def ended(self) -> bool:
        return self.status in ("finished", "failed", "cancelled")

    @property
    def under_way(self) -> bool:
        return self.status in UNDER_WAY

    @property
    def has_more_to_do(self) -> bool:
        """Whether resuming it would do anything: it is not finished, or some of its prompts failed."""
        failed = (self.metrics or {}).get("failed")
        return not self.measured_elsewhere and (self.status != "finished" or bool(failed))


@dataclass(frozen=True, kw_only=True)
class ExperimentView:
    """Several settings on the same prompts, with their progress."""

    id: str
    name: str
    config: SweepConfig
    status: str
    """queued, running, finished, failed or cancelled: of its job, and of its runs once the job is done; or stopped,
    if the process that ran it without a job was interrupted or is known to be gone"""
    error: str | None
    cancel_requested: bool
    job_id: str | None
    """``None`` if the command line does the runs itself"""
    lost_workers: int
    runs: tuple[RunView, ...]
    decoding_seconds: float
    """spent on the prompts done so far"""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    mlflow_run_id: str | None
    note: str = ""
    tags: tuple[str, ...] = ()
    archived: bool = False
    """hidden from lists and choices unless requested, never from links"""
    edits: int = 0
    """number of edits of name, note, tags and archiving"""

    @property
    def under_way(self) -> bool:
        return self.status in UNDER_WAY

    @property
    def prompts_done(self) -> int:
        return sum(run.prompts_done for run in self.runs)

    @property
    def prompts_total(self) -> int:
        return sum(run.prompts_total for run in self.runs)


@dataclass(frozen=True)
class RunName:
    """Fields by which a person selects a run."""

    id: str
    label: str
    seed: int
    experiment_name: str | None
    task: str
    created_at: datetime
    pair: str


@dataclass(frozen=True)
class RunValues:
    """Values that occur among all runs, each once and sorted."""

    pairs: tuple[str, ...]
    tasks: tuple[str, ...]
    """without the versions of custom tasks"""
    rules: tuple[str, ...]


@dataclass(frozen=True)
class ExperimentName:
    """Fields by which a person selects an experiment; ``runs`` is their number."""

    id: str
    name: str
    runs: int
    created_at: datetime
    pair: str


@dataclass(frozen=True)
class Deletion:
    """The contents of a deletion."""

    name: str
    runs: int
    prompts: int


__all__ = [
    "ORIGIN",
    "READING_VERSIONS",
    "READ_BEFORE",
    "UNDER_WAY",
    "UNENDED",
    "Deletion",
    "ExperimentName",
    "ExperimentView",
    "GenerationRecord",
    "GenerationView",
    "LoggedEvent",
    "MeasurementSession",
    "PromptCounts",
    "Prompts",
    "RunName",
    "RunValues",
    "RunView",
    "SettingSummary",
    "SettingView",
    "TaskView",
    "Trial",
    "fingerprint_of",
    "same_model",
    "same_weights",
]

Subject = Literal["run", "experiment"]

LONGEST_RUN_NAME = 255
LONGEST_NOTE = 10_000
LONGEST_TAG, MOST_TAGS = 30, 12


@dataclass(frozen=True)
class Edit:
    """New values; ``None`` leaves one unchanged. Raises ``InvalidSetting`` for values that cannot be stored."""

    name: str | None = None
    """of an experiment; a run is named by its setting"""
    note: str | None = None
    tags: tuple[str, ...] | None = None
    archived: bool | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            checked_name(self.name)
        if self.note is not None and len(self.note) > LONGEST_NOTE:
            raise OutOfRange(f"The note has {len(self.note):,} characters: use at most {LONGEST_NOTE:,}.")
        if self.tags is not None and read_tags(" ".join(self.tags)) != self.tags:
            raise Malformed("Tags are single words, each once, in alphabetical order: use read_tags.")


def checked_name(name: str) -> str:
    """Return an experiment's name, stripped. Raises ``InvalidSetting`` if it is empty or too long."""
    name = name.strip()
    if not name:
        raise NotGiven("The experiment needs a name: type one.")
    if len(name) > LONGEST_RUN_NAME:
        raise OutOfRange(f"The name of the experiment has {len(name)} characters: use at most {LONGEST_RUN_NAME}.")
    return name


def read_tags(text: str) -> tuple[str, ...]:
    """Return the tags in a text, separated by spaces or commas: sorted, each once, in its first spelling.

    Raises ``InvalidSetting``.
    """
    words = [word.strip("#") for word in text.replace(",", " ").split()]
    tags = tuple(sorted({word.casefold(): word for word in reversed(words) if word}.values(), key=str.casefold))
    for tag in tags:
        if len(tag) > LONGEST_TAG or not tag.isprintable():
            raise OutOfRange(f"The tag {tag[:40]!r} cannot be used: expected 1 to {LONGEST_TAG} characters.")
    if len(tags) > MOST_TAGS:
        raise OutOfRange(f"There are {len(tags)} tags: use at most {MOST_TAGS}.")
    return tags


OTHER_FIGURES = "other_figures"
"""key of a run's metrics that holds figures by names of their own, each with the ends of its interval"""


def other_figures(metrics: Mapping[str, Any] | None) -> dict[str, Estimate]:
    """Return figures by names of their own, of a run's metrics."""
    stored = (metrics or {}).get(OTHER_FIGURES)
    figures = stored.items() if isinstance(stored, dict) else ()
    return {name: Estimate(*ends) for name, ends in figures if len(ends) == 3 and ends[0] is not None}


def origin_text(run: RunView) -> str:
    """Return where figures that were measured elsewhere come from, such as ``tool vllm, version 0.32``."""
    facts = [f"{name} {value}" for name, value in run.origin.items() if value is not None]
    return ", ".join(facts) or "origin not recorded"
