"""Models from a hub: with progress, stopped and continued in the middle, and nothing half kept when something fails."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fsd_core.errors import Cancelled, ModelUnavailable
from fsd_core.models import hub, hub_files, sources
from fsd_core.models.hub import obtain
from fsd_core.models.hub_files import HubUnreachable, offered
from fsd_core.models.sources import HubModel, obtained, origin
from fsd_core.testing import save_toy_pair
from tests.tools.stand_in_hub import Repo, StandInHub, stand_in_hub, use_hub

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
