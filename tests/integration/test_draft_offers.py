"""Models of a hub by name, and drafts that a target could have: smaller ones, with its very tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fsd_core.errors import InvalidSetting, ModelUnavailable
from fsd_core.models.hub_files import HubUnreachable, search_models
from fsd_core.models.pair_check import offered_drafts
from fsd_core.models.sources import HubModel
from fsd_core.settings import get_settings
from fsd_core.testing import save_toy_pair
from tests.tools.stand_in_hub import Repo, StandInHub, stand_in_hub, use_hub

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
def stand_in(models: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    get_settings.cache_clear()
    with stand_in_hub() as stand_in:
        use_hub(stand_in.url, monkeypatch)
        for downloads, name in enumerate(("Hen-7B", "Hen-0.5B", "Hen-1B", "Hen-6B")):
            stand_in.repos[f"farm/{name}"] = Repo(models / name, downloads=downloads)
        stand_in.repos["other/Hen-0.5B"] = Repo(models / "Hen-0.5B", downloads=9, gated=True)
        yield stand_in
    get_settings.cache_clear()


def test_a_search_finds_names_most_fetched_first(stand_in: StandInHub) -> None:
    found = search_models("hen-0.5")
    assert [(model.id, model.downloads, model.gated) for model in found] == [
        ("other/Hen-0.5B", 9, True), ("farm/Hen-0.5B", 1, False),
    ]  # fmt: skip
    assert search_models("nothing of the kind") == []
    with pytest.raises(InvalidSetting, match="is empty"):
        search_models(" ")


def test_drafts_are_smaller_and_have_the_targets_tokenizer(stand_in: StandInHub, models: Path) -> None:
    offers = offered_drafts(HubModel("farm/Hen-7B"))
    assert [(draft.model, draft.is_here) for draft in offers.drafts] == [("farm/Hen-0.5B", False)]
    assert (offers.compared, offers.note) == (3, "")
    fetched = [name for name, _ in stand_in.asked]
    assert set(fetched) == {"tokenizer.json"}
    assert len(fetched) == 2  # of two contents
    assert offered_drafts(HubModel("farm/Hen-7B")).drafts == offers.drafts
    assert len(stand_in.asked) == 2

    local = offered_drafts(models / "Hen-7B", [models / "Hen-1B", models / "Hen-0.5B", models / "gone"])
    assert [(draft.model, draft.is_here) for draft in local.drafts] == [
        (f"{models}/Hen-0.5B", True), ("farm/Hen-0.5B", False),
    ]  # fmt: skip


def test_without_a_network_what_is_here_is_offered_and_the_rest_is_told(
    stand_in: StandInHub, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_hub("http://127.0.0.1:9", monkeypatch)
    with pytest.raises(HubUnreachable, match="models cannot be searched"):
        search_models("hen")
    offers = offered_drafts(models / "Hen-7B", [models / "Hen-0.5B"])
    assert [draft.model for draft in offers.drafts] == [f"{models}/Hen-0.5B"]
    assert "cannot be searched" in offers.note
    with pytest.raises(HubUnreachable):
        offered_drafts(HubModel("farm/Hen-7B"))


def test_a_target_without_a_tokenizer_is_told(stand_in: StandInHub, tmp_path: Path, models: Path) -> None:
    bare = shutil.copytree(models / "Hen-7B", tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    with pytest.raises(ModelUnavailable, match="no draft can be compared"):
        offered_drafts(bare)


def test_the_command_line_searches_and_suggests(call: Call, stand_in: StandInHub, models: Path) -> None:
    assert [line.split()[0] for line in call("pairs", "search", "Hen-0.5")[1].splitlines()[1:]] == [
        "other/Hen-0.5B", "farm/Hen-0.5B",
    ]  # fmt: skip
    assert "no such text model" in call("pairs", "search", "cow")[2]
    status, out, err = call("pairs", "drafts", "farm/Hen-7B")
    assert status == 0
    assert out.splitlines()[1].split() == ["farm/Hen-0.5B", "0.1", "MB", "to", "fetch"]
    assert err == "6 models were compared with the target.\n"
    assert call("pairs", "drafts", "nowhere")[0] == 2
