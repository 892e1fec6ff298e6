"""The tables. Only Alembic creates and changes them (``migrations/``)."""

from __future__ import annotations

from fsd_core.storage.database.tables.account_tables import (
    AccountEventRow,
    ApiTokenRow,
    SignInAttemptRow,
    SignInRow,
    UserRow,
)
from fsd_core.storage.database.tables.catalogue_tables import (
    OwnPairRow,
    ReportRow,
    SavedViewRow,
    ServedEngineRow,
    TaskRow,
)
from fsd_core.storage.database.tables.log_tables import ChangeRow, OutboxCursorRow, OutboxRow, ReviewEventRow
from fsd_core.storage.database.tables.measurement_tables import (
    EngineReadingRow,
    ExperimentRow,
    GenerationRow,
    MarkRow,
    MeasurementSessionRow,
    RunRow,
    SettingRow,
    TraceRow,
)
from fsd_core.storage.database.tables.table_base import NAMING, Base, Utc, now
from fsd_core.storage.database.tables.work_tables import JobRow, MlflowDeletionRow, StreamChunkRow, WorkerRow

__all__ = [
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
