"""The badge of a pair and its loading agree on what lies in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from fsd_core.config.model_names import name_of_models
from fsd_core.errors import ModelUnavailable
from fsd_core.models.loading import load_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.pair_check import HERE, UNUSABLE, DeviceMemory, check_pair
from fsd_core.testing import save_toy_pair, toy_pair

WHOLE, INDEX, ADAPTER = "model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
Harm = Callable[[Path], object]


def in_shards(folder: Path, weight_map: bool = True) -> None:
    weights = load_file(folder / WHOLE)
    (folder / WHOLE).unlink()
    names = {name: SHARDS[i % 2] for i, name in enumerate(sorted(weights))}
    for shard in SHARDS:
        save_file({name: x for name, x in weights.items() if names[name] == shard}, folder / shard, {"format": "pt"})
    if weight_map:
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))


def without_one(folder: Path) -> None:
    in_shards(folder)
    (folder / SHARDS[1]).unlink()


def with_broken_index(folder: Path) -> None:
    in_shards(folder)
    (folder / INDEX).write_text("{")


def renamed(to: str, name: str = WHOLE) -> Harm:
    return lambda folder: (folder / name).rename(folder / to)


def configured(**fields: object) -> Harm:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))

    return change


def truncated(folder: Path) -> None:
    (folder / WHOLE).write_bytes((folder / WHOLE).read_bytes()[:-100])


USABLE: dict[str, Harm] = {
    "shards": in_shards,
    "a stale index beside the whole": lambda folder: (folder / INDEX).write_text(
        json.dumps({"metadata": {}, "weight_map": {"a": SHARDS[0]}})
    ),
    "flash attention": configured(_attn_implementation="flash_attention_2"),
    "flash attention, as it was spelt": configured(attn_implementation="flash_attention_2"),
}
NOT_USABLE: dict[str, tuple[str, Harm]] = {
    "shards without an index": (SHARDS[0], lambda folder: in_shards(folder, weight_map=False)),
    "an index that is no JSON": (INDEX, with_broken_index),
    "a missing shard": (SHARDS[1], without_one),
    "weights": ("weights.safetensors, which no loader reads", renamed("weights.safetensors")),
    "a variant": ("model.fp16.safetensors, which no loader reads", renamed("model.fp16.safetensors")),
    "Mistral's own": ("consolidated.safetensors, which no loader reads", renamed("consolidated.safetensors")),
    "a pickle": ("pytorch_model.bin, a pickle", renamed("pytorch_model.bin")),
    "nothing": ("has no weights", lambda folder: (folder / WHOLE).unlink()),
    "a part": ("is no whole safetensors file", truncated),
    "no configuration": ("config.json that cannot be read", lambda folder: (folder / "config.json").write_text("{")),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_toy_pair(tmp_path)
    return tmp_path


def badge_and_problems(name: str) -> tuple[str, str]:
    found = check_pair(get_pair(name), DeviceMemory("cpu", 10**12))
    return found.badge, " ".join(found.problems)


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("case", USABLE)
def test_what_loads_is_here(folder: Path, case: str, role: str) -> None:
    USABLE[case](folder / role)
    assert badge_and_problems(f"path:{folder}") == (HERE, "")
    load_pair(f"path:{folder}", device="cpu")


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("case", NOT_USABLE)
def test_what_does_not_load_cannot_be_used_for_the_same_reason(folder: Path, case: str, role: str) -> None:
    reason, harm = NOT_USABLE[case]
    harm(folder / role)
    badge, problems = badge_and_problems(f"path:{folder}")
    with pytest.raises(ModelUnavailable) as refused:
        load_pair(f"path:{folder}", device="cpu")
    assert badge == UNUSABLE
    assert reason in problems
    assert problems.removeprefix(f"The {role} in {folder / role} ") in str(refused.value)


@pytest.mark.parametrize("harm", [renamed("adapter_model.bin", ADAPTER), renamed(WHOLE, ADAPTER)])
def test_so_it_is_with_adapters(folder: Path, harm: Harm) -> None:
    lora = folder / "lora"
    get_peft_model(toy_pair().target.module, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(str(lora))
    name = name_of_models({"target": f"{folder}/target", "adapter": str(lora)})
    assert badge_and_problems(name) == (HERE, "")
    load_pair(name, device="cpu")
    harm(lora)
    assert badge_and_problems(name)[0] == UNUSABLE
    with pytest.raises(ModelUnavailable, match=r"The adapter in .* cannot be loaded: it has its weights as"):
        load_pair(name, device="cpu")
