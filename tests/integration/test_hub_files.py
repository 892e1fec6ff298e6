"""Models of a hub: offered, fetched with progress, stopped and continued, and nothing half kept."""

from __future__ import annotations

import json
import resource
import shutil
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
from fsd_core.errors import Cancelled, InvalidSetting, ModelUnavailable, UnknownName, WrongState
from fsd_core.models import hub, hub_files, sources
from fsd_core.models.hub import obtain
from fsd_core.models.hub_files import HubUnreachable, offered, search_models
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.pair_check import HERE, DeviceMemory, badge_of, offered_drafts
from fsd_core.models.sources import HubModel, missing_models, obtained, origin
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow
from fsd_core.testing import save_toy_pair
from fsd_core.worker.pair_names import pair_fetches
from fsd_core.worker.worker import Worker
from tests.tools.stand_in_hub import Repo, StandInHub, stand_in_hub, use_hub
from tests.tools.worker_process import until

LARGE = 3_000_000  # bytes: several pieces
MODEL = HubModel("me/large")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with files that are not read, and with larger weights than it has."""
    folder = tmp_path_factory.mktemp("hub")
    save_toy_pair(folder)
    target = folder / "target"
    save_file({"weight": torch.randint(0, 255, (LARGE,), dtype=torch.uint8)}, target / "model.safetensors")
    (target / "pytorch_model.bin").write_bytes(b"\x80\x04 a pickle")
    (target / "modeling_mine.py").write_text("raise SystemExit")
    (target / "onnx").mkdir()
    (target / "onnx" / "config.json").write_text("{}")
    return folder


@pytest.fixture
def stand_in(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    """A hub with the model, and a home of the test's own."""
    for module in (hub, sources):
        monkeypatch.setattr(module, "models_folder", lambda: tmp_path / "models")
    monkeypatch.setattr(hub_files, "_PAUSE", 0.0)
    with stand_in_hub() as stand_in:
        use_hub(stand_in.url, monkeypatch)
        stand_in.repos["me/large"] = Repo(folder / "target", revisions=("main", "v1"))
        yield stand_in


@pytest.mark.parametrize(
    "lies",
    [
        {"sha": "/tmp/x"}, {"sha": "../../x"}, {"sha": "f" * 39}, {"sha": None},
        {"siblings": [{"rfilename": "model.safetensors", "size": -1}]},
        {"siblings": [{"rfilename": "model.safetensors", "size": 10**30}]},
        {"siblings": [{"rfilename": "model.safetensors", "size": 9, "blobId": "../x"}]},
        {"siblings": [{"rfilename": "model.safetensors", "lfs": {"size": 9, "sha256": "/tmp/x", "pointerSize": 1}}]},
        {"siblings": "x"},
    ],
)  # fmt: skip
def test_a_hub_that_lies_is_told_and_makes_no_folder(
    stand_in: StandInHub, folder: Path, tmp_path: Path, lies: dict[str, object]
) -> None:
    stand_in.repos["me/large"] = Repo(folder / "target", lies=lies)
    before = set(tmp_path.parent.rglob("*"))
    with pytest.raises(ModelUnavailable):
        obtain(MODEL)
    made = {path.name for path in set(tmp_path.parent.rglob("*")) - before}
    assert made <= {"models", "me--large.lock"}


def kept(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "models").iterdir() if path.suffix not in (".lock", ".size"))


def test_only_weights_and_configuration_come_at_the_commit_that_the_revision_names(
    stand_in: StandInHub, folder: Path
) -> None:
    told: list[tuple[str, int, int]] = []
    here = obtain(MODEL, lambda *progress: told.append(progress))
    files = {path.name for path in here.iterdir()}
    assert files >= {"model.safetensors", "config.json", "tokenizer.json", "source.json"}
    assert not files & {"pytorch_model.bin", "modeling_mine.py", "onnx"}
    assert (here / "model.safetensors").read_bytes() == (folder / "target" / "model.safetensors").read_bytes()
    commit = stand_in.repos["me/large"].commit
    assert origin(MODEL) == f"https://huggingface.co/me/large/tree/{commit}"
    assert obtained(MODEL) == here
    size = offered(MODEL).size
    assert told[-1] == ("me/large", size, size)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert len({done for _, done, _ in told}) > len(files)  # the large file is told in several pieces

    before = list(stand_in.asked)
    assert obtain(MODEL) == here
    assert stand_in.asked == before


def test_a_fetch_that_was_stopped_goes_on_in_the_middle_of_the_file(stand_in: StandInHub, tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done > total - LARGE // 2:
            raise Cancelled("Enough.")

    with pytest.raises(Cancelled):
        obtain(MODEL, stop)
    assert obtained(MODEL) is None
    first = obtain(MODEL)
    assert stand_in.firsts("model.safetensors")[0] == 0
    assert stand_in.firsts("model.safetensors")[1] >= LARGE // 4
    assert stand_in.firsts("config.json") == [0]
    assert (first / "model.safetensors").stat().st_size > LARGE
    assert kept(tmp_path) == ["me--large"]


def test_a_new_commit_begins_anew(stand_in: StandInHub, folder: Path, tmp_path: Path) -> None:
    stand_in.cut_at = LARGE // 2
    with pytest.raises(ModelUnavailable):
        obtain(MODEL)
    (other,) = (tmp_path / "models" / "me--large.fetch").iterdir()
    stand_in.cut_at = None
    changed = shutil.copytree(folder / "target", tmp_path / "changed")
    (changed / "generation_config.json").write_text("{}")
    stand_in.repos["me/large"] = Repo(changed)
    obtain(MODEL)
    assert stand_in.firsts("model.safetensors")[-1] == 0
    assert other.name not in str(origin(MODEL))


def test_a_connection_that_breaks_is_taken_up_again(stand_in: StandInHub) -> None:
    stand_in.cut_at, stand_in.cuts = LARGE // 2, 1
    assert (obtain(MODEL) / "model.safetensors").is_file()
    assert stand_in.firsts("model.safetensors") == [0, LARGE // 2]


def test_a_fetch_that_fails_in_the_middle_is_one_sentence_and_nothing_is_here(stand_in: StandInHub) -> None:
    stand_in.cut_at = LARGE // 2
    with pytest.raises(ModelUnavailable, match=r"model\.safetensors") as failed:
        obtain(MODEL)
    assert str(failed.value).startswith("me/large could not be fetched whole")
    assert obtained(MODEL) is None
    stand_in.cut_at = None
    obtain(MODEL)
    assert stand_in.firsts("model.safetensors")[-1] == LARGE // 2


def test_what_arrives_damaged_is_not_kept(stand_in: StandInHub, tmp_path: Path) -> None:
    stand_in.damaged = True
    with pytest.raises(ModelUnavailable, match="as the hub has it"):
        obtain(MODEL)
    assert obtained(MODEL) is None
    assert not list((tmp_path / "models").rglob("model.safetensors*"))
    stand_in.damaged = False
    assert obtain(MODEL).is_dir()


def test_a_disk_that_fills_up_is_told_and_emptied(stand_in: StandInHub, tmp_path: Path) -> None:
    """A file of this process may not grow beyond a limit, so the real write fails in the middle."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE // 2, limits[1]))
    try:
        with pytest.raises(ModelUnavailable, match="me/large"):
            obtain(MODEL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert obtained(MODEL) is None
    assert not list((tmp_path / "models").rglob("*.part"))
    assert not list((tmp_path / "models").rglob("config.json"))
    assert obtain(MODEL).is_dir()


def test_a_folder_that_cannot_be_written_is_told(
    stand_in: StandInHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "me--large.fetch").write_text("a file in its way")
    with pytest.raises(ModelUnavailable, match="me/large"):
        obtain(MODEL)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (HubModel("me/gated"), "me/gated is gated: accept its licence"),
        (HubModel("me/nothing"), "has no model me/nothing, or it is private"),
        (HubModel("me/large", "v9"), "has no model me/large at revision v9"),
        (HubModel("me/pickles"), "me/pickles has no safetensors weights on the hub"),
    ],
)
def test_what_the_hub_does_not_give_is_told_before_anything_is_fetched(
    stand_in: StandInHub, folder: Path, tmp_path: Path, model: HubModel, told: str
) -> None:
    (tmp_path / "pickles").mkdir()
    (tmp_path / "pickles" / "pytorch_model.bin").write_bytes(b"\x80")
    stand_in.repos |= {"me/gated": Repo(folder / "draft", gated=True), "me/pickles": Repo(tmp_path / "pickles")}
    for ask in (offered, obtain):
        with pytest.raises(ModelUnavailable, match=told) as refused:
            ask(model)
        assert not isinstance(refused.value, HubUnreachable)
    assert stand_in.asked == []
    assert obtained(model) is None


def test_a_revision_is_fetched_beside_the_other(stand_in: StandInHub) -> None:
    assert obtain(HubModel("me/large", "v1")) != obtain(MODEL)


PLENTY = DeviceMemory("cpu", 1 << 40)
JOB_LARGE = 3_000_000  # bytes
PAIR = name_of_models({"target": "me/large", "draft": "me/small"})


@pytest.fixture(scope="module")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    save_toy_pair(folder)
    weights = {"weight": torch.randint(0, 255, (JOB_LARGE,), dtype=torch.uint8)}
    save_file(weights, folder / "target" / "model.safetensors")
    return folder


@pytest.fixture
def job_stand_in(job_folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    monkeypatch.setattr(hub_files, "_PAUSE", 0.0)
    monkeypatch.setattr("fsd_core.worker.job_executor.PROGRESS", 0.0)  # every piece is told, and may be the last
    get_settings.cache_clear()
    with stand_in_hub() as stand_in:
        use_hub(stand_in.url, monkeypatch)
        stand_in.repos |= {"me/large": Repo(job_folder / "target"), "me/small": Repo(job_folder / "draft")}
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
    job_stand_in: StandInHub, home: Path, repository: Repository
) -> None:
    job_stand_in.held_from = JOB_LARGE // 2
    assert badge_of(PAIR, PLENTY) == "to fetch"
    job = fetched(repository)
    assert fetched(repository).id == job.id  # one job, however often it is asked for
    with working(home):
        until(lambda: (repository.job(job.id).bytes_done or 0) > JOB_LARGE // 4, "some bytes")
        under_way = repository.job(job.id)
        assert (under_way.bytes_done or 0) < (under_way.bytes_total or 0)
        assert under_way.bytes_total == pytest.approx(JOB_LARGE, rel=0.2)  # of both models
        assert badge_of(PAIR, PLENTY) == "to fetch, 3.2 MB"
        cancel_fetch(Ask(get_settings(), repository=repository), PAIR)
        job_stand_in.go_on.set()
        until(lambda: status(repository) == "cancelled", "the end of the fetch")
        assert obtained(HubModel("me/large")) is None
        with pytest.raises(UnknownName):
            cancel_fetch(Ask(get_settings(), repository=repository), PAIR)

        second = fetched(repository)
        assert second.id != job.id
        until(lambda: status(repository) == "finished", "the end of the fetch")
    done = repository.job(second.id)
    assert done.bytes_done == done.bytes_total == under_way.bytes_total
    assert job_stand_in.firsts("model.safetensors")[1] >= JOB_LARGE // 4  # where the first one was
    assert badge_of(PAIR, PLENTY) == HERE
    assert not missing_models(get_pair(PAIR))
    with pytest.raises(WrongState):
        fetched(repository)


def test_a_worker_that_ends_leaves_the_fetch_to_the_next_one(
    job_stand_in: StandInHub, home: Path, repository: Repository
) -> None:
    job_stand_in.held_from = JOB_LARGE // 2
    job = fetched(repository)
    with working(home):
        until(lambda: (repository.job(job.id).bytes_done or 0) > JOB_LARGE // 4, "some bytes")
        job_stand_in.go_on.set()
    if status(repository) == "queued":  # it may have been faster
        with working(home):
            until(lambda: status(repository) == "finished", "the end of the fetch")
    assert status(repository) == "finished"
    assert repository.job(job.id).error is None


def test_a_fetch_that_cannot_succeed_ends_with_a_sentence(
    job_stand_in: StandInHub, home: Path, repository: Repository, job_folder: Path
) -> None:
    job_stand_in.repos["me/small"] = Repo(job_folder / "draft", gated=True)
    job = fetched(repository)
    with working(home):
        until(lambda: status(repository) == "failed", "the end of the fetch")
    assert str(repository.job(job.id).error).startswith("me/small is gated: accept its licence")


def test_the_command_line_fetches_what_is_missing_and_goes_on_after_a_failure(
    call: Callable[..., tuple[int, str, str]], job_stand_in: StandInHub
) -> None:
    added = call("pairs", "add", "mine", "--target", "me/large", "--draft", "me/small", "--dtype", "bfloat16")
    assert added[:2] == (0, "mine is to fetch, 3.2 MB. Measure with --pair mine.\n"), added
    assert "It is loaded as bfloat16, unless a setting names another dtype." in added[2]
    job_stand_in.cut_at = JOB_LARGE // 2
    code, _, err = call("pairs", "fetch", "mine")
    assert (code, "error: me/large could not be fetched whole" in err) == (2, True)
    job_stand_in.cut_at = None
    assert call("pairs", "fetch", "mine")[:2] == (0, "mine is here.\n")
    assert job_stand_in.firsts("model.safetensors")[-2] == JOB_LARGE // 2  # the last one is the draft's
    assert call("pairs", "fetch", "mine")[:2] == (0, "Nothing of mine is missing.\n")
    assert "mine " in call("pairs")[1]
    assert call("pairs", "show", "mine")[1].endswith("mine is here.\n")


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family of three, one of which has another tokenizer, with a stranger of the same name."""
    folder = tmp_path_factory.mktemp("family")
    save_toy_pair(folder / "toy")
    for name, size in (("Hen-7B", 900_000), ("Hen-0.5B", 90_000), ("Hen-1B", 200_000), ("Hen-6B", 800_000)):
        model = shutil.copytree(folder / "toy" / "target", folder / name)
        save_file({"weight": torch.zeros(size, dtype=torch.uint8)}, model / "model.safetensors")
    tokenizer = folder / "Hen-1B" / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["A"], vocabulary["B"] = vocabulary["B"], vocabulary["A"]
    tokenizer.write_text(json.dumps(content))
    return folder


@pytest.fixture
def offer_stand_in(models: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    get_settings.cache_clear()
    with stand_in_hub() as stand_in:
        use_hub(stand_in.url, monkeypatch)
        for downloads, name in enumerate(("Hen-7B", "Hen-0.5B", "Hen-1B", "Hen-6B")):
            stand_in.repos[f"farm/{name}"] = Repo(models / name, downloads=downloads)
        stand_in.repos["other/Hen-0.5B"] = Repo(models / "Hen-0.5B", downloads=9, gated=True)
        yield stand_in
    get_settings.cache_clear()


def test_a_search_finds_names_most_fetched_first(offer_stand_in: StandInHub) -> None:
    found = search_models("hen-0.5")
    assert [(model.id, model.downloads, model.gated) for model in found] == [
        ("other/Hen-0.5B", 9, True), ("farm/Hen-0.5B", 1, False),
    ]  # fmt: skip
    assert search_models("nothing of the kind") == []
    with pytest.raises(InvalidSetting, match="is empty"):
        search_models(" ")


def test_drafts_are_smaller_and_have_the_targets_tokenizer(offer_stand_in: StandInHub, models: Path) -> None:
    offers = offered_drafts(HubModel("farm/Hen-7B"))
    assert [(draft.model, draft.is_here) for draft in offers.drafts] == [("farm/Hen-0.5B", False)]
    assert (offers.compared, offers.note) == (3, "")
    fetched = [name for name, _ in offer_stand_in.asked]
    assert set(fetched) == {"tokenizer.json"}
    assert len(fetched) == 2  # of two contents
    assert offered_drafts(HubModel("farm/Hen-7B")).drafts == offers.drafts
    assert len(offer_stand_in.asked) == 2

    local = offered_drafts(models / "Hen-7B", [models / "Hen-1B", models / "Hen-0.5B", models / "gone"])
    assert [(draft.model, draft.is_here) for draft in local.drafts] == [
        (f"{models}/Hen-0.5B", True), ("farm/Hen-0.5B", False),
    ]  # fmt: skip


def test_without_a_network_what_is_here_is_offered_and_the_rest_is_told(
    offer_stand_in: StandInHub, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_hub("http://127.0.0.1:9", monkeypatch)
    with pytest.raises(HubUnreachable, match="models cannot be searched"):
        search_models("hen")
    offers = offered_drafts(models / "Hen-7B", [models / "Hen-0.5B"])
    assert [draft.model for draft in offers.drafts] == [f"{models}/Hen-0.5B"]
    assert "cannot be searched" in offers.note
    with pytest.raises(HubUnreachable):
        offered_drafts(HubModel("farm/Hen-7B"))


def test_a_target_without_a_tokenizer_is_told(offer_stand_in: StandInHub, tmp_path: Path, models: Path) -> None:
    bare = shutil.copytree(models / "Hen-7B", tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    with pytest.raises(ModelUnavailable, match="no draft can be compared"):
        offered_drafts(bare)


def test_the_command_line_searches_and_suggests(call: Call, offer_stand_in: StandInHub, models: Path) -> None:
    assert [line.split()[0] for line in call("pairs", "search", "Hen-0.5")[1].splitlines()[1:]] == [
        "other/Hen-0.5B", "farm/Hen-0.5B",
    ]  # fmt: skip
    assert "no such text model" in call("pairs", "search", "cow")[2]
    status, out, err = call("pairs", "drafts", "farm/Hen-7B")
    assert status == 0
    assert out.splitlines()[1].split() == ["farm/Hen-0.5B", "0.1", "MB", "to", "fetch"]
    assert err == "6 models were compared with the target.\n"
    assert call("pairs", "drafts", "nowhere")[0] == 2
