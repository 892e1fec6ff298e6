"""Every family of transformers that can be built at toy size: greedy SD is the greedy target, or it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedModel

from fsd_core.errors import IncompatibleModels
from tests.tools.toy_families import check_greedy_sd_is_the_greedy_target, pair_of, toy_family

LATENT = {  # keys and values are of different widths
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 6,
    "num_key_value_heads": 4,
}  # fmt: skip
EXPERTS = {
    "n_routed_experts": 4, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "num_experts_per_tok": 2, "n_shared_experts": 1,
}  # fmt: skip
# A window shorter than the texts, so that a layer which ignored it would be found out.
WINDOWED = ("cohere2", "cohere2_moe", "gemma3_text", "mixtral", "olmo3", "phi3", "starcoder2")
OWN: dict[str, dict[str, Any]] = {
    **{family: {"sliding_window": 9} for family in WINDOWED},
    "codegen": {"rotary_dim": 8},
    "deepseek_v2": LATENT | EXPERTS,
    "deepseek_v3": LATENT | EXPERTS,
    "dots1": EXPERTS,
    "falcon-alibi": {"alibi": True},
    "glm4_moe": EXPERTS,
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 9,
                "layer_types": ["sliding_attention", "full_attention"] * 2},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"layer_types": ["attention"] * 4, "mamba_n_heads": 8, "mamba_d_head": 8,
                         "num_local_experts": 4, "num_experts_per_tok": 2},
    "minicpm3": LATENT,
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2},
}  # fmt: skip
SUPPORTED = (
    "apertus", "arcee", "aria_text", "biogpt", "bitnet", "bloom", "codegen", "cohere", "cohere2", "cohere2_moe", "ctrl",
    "deepseek_v2", "deepseek_v3", "diffllama", "doge", "dots1", "ernie4_5", "exaone4", "falcon", "falcon-alibi",
    "flex_olmo", "fuyu", "gemma", "gemma3_text", "gemma4_unified_text", "glm", "glm4", "glm4_moe", "gpt-sw3", "gpt2",
    "gpt_bigcode", "gpt_neox", "gpt_neox_japanese", "gpt_oss", "gptj", "granite", "granite_swa", "granitemoe",
    "granitemoe_swa", "granitemoehybrid", "granitemoeshared", "helium", "hrm_text", "hunyuan_v1_dense",
    "hunyuan_v1_moe", "hyperclovax", "internlm3", "iquestcoder", "jais2", "jetmoe", "lfm2", "minicpm3", "ministral",
    "ministral3", "mixtral", "mpt", "nanochat", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "opt", "persimmon",
    "phi", "phi3", "phimoe", "qwen3_moe", "seed_oss", "smollm3", "stablelm", "starcoder2", "trocr", "vaultgemma",
    "xglm",
)  # fmt: skip
"""beside those of test_families.py"""
REFUSED = (
    "bert", "bert-generation", "big_bird", "electra", "ernie", "llama4_text", "megatron-bert", "minimax", "openai-gpt",
    "recurrent_gemma", "rembert", "roformer", "rwkv", "xlm", "xlstm",
)  # fmt: skip
"""models that look ahead, or keep a state elsewhere than in the cache"""


QUICK = ("deepseek_v2", "gpt2", "gpt_oss", "recurrent_gemma", "rwkv")
"""what the gate builds: latent keys with experts, positions that are learnt, windows; two of those that are refused"""


def sized(families: tuple[str, ...]) -> list[Any]:
    """Some in the gate, and all in ``make test-long``."""
    return [family if family in QUICK else pytest.param(family, marks=pytest.mark.long) for family in families]


def model_of(family: str) -> PreTrainedModel:
    size = OWN.get(family, {})
    if family.startswith("falcon") and "_" not in family:  # which has a property of that name
        size = {**size, "head_dim": None}
    return toy_family(family.removesuffix("-alibi"), **size)


@pytest.mark.filterwarnings("ignore")  # of modules that miss fast kernels or are to go
@pytest.mark.parametrize("family", sized(SUPPORTED))
def test_greedy_sd_is_the_greedy_target(family: str) -> None:
    check_greedy_sd_is_the_greedy_target(model_of(family), noise=0.02, tokens=16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", sized(REFUSED))
def test_what_cannot_be_rolled_back_is_refused_in_a_sentence(family: str) -> None:
    model = model_of(family)
    with pytest.raises(IncompatibleModels, match=r"model of this kind is not supported: .+ Choose another pair\.$"):
        pair_of(model, noise=0.02)
