"""The app as a ZeroGPU Space runs it, with the imitation of ``spaces`` in this folder."""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fsd_core.config import Autoregressive, DecodingConfig, Fuzzy, Speculative, SweepConfig
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.tools.forked import Forked
from tests.tools.sizes import PATIENCE

ROOT = Path(__file__).resolve().parents[3]


def small(limit: int, name: str = "small") -> SweepConfig:
    """The target alone, SD and FSD with the bundled pair."""
    rules = (Autoregressive(), Speculative(), Fuzzy(threshold=0.1))
    decodings = tuple(DecodingConfig(acceptance=rule, max_new_tokens=48) for rule in rules)
    return SweepConfig(name=name, pair="bundled", limit=limit, decodings=decodings)


def _serve() -> None:
    sys.path.insert(0, str(Path(__file__).parent))  # where the imitation of ``spaces`` is
    sys.argv[1:] = []
    runpy.run_path(str(ROOT / "app.py"), None, "__main__")


class Space:
    """A home, and the app over it; ``folder`` is where the imitation is told, and tells, what it does."""

    def __init__(self, home: Path, port: int) -> None:
        self.home, self.port, self.folder = home, port, home / "imitation"
        self.folder.mkdir(parents=True)
        self.url = f"http://127.0.0.1:{port}"
        self.log = home / "app.log"
        self.process: Forked | None = None

    def start(self, **more: str) -> None:
        """Starts the app, and waits until it answers."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FSD_")} | {
            "IMITATION": str(self.folder),
            "SPACES_ZERO_GPU": "true", "SPACE_ID": "team/lab", "SPACE_HOST": f"127.0.0.1:{self.port}",
            "GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(self.port),
            "FSD_HOME": str(self.home), "FSD_UNPROTECTED": "true", "FSD_MLFLOW_URI": "http://127.0.0.1:9",
            "FSD_DEVICE": "cpu", "FSD_GPU_SECONDS": "10",
        } | more  # fmt: skip
        before = self.log.stat().st_size if self.log.exists() else 0
        self.process = Forked(_serve, (), environment, self.log)
        end = time.monotonic() + PATIENCE
        while not self.log.exists() or b"is ready" not in self.log.read_bytes()[before:]:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        """As when the Space's machine is taken away: the app and what it forked."""
        if self.process is None:
            return
        with suppress(psutil.NoSuchProcess):
            app = psutil.Process(self.process.pid)
            for process in (app, *app.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        """Ends it as Spaces do; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def hold(self, answers: int) -> None:
        """Lets so many more answers to slices through, and holds the next one."""
        part = self.folder / "hold.part"
        part.write_text(str(answers))
        part.replace(self.folder / "hold")

    def until_held(self) -> None:
        """Waits until an answer is held."""
        end = time.monotonic() + PATIENCE
        while not ((self.folder / "held").exists() and (self.folder / "hold").read_text() == "0"):
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)

    def release(self) -> None:
        """Holds nothing any longer."""
        (self.folder / "hold").unlink()

    @property
    def calls(self) -> list[dict[str, Any]]:
        """What was asked of the imitation, in order."""
        told = self.folder / "calls"
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    @property
    def repository(self) -> Repository:
        return Repository(open_database(f"sqlite:///{self.home / 'fsd.db'}"))
