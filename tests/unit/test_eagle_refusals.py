"""EAGLE heads that would be drafted from the wrong states, or by another computation, are refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.eagle_files import load_head, new_head, save_head
from fsd_core.testing import toy_model
from tests.tools.eagle_layouts import EAGLE_3, LAYERS, LAYOUTS, VOCABULARY, speculators, write

IDS, OWN = "eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layers"
SPECULATORS = speculators("eagle3", draft_vocab_size=24, norm_before_residual=True)
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return toy_model(VOCABULARY, seed=1, layers=LAYERS)


def refused(
    folder: Path,
    target: LlamaForCausalLM,
    config: dict[str, Any],
    change: dict[str, Tensor | None] | None = None,
    layout: str = "eagle-3",
) -> ModelUnavailable | IncompatibleModels:
    """The error for a head of a layout with another ``config`` and with tensors added, replaced or left out."""
    weights = {
        name.replace("layer.", "layers.0.", 1) if name.startswith("layer.") else name: value
        for name, value in (LAYOUTS[layout].weights() | (change or {})).items()
        if value is not None
    }
    with pytest.raises((ModelUnavailable, IncompatibleModels)) as caught:
        load_head(write(folder / "head", config, weights), target)
    message = str(caught.value)
    assert message.startswith(f"The EAGLE head in {folder / 'head'} ")
    assert message.endswith(".")
    return caught.value


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"residual_scale": 0.5}, "the key 'residual_scale'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "the key 'quantization_config'"),
        ({"dflash_config": {"target_layer_ids": [1, 2]}}, "the key 'dflash_config'"),
        ({"eagle_config": {"use_new_norm": True}}, "the key 'use_new_norm'"),
        ({"model_type": "gemma3_text"}, "'model_type' to 'gemma3_text'"),
        ({"num_hidden_layers": 2}, "'num_hidden_layers' to 2"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "'use_aux_hidden_state' to False"),
        ({"eagle_config": {"use_last_layernorm": False}}, "'use_last_layernorm' to False"),
        ({"parallel_drafting": True}, "'parallel_drafting' to True"),
        ({"logit_scale": 0.25}, "'logit_scale' to 0.25"),
        ({"norm_before_residual": "yes"}, "'norm_before_residual' to 'yes'"),
        ({"norm_before_fc": True, "fc_norm": True}, "both 'norm_before_fc' and 'fc_norm'"),
        ({"norm_output": True, "eagle_config": {"norm_output": False}}, "'norm_output' to True and, in 'eagle_config'"),
        ({"sliding_window": 128}, "'sliding_window'"),
        ({"layer_types": ["sliding_attention"]}, "'layer_types'"),
        ({"rope_scaling": DYNAMIC}, "rotates positions as"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "rotates positions as"),
        ({"attention_bias": True}, r"'attention_bias' in its config.json and lacks layers.0.self_attn.q_proj.bias"),
        ({"fusion_bias": True}, "'fusion_bias' in its config.json and lacks fc.bias"),
        ({"draft_vocab_size": 16}, "drafts 16 tokens by its config.json and 24 by its tensors"),
        ({"truncated_vocab_size": 16}, "drafts 16 tokens by its config.json and 24 by its tensors"),
        ({"num_aux_hidden_states": 4}, "'num_aux_hidden_states' to 4"),
        ({"norm_before_fc": True}, "lacks input_norm.weight"),
        ({"fc_norm": True}, r"lacks fc_norm.0.weight, fc_norm.1.weight, fc_norm.2.weight"),
    ],
)
def test_settings_that_are_not_known_are_named(
    tmp_path: Path, target: LlamaForCausalLM, change: dict[str, Any], named: str
) -> None:
    error = refused(tmp_path, target, EAGLE_3 | change)
    assert isinstance(error, ModelUnavailable)
    assert named in str(error)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (SPECULATORS | {"speculators_model_type": "peagle"}, "'speculators_model_type' to 'peagle'"),
        ({k: v for k, v in SPECULATORS.items() if k != "norm_before_residual"}, "does not say 'norm_before_residual'"),
        (speculators("eagle", layernorms=True), "'layernorms' to True"),
        (
            speculators("eagle3", {"model_type": "qwen3"}, draft_vocab_size=24, norm_before_residual=True),
            "'model_type' to 'qwen3'",
        ),
    ],
)
def test_so_are_those_of_speculators(
    tmp_path: Path, target: LlamaForCausalLM, config: dict[str, Any], named: str
) -> None:
    assert named in str(refused(tmp_path, target, config))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        # Inputs where vLLM reads them, unless converted from SGLang's outputs.
        ({IDS: [1, 3, 4]}, f"replace it by '{OWN}'"),
        # Outputs to SpecForge, inputs to newer SGLang.
        ({"eagle_config": {IDS: [3, 4, 6]}}, f"replace it by '{OWN}', the layers whose inputs the head was trained on"),
        ({IDS: [6, 4, 2]}, "in rising order"),
        ({IDS: [2, 2, 4]}, "in rising order"),
        ({IDS: [2, "4", 5]}, "in rising order"),
        ({IDS: [2, 4, 5], "eagle_config": {IDS: [1, 3, 4]}}, "expected one list of layers"),
    ],
)
def test_layer_ids_of_unknown_meaning_are_refused(
    tmp_path: Path, target: LlamaForCausalLM, change: dict[str, Any], named: str
) -> None:
    error = refused(tmp_path, target, EAGLE_3 | change)
    assert isinstance(error, ModelUnavailable)
    assert named in str(error)


@torch.inference_mode()
def test_the_key_that_settles_them_is_in_force(tmp_path: Path, target: LlamaForCausalLM) -> None:
    folder = LAYOUTS["vllm"].write(tmp_path)
    for ids in ([2, 4, 5], [3, 4, 6]):
        weights = LAYOUTS["eagle-3"].weights()
        tensors = {name.replace("layer.", "midlayer.", 1) if name.startswith("layer.") else name: value
                   for name, value in weights.items()}  # fmt: skip
        write(folder, EAGLE_3 | {OWN: ids}, tensors)
        assert load_head(folder, target).aux_layers(LAYERS) == tuple(ids)


@pytest.mark.parametrize("ids", [[2, 4, 8], [3, 30, 57], [-1, 2, 3]])
def test_layers_that_the_target_lacks_are_refused(tmp_path: Path, target: LlamaForCausalLM, ids: list[int]) -> None:
    """Layer 8 would be the last layer's output before the norm, which no target keeps here."""
    error = refused(tmp_path, target, EAGLE_3 | {IDS: ids})
    assert isinstance(error, IncompatibleModels)
    assert "those of layers 0 to 7 can be read" in str(error)


@pytest.mark.parametrize(
    ("config", "change", "kind", "named"),
    [
        ({}, {"layers.0.self_attn.q_norm.weight": torch.ones(8)}, ModelUnavailable, "layers.0.self_attn.q_norm.weight"),
        ({}, {"layers.1.mlp.up_proj.weight": torch.ones(48, 32)}, ModelUnavailable, "layers.1.mlp.up_proj.weight"),
        ({}, {"mask_hidden": torch.ones(1, 96)}, ModelUnavailable, "the unknown mask_hidden"),
        ({}, {"input_norm.weight": torch.ones(96)}, ModelUnavailable, "the unknown input_norm.weight"),
        ({}, {"norm.weight": None}, ModelUnavailable, "lacks norm.weight"),
        ({}, {"d2t": None, "t2d": None}, ModelUnavailable, "over 24 of the target's 40 tokens and lacks d2t"),
        ({}, {"d2t": torch.full((24,), 30)}, IncompatibleModels, "beyond the target's 40"),
        ({}, {"d2t": -torch.arange(24)}, IncompatibleModels, "names a token twice"),
        ({}, {"lm_head.weight": torch.ones(16, 32)}, ModelUnavailable, "by its tensors"),
        ({}, {"fc.weight": torch.ones(32, 128)}, IncompatibleModels, "reads states of width 42"),
        ({"target_hidden_size": 64}, {}, IncompatibleModels, "reads states of width 64"),
        ({"hidden_size": 16, "head_dim": 8}, {}, IncompatibleModels, "embed_tokens.weight of width 32"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path,
    target: LlamaForCausalLM,
    config: dict[str, Any],
    change: dict[str, Tensor | None],
    kind: type[Exception],
    named: str,
) -> None:
    error = refused(tmp_path, target, EAGLE_3 | config, change)
    assert isinstance(error, kind)
    assert named in str(error)


def test_settings_of_one_generation_with_tensors_of_the_other(tmp_path: Path, target: LlamaForCausalLM) -> None:
    config = speculators("eagle") | {IDS: [2, 4, 5], "fusion_bias": True}
    assert "settings of EAGLE-3" in str(refused(tmp_path, target, config, layout="speculators, eagle-1"))


def test_keys_about_storing_training_and_generating_pass(tmp_path: Path, target: LlamaForCausalLM) -> None:
    harmless = {
        "_name_or_path": "someone/head", "_attn_implementation": "sdpa", "pad_token_id": 0, "image_token_id": 7,
        "output_attentions": False, "do_sample": False, "temperature": 1.0, "num_beams": 1, "pretraining_tp": 1,
        "id2label": {"0": "LABEL_0"}, "attention_dropout": 0.0, "is_llama_config": True, "quantization_config": None,
        "torch_dtype": "float16", "tokenizer_class": None, "use_cache": False, "bias": False, "max_window_layers": 28,
    }  # fmt: skip
    tensors = {
        name.replace("layer.", "midlayer.", 1) if name.startswith("layer.") else name: value
        for name, value in LAYOUTS["eagle-3"].weights().items()
    }
    assert load_head(write(tmp_path, EAGLE_3 | harmless, tensors), target).generation == 3


def test_a_head_made_here_loads_whatever_else_its_target_says(tmp_path: Path) -> None:
    """The target's settings are in its config.json and had no effect when it was trained."""
    target = toy_model(VOCABULARY, seed=2, layers=LAYERS)
    target.config.residual_scale = 0.5
    head = new_head(target, 3)
    save_head(head, tmp_path / "made", {"head_of": "toy", "rest_share": 0.0})
    assert load_head(tmp_path / "made", target).aux_layers(LAYERS) == (2, 4, 5)
    save_head(head, tmp_path / "unmarked", {})
    with pytest.raises(ModelUnavailable, match="residual_scale"):
        load_head(tmp_path / "unmarked", target)
