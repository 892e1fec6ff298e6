"""A large file of a task from a hub: stopped and continued in the middle, and nothing half kept if it is not right."""

from __future__ import annotations

import json
import resource
import threading
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from urllib.request import urlopen

import pytest

from fsd_core.errors import Cancelled, InvalidSetting, ModelUnavailable
from fsd_core.models import hub_files
from fsd_core.settings import Settings
from fsd_core.storage.messages import FetchJob
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.tasks import TASKS, HubFile
from fsd_core.tasks.download import fetch
from fsd_core.worker.worker import Worker
from tests.tools.sizes import PATIENCE
from tests.tools.stand_in_hub import Repo, StandInHub, stand_in_hub, use_hub
from tests.tools.worker_process import until

TASK, NAME = "livecodebench-v6", "test6.jsonl"
LINES = "".join(json.dumps({"question_id": i, "padding": "x" * 10_000}) + "\n" for i in range(300)).encode()


@pytest.fixture
def hub(tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    """A hub that has the task's file."""
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / NAME).write_bytes(LINES)
    repo = Repo(folder)
    file = HubFile(f"livecodebench/{NAME}", "me/live", "CC", NAME, repo.commit, len(LINES), sha256(LINES).hexdigest())
    monkeypatch.setattr(TASKS[TASK], "hub", (file,))
    monkeypatch.setattr(hub_files, "_PAUSE", 0.0)
    with stand_in_hub() as hub:
        use_hub(hub.url, monkeypatch)
        hub.repos["me/live"] = repo
        yield hub


def kept(data_folder: Path) -> list[str]:
    return sorted(path.name for path in (data_folder / "livecodebench").iterdir())


def test_a_fetch_goes_on_in_the_middle_of_a_file(hub: StandInHub, data_folder: Path) -> None:
    told: list[int] = []

    def stop(done: int, size: int) -> None:
        assert size == len(LINES)
        told.append(done)
        if done > size // 2:
            raise Cancelled("Enough.")

    with pytest.raises(Cancelled):
        fetch(TASK, data_folder, on_size=stop)
    assert kept(data_folder) == [f"{NAME}.part"]
    hub.cut_at, hub.cuts = len(LINES) * 3 // 4, 1  # and the connection breaks once more
    (path,) = fetch(TASK, data_folder)
    assert hub.firsts(NAME) == [0, told[-1], hub.cut_at]
    assert path.read_bytes() == LINES
    assert kept(data_folder) == ["SOURCE.txt", NAME]
    assert fetch(TASK, data_folder) == []


def test_a_cut_is_for_requests_that_come_afterwards(hub: StandInHub) -> None:
    """One that was given up may still be sent when a test wants the next one cut, and would take the cut."""
    hub.held_from = len(LINES) // 2
    with closing(urlopen(f"{hub.url}/me/live/resolve/main/{NAME}", timeout=PATIENCE)) as earlier:
        hub.held_from, hub.cut_at, hub.cuts = None, len(LINES) * 3 // 4, 1
        hub.go_on.set()
        assert earlier.read() == LINES
    assert hub.cuts == 1


def test_what_cannot_be_whole_is_told(hub: StandInHub, data_folder: Path) -> None:
    hub.cut_at = len(LINES) // 2
    with pytest.raises(ModelUnavailable, match=r"1\.5"):
        fetch(TASK, data_folder)
    assert kept(data_folder) == [f"{NAME}.part"]
    hub.cut_at, hub.damaged = None, True
    (data_folder / "livecodebench" / f"{NAME}.part").unlink()
    with pytest.raises(ModelUnavailable, match="as the hub has it"):
        fetch(TASK, data_folder)
    assert kept(data_folder) == []
    del hub.repos["me/live"]
    with pytest.raises(ModelUnavailable, match="RepositoryNotFoundError"):
        fetch(TASK, data_folder)
    assert kept(data_folder) == []


def test_a_full_disk_keeps_nothing(hub: StandInHub, data_folder: Path) -> None:
    """A file of this process may not grow beyond a limit, so the real write fails in the middle."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LINES) // 2, limits[1]))
    try:
        with pytest.raises(InvalidSetting, match=r"test6\.jsonl cannot be written .* has room for it"):
            fetch(TASK, data_folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept(data_folder) == []


@pytest.mark.wide
def test_a_worker_is_stopped_in_a_file_and_the_next_job_goes_on(
    hub: StandInHub, data_folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsd_core.worker.job_executor.PROGRESS", 0.0)  # every piece is told, and may be the last
    settings = Settings(
        home=home, data_dir=data_folder, mlflow_uri="http://127.0.0.1:9", mlflow_ui=False, threads=1, device="cpu"
    )
    settings.make_folders()
    upgrade(settings.resolved_database_url)
    database = open_database(settings.resolved_database_url)
    repository, worker = Repository(database), Worker(settings)
    hub.held_from = len(LINES) // 2
    job = repository.enqueue(FetchJob(TASK))
    thread = threading.Thread(target=worker.run_as_thread)
    thread.start()
    try:
        partial = data_folder / "livecodebench" / f"{NAME}.part"
        until(lambda: partial.exists() and partial.stat().st_size > len(LINES) // 4, "some bytes")
        until(lambda: (seen := repository.worker()) and " of 3 MB" in seen.activity, "the bytes on the pages")
        repository.request_cancel(job)
        hub.go_on.set()
        until(lambda: repository.job(job).status == "cancelled", "the end of the fetch")
        assert partial.exists()
        second = repository.enqueue(FetchJob(TASK))
        until(lambda: repository.job(second).status == "finished", "the end of the fetch")
    finally:
        worker.stop()
        thread.join()
        database.close()
    assert hub.firsts(NAME)[1] > len(LINES) // 4
    assert (data_folder / "livecodebench" / NAME).read_bytes() == LINES
