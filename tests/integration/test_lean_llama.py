"""The short forward computes what transformers' does, and takes nothing that it cannot."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from fsd_core.models.forwards import FusedLlama
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.kernels import prepack_linear

SIZES = {
    "vocab_size": 50,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 64,
}
ROPES = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@torch.inference_mode()
@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize(("key_heads", "tied", "head_dim"), [(6, True, None), (2, False, None), (1, False, 16)])
def test_logits_are_those_of_transformers(rope, key_heads, tied, head_dim):
    torch.manual_seed(0)
    config = LlamaConfig(
        **SIZES, num_key_value_heads=key_heads, tie_word_embeddings=tied, head_dim=head_dim, rope_parameters=ROPES[rope]
    )
    module = LlamaForCausalLM(config).eval()
    tokens = torch.randint(50, (2, 40))
    theirs = module(tokens).logits
    assert FusedLlama.supports(module)
    lean, plain = LanguageModel(module, lean=True), LanguageModel(module, lean=False)
    for model in (lean, plain):
        cache, at = model.new_cache(64, 2), 0
        for count in (17, 1, 6, 1, 1, 9, 5):  # a prompt, single steps, verifications
            ours = model.forward(tokens[:, at : at + count], cache)
            torch.testing.assert_close(ours, theirs[:, at : at + count], atol=2e-5, rtol=1e-4)
            at += count
        cache.rollback(30)
        again = model.forward(tokens[:, 30:40], cache, logits_to_keep=3)
        torch.testing.assert_close(again, theirs[:, 37:40], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(module(tokens).logits, theirs)  # its own weights are where they were


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [1, 6, 100])
@pytest.mark.parametrize("sizes", [(48, 80), (1024, 256)], ids=["small", "reordered"])
def test_a_product_is_that_of_the_weight_as_it_lies(dtype: torch.dtype, rows: int, sizes: tuple[int, int]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(sizes, dtype=dtype) / sizes[1] ** 0.5
    x = torch.randn(2, rows, sizes[1], dtype=dtype)
    multiply = prepack_linear(weight)
    if dtype == torch.float32:
        assert isinstance(multiply, partial) == (sizes == (48, 80))  # a small one is multiplied as it lies
    product = multiply(x)
    assert product.dtype == dtype
    torch.testing.assert_close(product, torch.nn.functional.linear(x, weight))


@pytest.mark.parametrize(
    "change",
    [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ],
    ids=str,
)
def test_an_unusual_llama_is_left_to_transformers(change):
    assert not FusedLlama.supports(LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2, **change)))


def test_another_architecture_is_left_to_transformers():
    assert not FusedLlama.supports(Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2)))


def test_a_fused_model_is_saved_whole(tmp_path):
    module = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    LanguageModel(module)
    module.save_pretrained(tmp_path)
    again = LlamaForCausalLM.from_pretrained(tmp_path).state_dict()
    for name, weight in before.items():
        torch.testing.assert_close(again[name], weight)
