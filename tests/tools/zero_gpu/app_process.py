"""The app as a ZeroGPU Space runs it, with the imitation of ``spaces`` in this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fsd_core.config import Autoregressive, DecodingConfig, Fuzzy, Speculative, SweepConfig
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.database.session import open_database

ROOT = Path(__file__).resolve().parents[3]


def small(limit: int, name: str = "small") -> SweepConfig:
    """The target alone, SD and FSD with the bundled pair."""
    rules = (Autoregressive(), Speculative(), Fuzzy(threshold=0.1))
    decodings = tuple(DecodingConfig(acceptance=rule, max_new_tokens=48) for rule in rules)
    return SweepConfig(name=name, pair="bundled", limit=limit, decodings=decodings)


class Space:
    """A home, and the app over it; ``folder`` is where the imitation is told, and tells, what it does."""

    def __init__(self, home: Path, port: int) -> None:
        self.home, self.port, self.folder = home, port, home / "imitation"
        self.folder.mkdir(parents=True)
        self.url = f"http://127.0.0.1:{port}"
        self.log = home / "app.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **more: str) -> None:
        """Starts the app, and waits until it answers."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FSD_")} | {
            "PYTHONPATH": str(ROOT / "tests" / "zero_gpu"), "IMITATION": str(self.folder),
            "SPACES_ZERO_GPU": "true", "SPACE_ID": "team/lab", "SPACE_HOST": f"127.0.0.1:{self.port}",
            "GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(self.port),
            "FSD_HOME": str(self.home), "FSD_UNPROTECTED": "true", "FSD_MLFLOW_URI": "http://127.0.0.1:9",
            "FSD_DEVICE": "cpu", "FSD_GPU_SECONDS": "10",
        } | more  # fmt: skip
        with self.log.open("ab") as output:
            before = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "app.py"], cwd=ROOT, env=environment, stdout=output, stderr=output
            )
        end = time.monotonic() + 120
        while b"is ready" not in self.log.read_bytes()[before:]:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        """As when the Space's machine is taken away: the app and what it forked."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for pid in {call["pid"] for call in self.calls}:
            try:
                if str(ROOT / "tests" / "zero_gpu") in Path(f"/proc/{pid}/environ").read_text():
                    os.kill(pid, 9)
            except OSError:
                pass

    def stop(self) -> int:
        """Ends it as Spaces do; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """What was asked of the imitation, in order."""
        told = self.folder / "calls"
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    @property
    def repository(self) -> Repository:
        return Repository(open_database(f"sqlite:///{self.home / 'fsd.db'}"))
