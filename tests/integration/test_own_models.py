"""Pairs that name their models: without a draft, and with adapters."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from fsd_core.config import Autoregressive, ChainTopology, DecodingConfig, PromptLookupDrafter, Speculative
from fsd_core.config.model_names import name_of_models
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import InvalidSetting
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.testing.toy import save_toy_pair, toy_pair

PROMPT = "one two three, one two three, one two three"


def write(pair: LoadedPair, **config: object) -> list[int]:
    decoder = PairDecoder(pair, DecodingConfig(max_new_tokens=24, **config))  # pyright: ignore[reportArgumentType]
    return decoder.generate(decoder.prompt_ids(PROMPT), 0).tokens


def test_without_a_draft_the_target_copies_and_writes_what_it_writes_alone(tmp_path: Path) -> None:
    save_toy_pair(tmp_path)
    pair = load_pair(name_of_models({"target": f"{tmp_path}/target"}), device="cpu")
    assert set(pair.weights or {}) == {"target", "configuration"}
    alone = write(pair, acceptance=Autoregressive())
    copied = write(pair, acceptance=Speculative(), drafter=PromptLookupDrafter(), topology=ChainTopology(length=4))
    assert copied == alone == write(load_pair(f"path:{tmp_path}", device="cpu"), acceptance=Autoregressive())
    with pytest.raises(InvalidSetting, match="needs a draft model"):
        write(pair, acceptance=Speculative())


@pytest.fixture
def near() -> Iterator[Path]:
    """A folder with a short path: a pair's name has room for five."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_adapters_of_both_models_are_merged_and_fingerprinted(near: Path) -> None:
    save_toy_pair(near)
    for role, seed in (("target", 1), ("draft", 2)):
        torch.manual_seed(seed)
        module = getattr(toy_pair(), role).module
        lora = get_peft_model(module, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
        lora.save_pretrained(str(near / f"{role}-lora"))
    models = {"target": f"{near}/target", "draft": f"{near}/draft"}
    adapters = {"adapter": f"{near}/target-lora", "draft-adapter": f"{near}/draft-lora"}
    plain = load_pair(name_of_models(models), device="cpu")
    adapted = load_pair(name_of_models(models | adapters), device="cpu")
    assert set(adapted.weights or {}) == {"target", "draft", "adapter", "draft adapter", "configuration"}
    for role in ("target", "draft"):
        before, after = (dict(getattr(pair, role).module.named_parameters()) for pair in (plain, adapted))
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert changed == {name for name in before if "q_proj" in name}
    assert write(adapted, acceptance=Speculative()) == write(adapted, acceptance=Autoregressive())
