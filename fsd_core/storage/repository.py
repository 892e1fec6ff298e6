"""The only access to the database for everything but ``tracking``."""

from __future__ import annotations

from fsd_core.storage.accounts import AccountStore
from fsd_core.storage.catalogue import OwnPairStore, ReportStore, ServedEngineStore, TaskStore, ViewStore
from fsd_core.storage.experiments import ChangeStore, DeletionStore, ExperimentStore
from fsd_core.storage.generations import GenerationStore
from fsd_core.storage.jobs import JobStore, WorkerStore
from fsd_core.storage.reviews import MarkStore, OutboxStore, ReviewStore
from fsd_core.storage.runs import LoggedRunStore, RunShareStore, RunStore, SettingStore


class Repository(
    ExperimentStore,
    RunStore,
    LoggedRunStore,
    GenerationStore,
    JobStore,
    DeletionStore,
    SettingStore,
    ReviewStore,
    MarkStore,
    AccountStore,
    ChangeStore,
    TaskStore,
    OwnPairStore,
    OutboxStore,
    ReportStore,
    ServedEngineStore,
    ViewStore,
    RunShareStore,
    WorkerStore,
):
    """The contents of the database. Every method is one transaction (``traces``: one per batch).

    All return detached plain values. Methods raise ``DatabaseUnavailable`` if the database cannot be used, and
    ``UnknownName`` for an unknown id. May be shared by threads.
    """
