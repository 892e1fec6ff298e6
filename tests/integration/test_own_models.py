"""Pairs that name their models: without a draft, and with adapters."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from dashboard.runs.opened_run import header_html, notes_html
from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    PromptLookupDrafter,
    RunConfig,
    SettingConfig,
    Speculative,
    TemplateConfig,
)
from fsd_core.config.model_names import name_of_models
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import InvalidSetting
from fsd_core.evaluation.runner import execute_runs
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.storage.repository import Repository
from fsd_core.testing import save_toy_pair, toy_pair

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


def with_template(folder: Path, arguments: str) -> str:
    """Return the name of a pair whose template reads one argument."""
    save_toy_pair(folder)
    file = folder / "target" / "chat_template.jinja"
    file.write_text("{{ messages[0]['content'] }}{% if fast is defined %}[{{ fast }}]{% endif %}")
    return name_of_models({"target": f"{folder}/target", "draft": f"{folder}/draft", "template": arguments})


def test_arguments_of_the_template_hold_where_the_setting_gives_none(near: Path, repository: Repository) -> None:
    name = with_template(near, '{"fast": true}')
    pair = load_pair(name, device="cpu")

    def asked(**template: str) -> str:
        decoder = PairDecoder(pair, DecodingConfig(template=TemplateConfig(**template)))
        text = str(pair.tokenizer.decode(decoder.prompt_ids("Hello")))
        assert pair.tokenizer.decode(pair.inputs("Hello", **template)["input_ids"][0]) == text
        return text

    assert asked() == "Hello[True]"
    assert asked(arguments='{"fast": false}') == "Hello[False]"
    recorded = []
    for decoding in (
        DecodingConfig(max_new_tokens=2),
        DecodingConfig(max_new_tokens=2, template=TemplateConfig(arguments='{"fast": 1}')),
    ):
        config = RunConfig(setting=SettingConfig(pair=name, decoding=decoding), task="everyday", limit=1, device="cpu")
        run = repository.create_run(config)
        execute_runs(repository, [run], lambda *_: pair)
        recorded.append(repository.run(run))
    assert [(run.provenance or {})["template_arguments"] for run in recorded] == ['{"fast": true}', '{"fast": 1}']
    assert recorded[0].pair == name
    assert "fast true" in str(header_html(recorded[0], None))
    assert len({next(iter(repository.prompts([run.id])[run.id].values())).prompt_hash for run in recorded}) == 2


def test_what_is_told_of_the_files_stands_on_the_run_s_page(near: Path, repository: Repository) -> None:
    save_toy_pair(near)
    for name in ("config.json", "generation_config.json"):
        file = near / "target" / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": 7}))
    pair = load_pair(f"path:{near}", device="cpu")
    run = repository.create_run(
        RunConfig(setting=SettingConfig(pair=f"path:{near}", decoding=DecodingConfig(max_new_tokens=2)), limit=1)
    )
    assert str(notes_html(repository.run(run))) == ""
    execute_runs(repository, [run], lambda *_: pair)
    page = str(notes_html(repository.run(run)))
    assert "ends texts with '<|end|>', and the target" in unescape(page)
    assert "<|end|>" not in page


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
