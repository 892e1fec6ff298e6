"""Commands and pages of the project in processes of their own that are ready in a moment.

To load torch, transformers and Gradio takes seconds of a processor. One process does that, and what is asked for is a
fork of it: a process as any other, with its own environment, output and end. That the command line and the app start as
they are typed is for other tests to show.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path

from tests.tools.stand_in_hub import use_hub
from tests.tools.turnstile import Turnstile

ROOT = Path(__file__).resolve().parents[2]
_processes = get_context("forkserver")
_processes.set_forkserver_preload(
    [
        "tests.tools.uncollected", "tests.tools.commands_once", "fsd_core.worker.worker", "fsd_core.testing",
        "tests.tools.serve",
    ]
)  # fmt: skip


class Forked:
    """A function's call, running; what it prints goes to a file. Asked and ended as a ``subprocess.Popen``."""

    def __init__(
        self, call: Callable[..., object], arguments: tuple[object, ...], environment: Mapping[str, str], output: Path
    ) -> None:
        self.output = output
        self._process = _processes.Process(target=_run, args=(call, arguments, dict(environment), output))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises ``subprocess.TimeoutExpired`` for a command that goes on."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.output), timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has printed, to whichever of the two, when it has ended."""
        self.wait(timeout)
        return self.output.read_text(), ""

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedCommand(Forked):
    """``python -m fsd_core …``; ``held``: the folder of a turnstile that its prompts have to pass."""

    def __init__(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], output: Path, held: Path | None = None
    ) -> None:
        super().__init__(_command, (arguments, held), environment, output)


def _command(arguments: tuple[str, ...], held: Path | None) -> None:
    from fsd_core.cli.commands import main

    if held is not None:
        Turnstile(held).stand()
    main(arguments)


class ForkedApp(Forked):
    """``python app.py …``"""

    def __init__(self, environment: Mapping[str, str], output: Path, *arguments: str) -> None:
        super().__init__(_app, arguments, environment, output)


def _app(*arguments: str) -> None:
    sys.argv[1:] = arguments
    runpy.run_path(str(ROOT / "app.py"), None, "__main__")


def _run(call: Callable[..., object], arguments: tuple[object, ...], environment: dict[str, str], output: Path) -> None:
    gc.freeze()
    gc.enable()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # as the environment says now
    if "HF_ENDPOINT" in environment:
        use_hub(environment["HF_ENDPOINT"])
    call(*arguments)
