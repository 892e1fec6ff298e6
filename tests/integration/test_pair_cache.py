"""Pairs stay in memory while there is room, and the one used longest ago makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsd_core.errors import InsufficientMemory, UnknownName
from fsd_core.testing import save_toy_pair
from fsd_core.worker import device
from fsd_core.worker.device import PairCache


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    return [save_toy_pair(tmp_path / letter, seed=i) for i, letter in enumerate("abcd")]


def test_pairs_stay_while_there_is_room(names: list[str]) -> None:
    pairs = PairCache("cpu")
    loaded = [pairs(name) for name in names[:3]]
    assert [pairs(name) for name in names[:3]] == loaded  # LoadedPair compares by its models, which compare by identity
    assert all(pairs(name).target is pair.target for name, pair in zip(names, loaded, strict=False))
    pairs(names[0])
    pairs(names[3])  # one too many: b has waited longest
    assert pairs(names[0]).target is loaded[0].target
    assert pairs(names[2]).target is loaded[2].target
    assert pairs(names[1]).target is not loaded[1].target


def test_a_pair_that_does_not_fit_beside_others_evicts_them(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, room = PairCache("cpu"), 1.2e9  # each needs half a gigabyte and a little

    def free(device: object) -> float:
        return room - 0.5e9 * len(pairs._pairs)

    monkeypatch.setattr("fsd_core.models.load_failures.free_bytes", free)
    first, second = pairs(names[0]), pairs(names[1])
    assert pairs(names[1]).target is second.target
    assert pairs(names[0]).target is first.target
    third = pairs(names[2])
    assert pairs(names[0]).target is first.target
    assert pairs(names[2]).target is third.target
    assert len(pairs._pairs) == 2
    room = 0.4e9
    with pytest.raises(InsufficientMemory, match="needs about"):
        pairs(names[3])


def test_what_cannot_be_loaded_leaves_the_others(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = PairCache("cpu")
    first = pairs(names[0])
    with pytest.raises(UnknownName):
        pairs("nobody")
    assert pairs(names[0]).target is first.target
    assert pairs(names[0], dtype="bfloat16").target is not first.target
    asked = []
    monkeypatch.setattr(device, "load_pair", lambda *key: asked.append(key) or first)
    PairCache("cpu")(names[0], "cuda:1")
    assert asked[0][:3] == (names[0], "cuda:1", "auto")
