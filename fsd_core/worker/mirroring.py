"""Copies ended runs to MLflow whenever MLflow is reachable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from fsd_core.errors import DatabaseUnavailable, DataDamaged, TrackingUnavailable, UnknownName
from fsd_core.storage.database.repository import Repository

if TYPE_CHECKING:
    from fsd_core.tracking.mlflow_mirror import MlflowMirror

logger = logging.getLogger(__name__)

_INTERVAL = 30.0  # seconds between two queries for runs that MLflow lacks


class Mirroring:
    """Mirrors runs without ever stopping one: an error is logged once, and the worker retries when idle.

    ``wanted`` returns whether the worker has more urgent work, which postpones the remaining copies.
    """

    def __init__(self, uri: str, repository: Repository, wanted: Callable[[], bool]) -> None:
        self._uri, self._repository, self._wanted = uri, repository, wanted
        self._down = False
        self._next = 0.0

    @cached_property
    def _mlflow(self) -> MlflowMirror:
        from fsd_core.tracking.mlflow_mirror import MlflowMirror  # seconds to import, and not needed to generate

        return MlflowMirror(self._uri)

    def after_runs(self) -> None:
        """Mirror ended runs, unless MLflow did not answer the last time: the next job should not wait for it."""
        if not self._down:
            self._sync()

    def when_idle(self) -> None:
        """Mirror the remaining runs every 30 seconds."""
        if time.monotonic() >= self._next:
            self._sync()

    def _sync(self) -> None:
        try:
            if self._repository.mlflow_deletions():
                self._mlflow.delete_pending(self._repository)
            for run in self._repository.unsynced_runs():
                if self._wanted():
                    return
                with suppress(UnknownName):  # it was deleted meanwhile
                    self._mlflow.sync(self._repository, run.id)
            self._down = False
        except DatabaseUnavailable as error:
            logger.warning("Runs are mirrored later: %s", error)
        except (TrackingUnavailable, DataDamaged) as error:
            if not self._down:
                logger.warning("%s", error)
            self._down = True
        except Exception:  # our own bugs must not cost a run either
            if not self._down:
                logger.exception("Runs are mirrored later, after an unexpected error:")
            self._down = True
        finally:
            self._next = time.monotonic() + _INTERVAL
