"""Values that the repository takes and returns: plain, frozen and free of the database."""

from __future__ import annotations

from fsd_core.storage.records.catalogue_records import OwnPair, ServedEngine, SettingSummary, SettingView, TaskView
from fsd_core.storage.records.generation_records import (
    GenerationRecord,
    GenerationView,
    MeasurementSession,
    PromptCounts,
    Prompts,
)
from fsd_core.storage.records.people_records import (
    AccountEvent,
    AccountView,
    LoggedChange,
    LoggedEvent,
    MarkView,
    TokenView,
)
from fsd_core.storage.records.run_records import (
    ORIGIN,
    READ_BEFORE,
    READING_VERSIONS,
    Deletion,
    ExperimentName,
    ExperimentView,
    RunName,
    RunValues,
    RunView,
    Trial,
    fingerprint_of,
    same_model,
    same_weights,
)
from fsd_core.storage.records.work_records import ALIVE_SECONDS, UNDER_WAY, UNENDED, JobView, WorkerView

__all__ = [
    "ALIVE_SECONDS",
    "ORIGIN",
    "READING_VERSIONS",
    "READ_BEFORE",
    "UNDER_WAY",
    "UNENDED",
    "AccountEvent",
    "AccountView",
    "Deletion",
    "ExperimentName",
    "ExperimentView",
    "GenerationRecord",
    "GenerationView",
    "JobView",
    "LoggedChange",
    "LoggedEvent",
    "MarkView",
    "MeasurementSession",
    "OwnPair",
    "PromptCounts",
    "Prompts",
    "RunName",
    "RunValues",
    "RunView",
    "ServedEngine",
    "SettingSummary",
    "SettingView",
    "TaskView",
    "TokenView",
    "Trial",
    "WorkerView",
    "fingerprint_of",
    "same_model",
    "same_weights",
]
