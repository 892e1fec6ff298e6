"""Tables of measurements: settings, experiments, runs, their prompts and traces."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import Mapped, column_property, mapped_column, relationship

from fsd_core.config.model_names import LONGEST_NAME
from fsd_core.storage.database.tables.table_base import Base, now


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
    position: Mapped[int] = mapped_column(default=0)
    setting_id: Mapped[str] = mapped_column(ForeignKey("settings.id"), index=True)
    task: Mapped[str] = mapped_column(index=True)
    seed: Mapped[int]
    config: Mapped[dict[str, Any]]  # RunConfig as JSON
    status: Mapped[str] = mapped_column(String(16), default="queued", index=True)
    error: Mapped[str | None] = mapped_column(Text)
    prompts_done: Mapped[int] = mapped_column(default=0)
    prompts_total: Mapped[int]
    decoding_seconds: Mapped[float] = mapped_column(default=0.0)  # of the prompts done
    losses: Mapped[dict[str, Any] | None]  # workers lost while generating a prompt, by its position
    metrics: Mapped[dict[str, Any] | None]  # fsd_core.evaluation.aggregate.summarise
    provenance: Mapped[dict[str, Any] | None]
    predicted: Mapped[dict[str, Any] | None]  # some metrics, predicted by replay before the measurement
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
    conditions: Mapped[dict[str, Any]]  # fsd_core.conditions; empty if not recorded
    started_at: Mapped[datetime | None]


class GenerationRow(Base):
    """One prompt of one run. Its row and its trace are written in one transaction."""

    __tablename__ = "generations"
    __table_args__ = (UniqueConstraint("run_id", "position"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    position: Mapped[int]  # index of the prompt in the task
    example_id: Mapped[str]
    prompt: Mapped[str] = mapped_column(Text)
    # how many turns of its conversation stand before it, at the positions right before its own
    turn: Mapped[int] = mapped_column(server_default="0")
    # of prompts that depend on each other; empty: it stands alone
    group: Mapped[str] = mapped_column(String(100), server_default="")
    prompt_hash: Mapped[str | None] = mapped_column(String(16))  # of the token ids that were fed
    reference: Mapped[str | None] = mapped_column(Text)
    text: Mapped[str] = mapped_column(Text)
    answer: Mapped[str | None] = mapped_column(Text)  # extracted from the text
    outcome: Mapped[str] = mapped_column(String(16))
    unread: Mapped[bool] = column_property((outcome == "wrong") & answer.is_(None))
    stop_reason: Mapped[str] = mapped_column(String(16))  # eos, length, context, error
    error: Mapped[str | None] = mapped_column(Text)
    tokens: Mapped[int]
    thought_tokens: Mapped[int] = mapped_column(server_default="0")
    rounds: Mapped[int]
    drafted: Mapped[int]
    accepted: Mapped[int]
    fuzzy: Mapped[int]  # lenient tokens
    negative_log_likelihood: Mapped[float]  # of the emitted tokens, under the target, in nats
    seconds: Mapped[float]
    time_to_first_token: Mapped[float]
    cpu_seconds: Mapped[float | None]  # of this process meanwhile; None: another device computes, or not recorded
    latency: Mapped[float | None]  # wall seconds from its request to its end; None: not recorded
    energy: Mapped[float | None]  # joules of the GPU; None: no GPU says
    device_memory: Mapped[int | None] = mapped_column(BigInteger)  # bytes in use at its end; None as well
    created_at: Mapped[datetime] = mapped_column(default=now)
    # None: measured before measurement sessions were recorded, or not measured at all
    sitting_id: Mapped[int | None] = mapped_column(ForeignKey("sittings.id"), index=True)
    measurement_session: Mapped[MeasurementSessionRow | None] = relationship()
    trace: Mapped[TraceRow | None] = relationship(cascade="all, delete-orphan", back_populates="generation")


class TraceRow(Base):
    """Every round of a generation: gzipped JSON, see ``fsd_core.decoding.trace.pack``."""

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
    reading: Mapped[dict[str, Any]]  # fsd_core.engines.engine_counters.EngineReading as JSON
    at: Mapped[datetime] = mapped_column(default=now)
