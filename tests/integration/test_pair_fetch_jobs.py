"""A fetch as a job of the real worker: with progress, cancelled, continued; also from the command line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fsd_core.actions.action import Ask
from fsd_core.actions.pairs import cancel_fetch, fetch_pair
from fsd_core.config.model_names import name_of_models
from fsd_core.errors import UnknownName, WrongState
from fsd_core.models import hub_files
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.pair_check import HERE, DeviceMemory, badge_of
from fsd_core.models.sources import HubModel, missing_models, obtained
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow
from fsd_core.testing import save_toy_pair
from fsd_core.worker.pair_names import pair_fetches
from fsd_core.worker.worker import Worker
from tests.tools.stand_in_hub import Repo, StandInHub, stand_in_hub, use_hub
from tests.tools.worker_process import until

PLENTY = DeviceMemory("cpu", 1 << 40)
LARGE = 3_000_000  # bytes
PAIR = name_of_models({"target": "me/large", "draft": "me/small"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    save_toy_pair(folder)
    weights = {"weight": torch.randint(0, 255, (LARGE,), dtype=torch.uint8)}
    save_file(weights, folder / "target" / "model.safetensors")
    return folder


@pytest.fixture
def stand_in(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    monkeypatch.setattr(hub_files, "_PAUSE", 0.0)
    monkeypatch.setattr("fsd_core.worker.job_executor.PROGRESS", 0.0)  # every piece is told, and may be the last
    get_settings.cache_clear()
    with stand_in_hub() as stand_in:
        use_hub(stand_in.url, monkeypatch)
        stand_in.repos |= {"me/large": Repo(folder / "target"), "me/small": Repo(folder / "draft")}
        yield stand_in
    get_settings.cache_clear()


@pytest.fixture
def repository(home: Path) -> Iterator[Repository]:
    settings = Settings(home=home)
    settings.make_folders()
    upgrade(settings.resolved_database_url)
    database = open_database(settings.resolved_database_url)
    yield Repository(database)
    database.close()


@contextmanager
def working(home: Path) -> Iterator[None]:
    """A worker of this process, that hands its job back at the end of the block."""
    settings = Settings(home=home, mlflow_uri="http://127.0.0.1:9", mlflow_ui=False, threads=1, device="cpu")
    worker = Worker(settings)
    thread = threading.Thread(target=worker.run_as_thread)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def fetched(repository: Repository) -> JobRow:
    """Ask for a fetch of the pair. Returns its job."""
    fetch_pair(Ask(get_settings(), repository=repository), PAIR)
    return pair_fetches(repository)[PAIR]


def status(repository: Repository) -> str:
    return pair_fetches(repository)[PAIR].status


@pytest.mark.wide
def test_a_fetch_tells_its_bytes_is_cancelled_and_goes_on(
    stand_in: StandInHub, home: Path, repository: Repository
) -> None:
    stand_in.held_from = LARGE // 2
    assert badge_of(PAIR, PLENTY) == "to fetch"
    job = fetched(repository)
    assert fetched(repository).id == job.id  # one job, however often it is asked for
    with working(home):
        until(lambda: (repository.job(job.id).bytes_done or 0) > LARGE // 4, "some bytes")
        under_way = repository.job(job.id)
        assert (under_way.bytes_done or 0) < (under_way.bytes_total or 0)
        assert under_way.bytes_total == pytest.approx(LARGE, rel=0.2)  # of both models
        assert badge_of(PAIR, PLENTY) == "to fetch, 3.2 MB"
        cancel_fetch(Ask(get_settings(), repository=repository), PAIR)
        stand_in.go_on.set()
        until(lambda: status(repository) == "cancelled", "the end of the fetch")
        assert obtained(HubModel("me/large")) is None
        with pytest.raises(UnknownName):
            cancel_fetch(Ask(get_settings(), repository=repository), PAIR)

        second = fetched(repository)
        assert second.id != job.id
        until(lambda: status(repository) == "finished", "the end of the fetch")
    done = repository.job(second.id)
    assert done.bytes_done == done.bytes_total == under_way.bytes_total
    assert stand_in.firsts("model.safetensors")[1] >= LARGE // 4  # where the first one was
    assert badge_of(PAIR, PLENTY) == HERE
    assert not missing_models(get_pair(PAIR))
    with pytest.raises(WrongState):
        fetched(repository)


def test_a_worker_that_ends_leaves_the_fetch_to_the_next_one(
    stand_in: StandInHub, home: Path, repository: Repository
) -> None:
    stand_in.held_from = LARGE // 2
    job = fetched(repository)
    with working(home):
        until(lambda: (repository.job(job.id).bytes_done or 0) > LARGE // 4, "some bytes")
        stand_in.go_on.set()
    if status(repository) == "queued":  # it may have been faster
        with working(home):
            until(lambda: status(repository) == "finished", "the end of the fetch")
    assert status(repository) == "finished"
    assert repository.job(job.id).error is None


def test_a_fetch_that_cannot_succeed_ends_with_a_sentence(
    stand_in: StandInHub, home: Path, repository: Repository, folder: Path
) -> None:
    stand_in.repos["me/small"] = Repo(folder / "draft", gated=True)
    job = fetched(repository)
    with working(home):
        until(lambda: status(repository) == "failed", "the end of the fetch")
    assert str(repository.job(job.id).error).startswith("me/small is gated: accept its licence")


def test_the_command_line_fetches_what_is_missing_and_goes_on_after_a_failure(
    call: Callable[..., tuple[int, str, str]], stand_in: StandInHub
) -> None:
    added = call("pairs", "add", "mine", "--target", "me/large", "--draft", "me/small", "--dtype", "bfloat16")
    assert added[:2] == (0, "mine is to fetch, 3.2 MB. Measure with --pair mine.\n"), added
    assert "It is loaded as bfloat16, unless a setting names another dtype." in added[2]
    stand_in.cut_at = LARGE // 2
    code, _, err = call("pairs", "fetch", "mine")
    assert (code, "error: me/large could not be fetched whole" in err) == (2, True)
    stand_in.cut_at = None
    assert call("pairs", "fetch", "mine")[:2] == (0, "mine is here.\n")
    assert stand_in.firsts("model.safetensors")[-2] == LARGE // 2  # the last one is the draft's
    assert call("pairs", "fetch", "mine")[:2] == (0, "Nothing of mine is missing.\n")
    assert "mine " in call("pairs")[1]
    assert call("pairs", "show", "mine")[1].endswith("mine is here.\n")
