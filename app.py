"""The application: ``python app.py``, then open the printed address.

Settings come from ``FSD_*`` variables; ``--help`` lists those that are arguments too.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from types import FrameType

import uvicorn

from dashboard.server import requests
from fsd_core import settings
from fsd_core.accounts import FIRST_ADMIN, ensure_admin
from fsd_core.errors import FsdError, Misconfigured
from fsd_core.middleware import bound_log_lines
from fsd_core.plugins import parts
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.upkeep import Snapshots
from fsd_core.system import handle_hangup, no_garbage_collection
from fsd_core.worker.run_actions import stop_abandoned
from fsd_core.worker.supervisor import Supervisor

POLITENESS = 10
"""niceness of the web process, so that visitors do not slow down what the worker measures"""


LEAVING = 5.0
"""seconds from the signal that ends the process to its end; a container kills it after ten"""


def leave_in_time() -> None:
    """Ends this process after ``LEAVING``, whatever a request or a file system still holds.

    Nothing is lost by it: what is stored is whole at every moment. A second later the kernel does it, which
    waits for no thread of a process that hardly gets a processor.
    """
    clock = threading.Timer(LEAVING, os._exit, (0,))
    clock.daemon = True
    clock.start()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, LEAVING + 1)


class Server(uvicorn.Server):
    """Says where it listens once it does, and ends without a word, in time. ``supervisor`` is told at the signal."""

    def __init__(self, config: uvicorn.Config, supervisor: Supervisor) -> None:
        super().__init__(config)
        self.supervisor = supervisor

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            leave_in_time()
            self.supervisor.begin_to_stop()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            host, port = (sockets or [])[0].getsockname()[:2]
            displayed_host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, f"[{host}]" if ":" in host else host)
            print(f"FSD Lab is ready: http://{displayed_host}:{port}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # an open page's stream is cut, as it must be
        await super().shutdown(sockets=sockets)


def load_settings() -> Settings:
    """The settings, first of the arguments; on Hugging Face Spaces one public port, named as Gradio's own."""
    os.environ |= requests.given(sys.argv[1:])
    if settings.here() is not None:
        os.environ.setdefault("FSD_HOST", os.environ.get("GRADIO_SERVER_NAME", "0.0.0.0"))
        os.environ.setdefault("FSD_PORT", os.environ.get("GRADIO_SERVER_PORT", "7860"))
        for name, value in settings.defaults(os.environ).items():
            os.environ.setdefault(name, value)
    return get_settings()


def listen(host: str, port: int) -> socket.socket:
    """The listening socket, taken before anything is started. Raises ``InvalidSetting`` if it cannot be had."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise Misconfigured(
            f"The app cannot listen on {host}:{port} ({reason}): end what uses the "
            "port, or set FSD_PORT and FSD_HOST (--port, --host) to an address that is free."
        ) from None


def database_copies(settings: Settings) -> AbstractContextManager[object]:
    """Keeps copies of our own databases where the home is lost with the machine and its storage cannot hold them."""
    if settings.snapshots is None:
        return nullcontext()
    return Snapshots([settings.home / "fsd.db", settings.mlflow_folder / "mlflow.db"], settings.snapshots)


def executor(settings: Settings) -> AbstractContextManager[object]:
    """What computes in this process; nothing where the worker does. Only here may torch come into the web process."""
    if settings.executor != "in-process":
        return nullcontext()
    from fsd_core.worker.worker import InProcess

    return InProcess(settings)


def welcome_admin(repository: Repository, settings: Settings) -> None:
    """Makes the first admin where people sign in with a password, and prints a password that was made for them."""
    if settings.access != "password":
        return
    if (password := ensure_admin(repository, settings.admin_password_file)) is not None:
        print(
            f"Nobody could sign in yet. Sign in as {FIRST_ADMIN} with the password {password}\n"
            f"It is printed this once. `python -m fsd_core users password {FIRST_ADMIN}` sets another.",
            flush=True,
        )


def serve(settings: Settings) -> None:
    """Serves until SIGINT, SIGTERM or SIGHUP."""
    settings.check_access()
    settings.make_folders()
    services = [make(settings) for make in parts("service")]
    with listen(settings.host, settings.port) as listener, database_copies(settings):
        if settings.database_url is None:  # our own file; anybody else's is theirs to upgrade
            upgrade(settings.resolved_database_url)
        repository = Repository(open_database(settings.resolved_database_url))
        welcome_admin(repository, settings)
        with Supervisor(settings, partial(stop_abandoned, repository, settings.home)) as supervisor:
            if (
                sys.platform == "linux" and settings.executor != "in-process"
            ):  # where it is the thread's: the supervisor's, and so the worker, keep their own
                os.nice(POLITENESS)
            with no_garbage_collection():
                from dashboard.web import build_app

                computation = executor(settings)
                app = build_app(repository, settings)
            # The application itself decides which proxies are believed.
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, proxy_headers=False)
            with computation, ExitStack() as beside:
                for service in services:
                    beside.enter_context(service(repository))
                Server(config, supervisor).run(sockets=[listener])


def main() -> int:
    bound_log_lines()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    # uvicorn stops on this signal and then raises it anew: leave by the door, so that the children are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    handle_hangup(lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        serve(load_settings())
    except FsdError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
