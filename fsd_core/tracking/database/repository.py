"""The one door to the database for all that is not ``tracking``."""

from __future__ import annotations

from fsd_core.tracking.database.accounts import AccountStore
from fsd_core.tracking.database.changes import ChangeStore
from fsd_core.tracking.database.deletions import DeletionStore
from fsd_core.tracking.database.experiments import ExperimentStore
from fsd_core.tracking.database.generations import GenerationStore
from fsd_core.tracking.database.jobs import JobStore
from fsd_core.tracking.database.marks import MarkStore
from fsd_core.tracking.database.reviews import ReviewStore
from fsd_core.tracking.database.runs import RunStore
from fsd_core.tracking.database.settings import SettingStore
from fsd_core.tracking.database.tasks import TaskStore


class Repository(
    ExperimentStore,
    RunStore,
    GenerationStore,
    JobStore,
    DeletionStore,
    SettingStore,
    ReviewStore,
    MarkStore,
    AccountStore,
    ChangeStore,
    TaskStore,
):
    """All that the database holds. Every method is one transaction (``traces``: one per batch).

    All return detached plain values. Methods raise ``DatabaseUnavailable`` when the database cannot be used, and
    ``UnknownName`` for an id that is not there. May be shared by threads.
    """
