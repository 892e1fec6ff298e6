"""Values that the repository takes and returns: plain, frozen and free of the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fsd_core.conditions import Conditions, conditions_of, mixed
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig, SweepConfig
from fsd_core.decoding.trace import RoundRecord
from fsd_core.rules import Served
from fsd_core.storage.review_events import ReviewEvent

UNDER_WAY = ("queued", "running")
"""statuses of what a process has or will have, be it a run, an experiment or a job"""
UNENDED = (*UNDER_WAY, "stopped")
"""statuses of what has not ended; what is stopped waits for somebody to resume it"""

ORIGIN = "measured_elsewhere"
"""key of a run's provenance that says where figures come from that were not measured here"""

ALIVE_SECONDS = 10.0
"""A worker whose heartbeat is older than this counts as gone."""


@dataclass(frozen=True, kw_only=True)
class _Generation:
    position: int
    """index of the prompt in the task"""
    example_id: str
    prompt: str
    """what is asked, without earlier turns"""
    turn: int = 0
    """how many turns of its conversation stand before it, at the positions right before its own"""
    group: str = ""
    """the group of prompts that it belongs to, which depend on each other; empty for a prompt that stands alone, and
    before revision 0033"""
    prompt_hash: str | None = None
    """of the token ids that were fed, as rendered; ``None`` for prompts of before revision 0012, and for those that
    could not be rendered"""
    reference: str | None
    text: str
    answer: str | None
    """extracted from the text"""
    outcome: str
    """correct, wrong, truncated, failed or unscored"""
    stop_reason: str
    """eos, length, context or error"""
    error: str | None
    tokens: int
    thought_tokens: int = 0
    """those of them that belong to thoughts, with their marks; 0 for texts of before revision 0011"""
    rounds: int
    drafted: int
    accepted: int
    fuzzy: int
    """lenient tokens: drafted, and accepted although the strict test would have rejected them"""
    negative_log_likelihood: float
    """of the emitted tokens under the target, in nats"""
    seconds: float
    time_to_first_token: float
    """seconds"""
    cpu_seconds: float | None = None
    """processor time of the process meanwhile; ``None`` if another device computed, and before revision 0018"""
    latency: float | None = None
    """wall seconds from its request to its end, whatever else was decoded meanwhile; ``seconds`` are its share of them.
    ``None`` before revision 0025"""
    energy: float | None = None
    """joules that the GPU took for it; ``None`` where none says, and before revision 0031"""
    device_memory: int | None = None
    """bytes of the GPU's memory in use at its end; ``None`` as above"""

    @property
    def timed(self) -> bool:
        """Whether its times count in metrics."""
        return True

    @property
    def only_thought(self) -> bool:
        """Whether all of it belongs to a thought, as of a text that was cut off inside of one."""
        return 0 < self.thought_tokens == self.tokens


@dataclass(frozen=True, kw_only=True)
class GenerationRecord(_Generation):
    """One prompt of one run as it is recorded, with its trace."""

    records: list[RoundRecord] = field(default_factory=list)


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


class PromptCounts(NamedTuple):
    """Counts of one prompt of one run, from which all metrics are computed."""

    outcome: str
    stop_reason: str
    tokens: int
    rounds: int
    drafted: int
    accepted: int
    fuzzy: int
    negative_log_likelihood: float
    seconds: float
    time_to_first_token: float
    thought_tokens: int = 0
    prompt_hash: str | None = None
    turn: int = 0
    cpu_seconds: float | None = None
    latency: float | None = None
    group: str = ""
    energy: float | None = None
    device_memory: int | None = None
    text: str = ""
    """read only if a metric of another package may need it"""
    timed: bool = True
    """whether its times count: false where its setting was timed again on other prompts"""


Prompts = Mapping[str, Mapping[int, PromptCounts]]
"""by run and position of the prompt"""


def fingerprint_of(fingerprint_origin: str) -> str:
    """Return the fingerprint part of a ``fingerprint origin`` string."""
    return fingerprint_origin.partition(" ")[0]


def same_weights(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Whether no role that both have differs, and both or neither are known."""
    return bool(first) == bool(second) and all(first[role] == second[role] for role in first.keys() & second.keys())


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
        """What was told when the pair was loaded, such as an end token that the target's configuration lacks."""
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


@dataclass(frozen=True)
class OwnPair:
    """A version of a pair that somebody has named."""

    name: str
    version: str
    """first 16 hex digits of the SHA-256 of ``models``"""
    models: str
    """the name under which runs are recorded, which says the models (:mod:`fsd_core.config.model_names`)"""
    added_by: str
    added_at: datetime


@dataclass(frozen=True)
class ServedEngine:
    """A running engine that somebody has named. Its key is in the environment alone."""

    served: Served
    key_variable: str
    """name of the environment variable that holds its key; empty for none"""
    added_by: str
    added_at: datetime
    hardware: str = ""
    """what it computes on, as people say it"""
    guarded: bool = False
    """whether only public hosts and those that the operator names may be asked: somebody added it who may not choose
    any"""

    @property
    def name(self) -> str:
        return self.served.endpoint


@dataclass(frozen=True)
class MarkView:
    """One person's opinion of a run's output for one prompt."""

    run_id: str
    position: int
    who: str
    verdict: str | None
    """good, bad, or neither"""
    note: str
    at: datetime


@dataclass(frozen=True)
class AccountView:
    """A user, without secrets."""

    name: str
    role: str
    created_at: datetime
    signed_in_at: datetime | None
    """last; ``None``: never, or before this was recorded"""
    disabled: bool
    one_time: bool
    """whether the password is one for a single sign-in, used or not"""


@dataclass(frozen=True)
class TokenView:
    """A token of a program, without its secret."""

    name: str
    role: str
    owner: str
    """who made it; empty: unknown"""
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    """to the minute"""


@dataclass(frozen=True)
class AccountEvent:
    """One row of the log of accounts."""

    at: datetime
    who: str
    act: str
    subject: str
    """whose account, or which token"""
    detail: str


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


@dataclass(frozen=True)
class LoggedChange:
    """One row of the log of changes and deletions."""

    kind: str
    """run or experiment"""
    subject: str
    """id of the run or experiment, which may be gone"""
    experiment_id: str | None
    """the experiment itself, or the run's"""
    at: datetime
    who: str
    role: str
    """of that person, at that time"""
    action: str
    """changed or deleted"""
    change: dict[str, Any]
    """old and new value by name, or what was deleted"""
    owner: str | None = None
    """of the program that acted; ``None``: a person did"""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """Work for the worker, and its status."""

    id: str
    kind: str
    payload: dict[str, Any]
    """as stored; the kind's class in ``messages`` reads it"""
    priority: int
    status: str
    error: str | None
    cancel_requested: bool
    claim_token: str | None
    lease_expires_at: datetime | None
    attempts: int
    """claims so far"""
    lost_workers: int
    """claims whose worker died"""
    stalled: int
    """workers lost in a row without progress or a prompt to blame"""
    bytes_done: int | None
    """of a fetch of models, once it has begun"""
    bytes_total: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class WorkerView:
    """A worker, as it last reported itself."""

    pid: int
    host: str
    device: str
    activity: str
    started_at: datetime
    heartbeat_at: datetime
    memory: int | None = None
    """bytes that its device has, if known"""
    name: str = ""
    """of a worker beside others; empty for that of a home"""

    @property
    def alive(self) -> bool:
        """Whether its heartbeat is recent. A heartbeat in the future dates from before the clock was set back."""
        return abs((datetime.now(UTC) - self.heartbeat_at).total_seconds()) < ALIVE_SECONDS
