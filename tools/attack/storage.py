"""Disks that are full, databases that are locked or damaged, clocks that go back, homes of odd names."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow, now
from fsd_core.testing import save_toy_pair
from tests.tools.stand_in_hub import Repo, stand_in_hub
from tests.tools.worker_process import ROOT, Home, until
from tools.attack import damage

NAMES = ("a b", "a%20b", "what?", "a#b", "über", "a%2Fb", "x;y&z=1", "50%", "file:x", "'\"", "$HOME", "--help")


def damaged_bytes(folder: Path, trials: int = 300) -> str:
    """Bytes of the database changed at random, then every way of reading it."""
    seen = damage.attack(folder, trials)
    sentences = sum(count for kind, count in seen.items() if kind != "answered")
    return f"{trials} damaged files: {seen['answered']} answers, {sentences} sentences, no traceback"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own, of so little room. Needs root, as the machine of a test has it."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def command(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    variables = {**os.environ, "FSD_HOME": str(home), "FSD_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, "-m", "fsd_core", *arguments], cwd=ROOT, env=variables, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


def full_temporary_folder(folder: Path) -> str:
    """A run on a machine whose temporary folder has no room left."""
    with small_disk(folder / "tmp", "64k") as tmp:
        (tmp / "filler").write_bytes(bytes(40_000))
        done = command(folder / "home", "run", "--limit", "12", "--acceptance", "speculative", TMPDIR=str(tmp))
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "runs are mirrored later" in done.stderr
        (run,) = Repository(open_database(Settings(home=folder / "home").resolved_database_url)).runs()
        assert (run.status, run.mlflow_run_id) == ("finished", None)
    return "the run is kept and finished; MLflow hears of it later; one sentence"


def full_home(folder: Path) -> str:
    """The disk of the database fills up in the midst of a run, and is freed."""
    with small_disk(folder / "home", "4m") as home:
        assert command(home, "db", "upgrade").returncode == 0
        (home / "filler").write_bytes(bytes(shutil.disk_usage(home).free - 60_000))
        run = ("run", "--limit", "40", "--acceptance", "speculative")
        first = command(home, *run, FSD_MLFLOW_URI="http://127.0.0.1:9")
        assert first.returncode == 2, first.stdout + first.stderr
        assert "the disk is full" in first.stderr
        assert "Traceback" not in first.stderr
        (home / "filler").unlink()
        again = command(home, *run, FSD_MLFLOW_URI="http://127.0.0.1:9")
        assert again.returncode == 0, again.stderr
        assert "Continuing the run" in again.stderr
        (kept,) = Repository(open_database(Settings(home=home).resolved_database_url)).runs()
        assert (kept.status, kept.prompts_done) == ("finished", 40)
    return "the run stopped with a sentence, and went on once there was room"


def full_while_fetching(folder: Path) -> str:
    """The disk fills up while a model arrives from a hub, and is freed."""
    save_toy_pair(folder / "pair")
    weights = folder / "pair" / "target" / "model.safetensors"
    with stand_in_hub() as hub, small_disk(folder / "home", "12m") as home:
        hub.repos["me/small"] = Repo(folder / "pair" / "target")
        asks = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
        assert command(home, "pairs", "add", "mine", "--target", "me/small", **asks).returncode == 0
        hub.held_from = weights.stat().st_size // 2
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(command, home, "pairs", "fetch", "mine", **asks)
            until(lambda: any(name == weights.name for name, _ in hub.asked), "the weights")
            (home / "filler").write_bytes(bytes(shutil.disk_usage(home).free - 8192))
            hub.go_on.set()
            done = first.result()
        assert done.returncode == 2, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert "was full before me/small was whole" in done.stderr, done.stderr
        assert not list((home / "models").rglob("*.safetensors*")), "half a model was kept"
        (home / "filler").unlink()
        again = command(home, "pairs", "fetch", "mine", **asks)
        assert again.returncode == 0, again.stderr
        (whole,) = (home / "models").rglob(weights.name)
        assert whole.read_bytes() == weights.read_bytes()
    return "a sentence, nothing half kept, and whole once there was room"


def locked_database(folder: Path) -> str:
    """Another process holds the database for longer than a writer waits and a lease lasts."""
    with closing(Home(folder)) as home:
        experiment = home.repository.create_experiment(home.sweep(limit=12))
        worker = home.worker()
        until(lambda: home.prompts_done(experiment) >= 2, "two prompts")
        with closing(sqlite3.connect(home.settings.home / "fsd.db", isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            time.sleep(13)
            blocker.execute("ROLLBACK")
        assert home.until_done(home.job_of(experiment)) == "finished"
        assert worker.poll() is None
        assert len(home.written(experiment)) == 36
    return "13 s without the database cost time alone"


def clock_set_back(folder: Path) -> str:
    """A worker is killed, and the clock goes back by an hour: its lease seems to last."""
    with closing(Home(folder)) as home:
        experiment = home.repository.create_experiment(home.sweep(limit=12))
        worker = home.worker()
        until(lambda: home.prompts_done(experiment) >= 2, "two prompts")
        worker.kill()
        worker.wait()
        with home.database.session() as session:
            session.get_one(JobRow, home.job_of(experiment)).lease_expires_at = now() + timedelta(hours=1)
        begun = time.monotonic()
        home.worker()
        assert home.until_done(home.job_of(experiment)) == "finished"
    return f"the next worker finished the job {time.monotonic() - begun:.0f} s later"


def odd_homes(folder: Path) -> str:
    """Homes whose names mean something in a URL or on a command line."""
    for name in NAMES:
        home = folder / "homes" / name
        done = command(home, "db", "upgrade")
        assert done.returncode == 0, (name, done.stderr)
        assert (home / "fsd.db").stat().st_size > 0, name
    done = command(folder / "homes" / "a%20b", "run", "--limit", "2", "--acceptance", "speculative")
    assert done.returncode == 0, done.stderr
    made = sorted(path.name for path in (folder / "homes").iterdir())
    assert made == sorted(NAMES), made
    return f"{len(NAMES)} names, each with its own database and nothing beside it; a run in one, with MLflow"
