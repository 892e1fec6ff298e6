"""The worker as a thread of the web process, for a machine that lends its device only to that process (ZeroGPU)."""

from __future__ import annotations

import logging
import threading

from fsd_core.errors import WorkerRunning, user_message
from fsd_core.settings import Settings
from fsd_core.worker import zero_gpu
from fsd_core.worker.remote_device import RemoteDevice
from fsd_core.worker.worker import Worker

logger = logging.getLogger(__name__)

RETRY, PATIENCE = 5.0, 10.0  # seconds


class InProcess:
    """Executes the jobs of the home. A context manager; a worker that ends early is restarted, as a supervisor would
    do."""

    def __init__(self, settings: Settings) -> None:
        """Build the worker. Call it from the main thread, before the pages are built. Raises ``PackageMissing``."""
        self._settings = settings
        self._worker = Worker(settings, RemoteDevice)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)

    def __enter__(self) -> InProcess:
        zero_gpu.leave_sockets_to_parent(self._settings.port)
        zero_gpu.begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._worker.stop()
        self._thread.join(PATIENCE)
        self._worker.hand_back()  # what is still in the middle of a prompt

    def _work(self) -> None:
        last_message = ""
        while not self._stop.is_set():
            try:
                self._worker.run_as_thread()
            except Exception as error:
                message = str(error) if isinstance(error, WorkerRunning) else user_message(error)
                if message != last_message:
                    logger.warning("Nothing is generated here yet: %s", message)
                last_message = message
                self._stop.wait(RETRY)
