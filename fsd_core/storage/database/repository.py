"""The only access to the database for everything but ``tracking``."""

from __future__ import annotations

from fsd_core.storage.database.accounts import AccountStore
from fsd_core.storage.database.changes import ChangeStore
from fsd_core.storage.database.custom_tasks import TaskStore
from fsd_core.storage.database.deletions import DeletionStore
from fsd_core.storage.database.experiments import ExperimentStore
from fsd_core.storage.database.generations import GenerationStore
from fsd_core.storage.database.jobs import JobStore
from fsd_core.storage.database.logged_runs import LoggedRunStore
from fsd_core.storage.database.marks import MarkStore
from fsd_core.storage.database.measured_settings import SettingStore
from fsd_core.storage.database.outbox import OutboxStore
from fsd_core.storage.database.own_pairs import OwnPairStore
from fsd_core.storage.database.report_store import ReportStore
from fsd_core.storage.database.reviews import ReviewStore
from fsd_core.storage.database.run_shares import RunShareStore
from fsd_core.storage.database.runs import RunStore
from fsd_core.storage.database.served_engines import ServedEngineStore
from fsd_core.storage.database.view_store import ViewStore
from fsd_core.storage.database.worker_store import WorkerStore


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
