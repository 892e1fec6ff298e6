"""Families of transformers with recurrent layers, at toy size."""

from __future__ import annotations

from typing import Any

HALF = {"layer_types": ["linear_attention", "full_attention"] * 2}
CONVOLVED = {"layer_types": ["conv", "full_attention"] * 2}
SHARED = {"num_hidden_layers": 6, "layers_block_type": ["linear_attention", "linear_attention", "hybrid"] * 2}
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_chunk_size": 8}
DELTA = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2}
SHARED_EXPERT = EXPERTS | {"shared_expert_intermediate_size": 16}
HYBRIDS: dict[str, dict[str, Any]] = {
    "bamba": MAMBA2 | {"attn_layer_indices": [1, 3]},
    "falcon_h1": MAMBA2 | {"mamba_d_ssm": 64},
    "falcon_mamba": {},
    "granitemoehybrid": MAMBA2 | HALF | {"num_local_experts": 4, "num_experts_per_tok": 2,
                                         "shared_intermediate_size": 32},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2,
              "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8},
    "kimi_linear": HALF | {"linear_head_dim": 8, "linear_num_heads": 4, "num_local_experts": 4,
                           "moe_intermediate_size": 16, "num_experts_per_tok": 2, "kv_lora_rank": 16,
                           "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 6, "num_key_value_heads": 4,
                           "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "head_dim": None},
    "lfm2": CONVOLVED,
    "lfm2_moe": EXPERTS | CONVOLVED,
    "lfm3": {},
    "mamba": {},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 2, "chunk_size": 8},
    "nemotron_h": {"num_hidden_layers": None, "layers_block_type": ["mamba", "moe", "attention", "mlp"],
                   "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16, "chunk_size": 8,
                   "moe_intermediate_size": 16, "n_routed_experts": 4, "moe_shared_expert_intermediate_size": 16},
    "olmo_hybrid": HALF | DELTA | {"linear_num_key_heads": 4, "seed": 1},  # the text of seed 0 ends at once
    "qwen3_5_moe_text": HALF | DELTA | SHARED_EXPERT,
    "qwen3_5_text": HALF | DELTA,
    "qwen3_next": HALF | DELTA | SHARED_EXPERT,
    "zamba": SHARED | {"mamba_d_state": 8},
    "zamba2": SHARED | {"n_mamba_heads": 8, "mamba_d_state": 16, "chunk_size": 8, "num_mem_blocks": 1},
}  # fmt: skip
"""what each family needs beside the fields of ``SIZE``, or in their place"""
STEPPED = ("falcon_mamba", "jamba", "mamba", "zamba")
"""those whose state transformers' modules continue by one token at a time only"""
