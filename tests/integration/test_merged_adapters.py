"""What a pair with a LoRA adapter computes is what PEFT computes with the adapter beside the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from fsd_core.config import DecodingConfig
from fsd_core.config.model_names import name_of_models
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import ModelUnavailable
from fsd_core.models import loading
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import adapted, load_pair
from fsd_core.testing import END, save_toy_pair, toy_tokenizer
from tests.tools.toy_families import toy_family

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # PEFT's, of shared matrices
TOKENS = torch.arange(3, 60, 4)[None]
TEMPLATE = "<A>{{ messages[0]['content'] }}"
KINDS: list[dict[str, Any]] = [
    {"target_modules": ["lm_head"]},
    {"target_modules": ["embed_tokens"]},
    {"target_modules": ["embed_tokens", "lm_head"]},
    {"target_modules": ["embed_tokens", "lm_head"], "ensure_weight_tying": True},
    {"target_modules": ["q_proj", "lm_head"], "use_dora": True},
    {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    {"target_modules": ["q_proj"], "trainable_token_indices": [5, 9, 11]},
    {"target_modules": ["q_proj", "down_proj"], "use_rslora": True},
]


def trained(model: Any) -> Any:
    """The model with all weights of its adapter away from where PEFT begins."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return model.eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=TOKENS, use_cache=False).logits


@pytest.mark.parametrize("family", ["llama", pytest.param("gemma2", marks=pytest.mark.wide)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "+".join([*kind["target_modules"], *list(kind)[1:]]))
def test_a_tied_model_gives_the_logits_of_the_adapter_beside_it(
    tmp_path: Path, family: str, kind: dict[str, Any]
) -> None:
    base, lora = tmp_path / "base", tmp_path / "lora"
    toy_family(family, tie_word_embeddings=True).save_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base)
    before = logits(model)
    trained(get_peft_model(model, LoraConfig(r=4, **kind))).save_pretrained(lora)
    expected = logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(lora)))
    assert not torch.allclose(expected, before, rtol=1e-2, atol=1e-2)
    merged = LanguageModel(adapted(AutoModelForCausalLM.from_pretrained(base), lora))
    found = merged.forward(TOKENS, merged.new_cache(TOKENS.shape[1]))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_an_adapter_whose_merge_is_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_family("llama", tie_word_embeddings=True)
    trained(get_peft_model(model, LoraConfig(r=4, target_modules=["lm_head"]))).save_pretrained(tmp_path)
    monkeypatch.setattr(loading, "_untie", lambda model: None)  # as it would be of a kind that nobody thought of
    with pytest.raises(ModelUnavailable, match=r"cannot be merged.*logits differ by"):
        adapted(toy_family("llama", tie_word_embeddings=True), tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pair, and an adapter with two more tokens, a template and another end token."""
    save_toy_pair(tmp_path)
    tokenizer = toy_tokenizer()
    tokenizer.add_tokens(["<turn>", "</turn>"])
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "lora")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    model.resize_token_embeddings(len(tokenizer))
    config = LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
    trained(get_peft_model(model, config)).save_pretrained(tmp_path / "lora")
    return tmp_path


def named(folder: Path, **more: str) -> str:
    return name_of_models({"target": f"{folder}/target", "adapter": f"{folder}/lora"} | more)


def test_the_tokens_and_the_template_that_an_adapter_brings_are_in_force(folder: Path) -> None:
    pair = load_pair(named(folder, draft=f"{folder}/draft"), device="cpu")
    assert pair.target.vocabulary == len(pair.tokenizer) == 259
    ids = PairDecoder(pair, DecodingConfig()).prompt_ids("<turn>Hello")
    assert pair.tokenizer.decode(ids) == "<A><turn>Hello"
    assert pair.tokenizer.convert_tokens_to_ids("<turn>") in ids
    base = str(folder / "target")
    config = (folder / "lora" / "adapter_config.json").read_text()
    (folder / "lora" / "adapter_config.json").write_text(
        config.replace('"task_type": null', '"task_type": "CAUSAL_LM"')
    )
    peft = AutoPeftModelForCausalLM.from_pretrained(str(folder / "lora"), local_files_only=True)
    assert peft.peft_config["default"].base_model_name_or_path == base
    found = pair.target.forward(TOKENS, pair.target.new_cache(TOKENS.shape[1]))
    torch.testing.assert_close(found, logits(peft), rtol=1e-3, atol=1e-3)
    assert load_pair(named(folder), device="cpu").weights["configuration"] != load_pair(f"path:{folder}").weights
    assert pair.tokenizer.eos_token == END


def test_tokens_without_weights_are_refused(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "target")
    (folder / "lora" / "adapter_model.safetensors").unlink()
    get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(folder / "lora")
    with pytest.raises(ModelUnavailable, match="has 259 tokens, the model 257"):
        load_pair(named(folder), device="cpu")


def test_an_adapter_of_another_size_is_not_called_broken(folder: Path) -> None:
    for file in (folder / "lora").glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelUnavailable, match="size mismatch") as refused:
        load_pair(named(folder), device="cpu")
    assert "Restore" not in str(refused.value)
    assert "Choose the model that it was trained on" in str(refused.value)
