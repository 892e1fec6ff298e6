"""The tables, whose rows are the values that leave the repository. Only Alembic changes tables (``migrations/``).

A row that has left its session stays as it was read; what is changed in it is not stored.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, mapped_column, relationship

from fsd_core.config.model_names import LONGEST_NAME
from fsd_core.metrics import Outcome
from fsd_core.roles import Person, same_name
from fsd_core.rules import Served
from fsd_core.storage.column_types import Amount, Count, Facts, Losses, Metrics, Number, Provenance, StopReason

ALIVE_SECONDS = 10.0
"""A worker whose heartbeat is older than this counts as gone."""

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


def now() -> datetime:
    return datetime.now(UTC)


class Utc(TypeDecorator[datetime]):
    """A time in UTC. SQLite stores no zone, so it is attached on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class AsServed(TypeDecorator[Served]):
    """A running engine as JSON."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Served | None, dialect: Any) -> dict[str, Any] | None:
        return value.as_json() if value else None

    def process_result_value(self, value: Any, dialect: Any) -> Served | None:
        return Served.model_validate(value)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar = {datetime: Utc, dict[str, Any]: JSON, str: String(255)}

    def __repr__(self) -> str:
        loaded = (f"{name}={value!r}" for name, value in sorted(vars(self).items()) if not name.startswith("_"))
        return f"{type(self).__name__}({', '.join(loaded)})"


class UserRow(Base):
    """A user who may sign in."""

    __tablename__ = "users"
    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    password: Mapped[str] = mapped_column(deferred=True)  # argon2's hash, which leaves no session
    created_at: Mapped[datetime] = mapped_column(default=now)
    signed_in_at: Mapped[datetime | None]  # last; None: never, or before this was recorded
    disabled_at: Mapped[datetime | None]
    one_time_until: Mapped[datetime | None]  # of a password that is good for one sign-in; then the time of that one

    @property
    def disabled(self) -> bool:
        """Whether nobody may sign in as them."""
        return self.disabled_at is not None

    @property
    def one_time(self) -> bool:
        """Whether the password is one for a single sign-in, used or not."""
        return self.one_time_until is not None


class SignInAttemptRow(Base):
    """How often somebody at one address has tried one name with wrong passwords, and until when they must wait."""

    __tablename__ = "sign_in_attempts"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)  # the hash of both
    failures: Mapped[int]  # attempts under way included
    wait_until: Mapped[datetime]


class SignInRow(Base):
    """A browser in which somebody is signed in. Only the hash of its cookie is stored."""

    __tablename__ = "sign_ins"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_name: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), index=True)
    expires_at: Mapped[datetime]
    user: Mapped[UserRow] = relationship(lazy="joined")


class ApiTokenRow(Base):
    """A token that a program presents instead of a password. Only its hash is stored."""

    __tablename__ = "api_tokens"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str] = mapped_column(String(16))
    owner: Mapped[str] = mapped_column(default="", server_default="")  # who made it; empty: before there were owners
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]  # to the minute


class AccountEventRow(Base):
    """Log of accounts: sign-ins, and changes of people, roles and tokens. Rows never change."""

    __tablename__ = "account_log"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now)
    who: Mapped[str]  # who did it
    act: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str]  # whose account, or which token
    detail: Mapped[str]  # such as the new role


class OwnPairRow(Base):
    """A version of a pair that somebody has named. Its version is the hash of the models that it is made of."""

    __tablename__ = "own_pairs"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    version: Mapped[str] = mapped_column(String(16), primary_key=True)
    models: Mapped[str] = mapped_column(Text)  # see fsd_core.config.model_names
    added_by: Mapped[str]
    added_at: Mapped[datetime] = mapped_column(default=now)  # most recently; the name refers to the latest version


class ServedEngineRow(Base):
    """A running engine that somebody has named. Its key is in the environment alone."""

    __tablename__ = "served_engines"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    served: Mapped[Served] = mapped_column(AsServed)
    key_variable: Mapped[str] = mapped_column(default="", server_default="")  # name of the variable with its key
    hardware: Mapped[str] = mapped_column(default="", server_default="")  # as people say it: no engine tells
    # whether only public hosts, and those that the operator names, may be asked: who added it may not choose any
    guarded: Mapped[bool] = mapped_column(default=False, server_default=false())
    added_by: Mapped[str]
    added_at: Mapped[datetime] = mapped_column(default=now)


class ReportRow(Base):
    """A report. Its content never changes, and its version is the content's hash."""

    __tablename__ = "reports"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    title: Mapped[str]
    version: Mapped[str] = mapped_column(String(16))
    content: Mapped[dict[str, Any]] = mapped_column(deferred=True)  # ReportContent of fsd_core.storage.catalogue
    who: Mapped[str]
    at: Mapped[datetime] = mapped_column(default=now)


class SavedViewRow(Base):
    """A name for what a page shows. There is one of a name on a page, however it is written."""

    __tablename__ = "saved_views"
    __table_args__ = (UniqueConstraint("page", "folded"),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    page: Mapped[str] = mapped_column(String(16))  # its path
    name: Mapped[str]
    folded: Mapped[str]  # the name as it is compared (fsd_core.roles.folded)
    query: Mapped[str] = mapped_column(Text)  # of the page's address
    who: Mapped[str]
    at: Mapped[datetime] = mapped_column(default=now)  # most recently saved

    @property
    def address(self) -> str:
        """The address below the application's root."""
        return f"{self.page}?{self.query}"

    def may_change(self, person: Person) -> bool:
        """Whether a person may replace, rename and delete the view: who saved it, or an admin."""
        return person.may("admin") or (person.may("author") and person.known and same_name(person.name, self.who))


class TaskRow(Base):
    """A version of a custom task. Its content never changes, and its version is the content's hash."""

    __tablename__ = "tasks"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    version: Mapped[str] = mapped_column(String(16), primary_key=True)
    title: Mapped[str]
    scorer: Mapped[str] = mapped_column(String(16))
    prompts: Mapped[int]
    content: Mapped[str] = mapped_column(Text)  # JSON Lines, see fsd_core.tasks.custom
    added_by: Mapped[str]
    added_at: Mapped[datetime] = mapped_column(default=now)  # most recently; the name refers to the latest version


class ReviewEventRow(Base):
    """One event of a review. The database refuses to change or delete a row."""

    __tablename__ = "review_log"
    __table_args__ = (UniqueConstraint("use_id", "sequence"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    use_id: Mapped[str] = mapped_column(String(64))
    sequence: Mapped[int]  # 1, 2, … within its use, rejects the second of two simultaneous events
    at: Mapped[datetime] = mapped_column(default=now)
    who: Mapped[str]
    role: Mapped[str] = mapped_column(String(16))  # at that time
    owner: Mapped[str | None]  # of the program that acted
    kind: Mapped[str] = mapped_column(String(32))
    act: Mapped[dict[str, Any]]  # fsd_core.storage.review_events
    key: Mapped[str | None] = mapped_column(String(32), index=True, unique=True)  # an act sent again is stored once


class OutboxRow(Base):
    """A message to a webhook or by mail. Its id is the hash of its content and recipient, so it is stored once."""

    __tablename__ = "outbox"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    channel: Mapped[str] = mapped_column(String(16))  # webhook, mail
    recipient: Mapped[str]  # a mail address; empty for the webhook
    content: Mapped[dict[str, Any]]  # fsd_core.storage.messages
    created_at: Mapped[datetime] = mapped_column(default=now)
    due_at: Mapped[datetime] = mapped_column(default=now, index=True)  # when it is tried next; claims move it as well
    claim: Mapped[str | None] = mapped_column(String(32))  # who tries it
    attempts: Mapped[int] = mapped_column(default=0)
    sent_at: Mapped[datetime | None]
    given_up_at: Mapped[datetime | None]
    error: Mapped[str | None] = mapped_column(Text)  # of the last attempt


class OutboxCursorRow(Base):
    """How far the review log has been put into the outbox for a channel, since it was configured."""

    __tablename__ = "outbox_cursors"
    channel: Mapped[str] = mapped_column(String(16), primary_key=True)
    since: Mapped[datetime] = mapped_column(default=now)
    last_event: Mapped[int]  # id of an event of the review log


class ChangeRow(Base):
    """Somebody's edit or deletion of a run or an experiment. Like the review log's, its rows never change."""

    __tablename__ = "change_log"
    __table_args__ = (UniqueConstraint("subject", "sequence"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))  # run, experiment
    subject: Mapped[str] = mapped_column(String(32))  # id of the run or experiment, which may be gone
    sequence: Mapped[int]  # 1, 2, … of its subject
    experiment_id: Mapped[str | None] = mapped_column(String(32), index=True)  # the experiment itself, or the run's
    at: Mapped[datetime] = mapped_column(default=now)
    who: Mapped[str]
    role: Mapped[str] = mapped_column(String(16))  # at that time
    owner: Mapped[str | None]  # of the program that acted
    act: Mapped[str] = mapped_column(String(16))  # changed, deleted
    change: Mapped[dict[str, Any]]  # old and new value by column, or what was deleted


class _Annotated:
    """People's annotations of a run or an experiment; ``change_log`` records who made them, and when."""

    note: Mapped[str] = mapped_column(Text, default="", server_default="")
    tags: Mapped[str] = mapped_column(String(400), default="", server_default="")  # with spaces between them
    archived: Mapped[bool] = mapped_column(default=False, server_default=false())  # hidden from lists
    edits: Mapped[int] = mapped_column(default=0, server_default="0")  # rejects the second of two simultaneous edits


class SettingRow(Base):
    """A pair and its decoding configuration; immutable but for the pair's name, its key is the hash of its content."""

    __tablename__ = "settings"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    # The names of several folders are long. SQLite does not look at lengths.
    pair: Mapped[str] = mapped_column(String(255).with_variant(String(LONGEST_NAME), "postgresql"), index=True)
    label: Mapped[str]
    acceptance: Mapped[str] = mapped_column(index=True)
    threshold: Mapped[float | None]
    config: Mapped[dict[str, Any]]  # SettingConfig as JSON
    created_at: Mapped[datetime] = mapped_column(default=now)


class ExperimentRow(_Annotated, Base):
    """Several settings on the same prompts."""

    __tablename__ = "experiments"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str]
    config: Mapped[dict[str, Any]]  # SweepConfig as JSON
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
    mlflow_run_id: Mapped[str | None] = mapped_column(String(64))
    runs: Mapped[list[RunRow]] = relationship(back_populates="experiment", order_by="RunRow.position")


class RunRow(_Annotated, Base):
    """Setting x task x prompts x seed."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    position: Mapped[Count] = mapped_column(default=0)
    setting_id: Mapped[str] = mapped_column(ForeignKey("settings.id"), index=True)
    task: Mapped[str] = mapped_column(index=True)
    seed: Mapped[int]
    config: Mapped[dict[str, Any]]  # RunConfig as JSON
    status: Mapped[str] = mapped_column(String(16), default="queued", index=True)
    error: Mapped[str | None] = mapped_column(Text)
    prompts_done: Mapped[Count] = mapped_column(default=0)
    prompts_total: Mapped[Count]
    decoding_seconds: Mapped[Amount] = mapped_column(default=0.0)  # of the prompts done
    losses: Mapped[Losses | None]  # workers lost while generating a prompt, by its position
    metrics: Mapped[Metrics | None]  # fsd_core.evaluation.aggregate.summarise
    provenance: Mapped[Provenance | None]
    predicted: Mapped[Metrics | None]  # some metrics, predicted by replay before the measurement
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    mlflow_run_id: Mapped[str | None] = mapped_column(String(64))
    mlflow_synced_at: Mapped[datetime | None]
    setting: Mapped[SettingRow] = relationship(lazy="joined")
    experiment: Mapped[ExperimentRow | None] = relationship(back_populates="runs")
    generations: Mapped[list[GenerationRow]] = relationship(
        order_by="GenerationRow.position", cascade="all, delete-orphan"
    )
    measurement_sessions: Mapped[list[MeasurementSessionRow]] = relationship(
        order_by="MeasurementSessionRow.id", cascade="all, delete-orphan", lazy="selectin"
    )


class MeasurementSessionRow(Base):
    """The conditions under which some prompts of a run were measured; deleted with the last of these prompts."""

    __tablename__ = "sittings"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    conditions: Mapped[Facts]  # fsd_core.metrics; empty if not recorded
    started_at: Mapped[datetime | None]


class GenerationRow(Base):
    """One prompt of one run. Its row and its trace are written in one transaction."""

    __tablename__ = "generations"
    __table_args__ = (UniqueConstraint("run_id", "position"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    position: Mapped[Count]  # index of the prompt in the task
    example_id: Mapped[str]
    prompt: Mapped[str] = mapped_column(Text)
    # how many turns of its conversation stand before it, at the positions right before its own
    turn: Mapped[Count] = mapped_column(server_default="0")
    # of prompts that depend on each other; empty: it stands alone
    group: Mapped[str] = mapped_column(String(100), server_default="")
    prompt_hash: Mapped[str | None] = mapped_column(String(16))  # of the token ids that were fed
    reference: Mapped[str | None] = mapped_column(Text)
    text: Mapped[str] = mapped_column(Text)
    answer: Mapped[str | None] = mapped_column(Text)  # extracted from the text
    outcome: Mapped[Outcome] = mapped_column(String(16))
    unread: Mapped[bool] = column_property((outcome == "wrong") & answer.is_(None))
    stop_reason: Mapped[StopReason] = mapped_column(String(16))
    error: Mapped[str | None] = mapped_column(Text)
    tokens: Mapped[Count]
    thought_tokens: Mapped[Count] = mapped_column(server_default="0")
    rounds: Mapped[Count]
    drafted: Mapped[Count]
    accepted: Mapped[Count]
    fuzzy: Mapped[Count]  # lenient tokens
    negative_log_likelihood: Mapped[Number]  # of the emitted tokens, under the target, in nats
    seconds: Mapped[Amount]
    time_to_first_token: Mapped[Amount]
    cpu_seconds: Mapped[Amount | None]  # of this process meanwhile; None: another device computes, or not recorded
    latency: Mapped[Amount | None]  # wall seconds from its request to its end; None: not recorded
    energy: Mapped[Amount | None]  # joules of the GPU; None: no GPU says
    device_memory: Mapped[Count | None] = mapped_column(BigInteger)  # bytes in use at its end; None as well
    created_at: Mapped[datetime] = mapped_column(default=now)
    # None: measured before measurement sessions were recorded, or not measured at all
    sitting_id: Mapped[int | None] = mapped_column(ForeignKey("sittings.id"), index=True)
    measurement_session: Mapped[MeasurementSessionRow | None] = relationship()
    trace: Mapped[TraceRow | None] = relationship(cascade="all, delete-orphan", back_populates="generation")


class TraceRow(Base):
    """Every round of a generation: gzipped JSON, see ``fsd_core.decoding.trace.pack_rounds``."""

    __tablename__ = "traces"
    generation_id: Mapped[int] = mapped_column(ForeignKey("generations.id", ondelete="CASCADE"), primary_key=True)
    data: Mapped[bytes] = mapped_column(LargeBinary)
    sha256: Mapped[str] = mapped_column(String(64))
    generation: Mapped[GenerationRow] = relationship(back_populates="trace")


class MarkRow(Base):
    """One person's opinion of one output."""

    __tablename__ = "marks"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    who: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str | None] = mapped_column(String(8))  # good, bad
    note: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime] = mapped_column(default=now)


class EngineReadingRow(Base):
    """Readings of an engine's own counters over one stretch of a run."""

    __tablename__ = "engine_readings"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    reading: Mapped[dict[str, Any]]  # fsd_core.engines.kinds.EngineReading as JSON
    at: Mapped[datetime] = mapped_column(default=now)


class JobRow(Base):
    """Work for the worker. A claim holds a lease, and a job whose lease expired is claimed again."""

    __tablename__ = "jobs"
    __table_args__ = (Index("ix_jobs_status_priority", "status", "priority", "created_at"),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))  # the kind of a fsd_core.storage.messages.JobMessage
    payload: Mapped[dict[str, Any]]
    priority: Mapped[int] = mapped_column(default=0)  # higher first, because a person waits for the playground
    status: Mapped[str] = mapped_column(String(16), default="queued")
    error: Mapped[str | None] = mapped_column(Text)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    claim_token: Mapped[str | None] = mapped_column(String(32))
    lease_expires_at: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(default=0)  # claims so far
    lost_workers: Mapped[int] = mapped_column(default=0)  # claims whose worker died
    progress: Mapped[int] = mapped_column(default=0)  # progress when a worker was last lost
    stalled: Mapped[int] = mapped_column(default=0)  # workers lost in a row without progress or a prompt to blame
    bytes_done: Mapped[int | None] = mapped_column(BigInteger)  # of a fetch of models
    bytes_total: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class StreamChunkRow(Base):
    """Output of a playground job, in order; the page polls from the last chunk that it has seen."""

    __tablename__ = "stream_chunks"
    __table_args__ = (UniqueConstraint("job_id", "sequence"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    sequence: Mapped[int]
    payload: Mapped[dict[str, Any]]


class MlflowDeletionRow(Base):
    """A run or an experiment that was deleted here but not yet in MLflow."""

    __tablename__ = "mlflow_deletions"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))  # run, experiment
    created_at: Mapped[datetime] = mapped_column(default=now)


class WorkerRow(Base):
    """A worker, as the pages see it: alive if its heartbeat is recent, and its activity."""

    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)  # empty: that of a home
    pid: Mapped[int]
    host: Mapped[str]
    device: Mapped[str]
    activity: Mapped[str]
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    memory: Mapped[int | None] = mapped_column(BigInteger)  # bytes that the device has; None: not known
    age = 0.0
    """seconds since its heartbeat, when it was read. One in the future dates from before the clock was set back."""

    @property
    def alive(self) -> bool:
        """Whether its heartbeat is recent."""
        return self.age < ALIVE_SECONDS


__all__ = [
    "ALIVE_SECONDS",
    "NAMING",
    "AccountEventRow",
    "ApiTokenRow",
    "Base",
    "ChangeRow",
    "EngineReadingRow",
    "ExperimentRow",
    "GenerationRow",
    "JobRow",
    "MarkRow",
    "MeasurementSessionRow",
    "MlflowDeletionRow",
    "OutboxCursorRow",
    "OutboxRow",
    "OwnPairRow",
    "ReportRow",
    "ReviewEventRow",
    "RunRow",
    "SavedViewRow",
    "ServedEngineRow",
    "SettingRow",
    "SignInAttemptRow",
    "SignInRow",
    "StreamChunkRow",
    "TaskRow",
    "TraceRow",
    "UserRow",
    "Utc",
    "WorkerRow",
    "now",
]
