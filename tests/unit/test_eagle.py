"""EAGLE heads: published names and shapes, what a slot sees, and drafting as it was taught."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from fsd_core.config import SamplingConfig
from fsd_core.drafters import EagleProposer
from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.caches import causal_mask
from fsd_core.models.draft_weights import EagleHead, aux_hidden_state_layers
from fsd_core.models.eagle_files import load_head, new_head, save_head
from fsd_core.models.forward import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.testing import toy_head, toy_model
from fsd_core.training.eagle_head import HeadLoss, TrainingBatch

SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}  # fmt: skip
TARGETS = {
    "llama-2": LlamaConfig(**SIZES | {"num_key_value_heads": 4}, num_hidden_layers=6, rms_norm_eps=1e-5),
    "llama-3": LlamaConfig(
        **SIZES, num_hidden_layers=6, rms_norm_eps=1e-5,
        rope_parameters={"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    ),
    "vicuna": LlamaConfig(**SIZES | {"num_key_value_heads": 4}, num_hidden_layers=6, rms_norm_eps=1e-6, pad_token_id=0),
    "qwen-2": Qwen2Config(**SIZES, num_hidden_layers=6),
}  # fmt: skip


def target_of(name: str):
    torch.manual_seed(3)
    config = TARGETS[name]
    return (Qwen2ForCausalLM if isinstance(config, Qwen2Config) else LlamaForCausalLM)(config).eval()


def published(name: str, generation: int, layer: str = "layers.0.") -> tuple[dict, dict[str, torch.Tensor]]:
    """Configuration and random weights as the heads of a family are published: names and shapes, nothing else."""
    sizes = TARGETS[name]
    width, keys = sizes.hidden_size, sizes.num_key_value_heads * 8
    reads = width if generation == 1 else 2 * width
    told = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1,
        "hidden_act": "silu", "rms_norm_eps": sizes.rms_norm_eps, **SIZES,
        "num_key_value_heads": sizes.num_key_value_heads,
    }  # fmt: skip
    shapes = {
        f"{layer}self_attn.q_proj.weight": (width, reads), f"{layer}self_attn.k_proj.weight": (keys, reads),
        f"{layer}self_attn.v_proj.weight": (keys, reads), f"{layer}self_attn.o_proj.weight": (width, width),
        f"{layer}mlp.gate_proj.weight": (48, width), f"{layer}mlp.up_proj.weight": (48, width),
        f"{layer}mlp.down_proj.weight": (width, 48), f"{layer}post_attention_layernorm.weight": (width,),
        "fc.weight": (width, (2 if generation == 1 else 3) * width),
    }  # fmt: skip
    if generation == 1:
        shapes |= {"embed_tokens.weight": (96, width)}
        shapes |= {"fc.bias": (width,)} if name in ("llama-2", "vicuna") else {}
        if name == "qwen-2":
            shapes |= {f"{layer}self_attn.{part}_proj.bias": (width if part == "q" else keys,) for part in "qkv"}
    else:
        shapes |= {
            f"{layer}input_layernorm.weight": (width,), f"{layer}hidden_norm.weight": (width,),
            "norm.weight": (width,), "lm_head.weight": (40, width),
        }  # fmt: skip
        told["draft_vocab_size"] = 40
    weights = {key: torch.randn(shape) * 0.2 for key, shape in shapes.items()}
    if generation == 3:
        drafted = torch.randperm(96)[:40].sort().values
        known = torch.zeros(96, dtype=torch.bool)
        known[drafted] = True
        weights |= {"d2t": drafted - torch.arange(40), "t2d": known}
    return told, weights


def write(folder: Path, told: dict, weights: dict[str, torch.Tensor], pickled: bool = False) -> Path:
    import json

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(told))
    if pickled:
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file(weights, folder / "model.safetensors")
    return folder


def states_of(head: EagleHead, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Every slot at once, nothing cached. [1,T,·], int64 [1,T] → [1,T,H]"""
    count = tokens.shape[1]
    position_ids = torch.arange(count)[None]

    def attend(query, key, value):
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = (query @ key.transpose(2, 3)) / query.shape[-1] ** 0.5
        return scores.masked_fill(~causal_mask(position_ids, count), -torch.inf).softmax(-1) @ value

    return head(head.begin(states), tokens, position_ids, attend)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("generation", [1, 3])
@torch.inference_mode()
def test_published_weights_load_as_they_are(tmp_path, name, generation):
    """Every tensor has its place: the logits are those that a few lines of arithmetic find from the file."""
    target = target_of(name)
    told, weights = published(name, generation, "midlayer." if generation == 3 else "layers.0.")
    head = load_head(write(tmp_path / "head", told, weights), target)
    assert (head.generation, head.covers_all) == (generation, generation == 1)
    aux = AuxHiddenStates(aux_hidden_state_layers(generation, 6))
    tokens = torch.randint(0, 96, (1, 9))
    model = LanguageModel(target)
    model.forward(tokens, model.new_cache(16), aux_hidden_states=aux)
    logits = head.logits(states_of(head, aux.states[:, :-1], tokens[:, 1:]))
    assert logits.shape == (1, 8, 96)
    expected = _by_hand(told, weights, target, generation, aux.states[:, :1], tokens[:, 1:2])
    torch.testing.assert_close(logits[0, 0], expected, atol=2e-4, rtol=1e-3)


def _by_hand(told, weights, target, generation, states, tokens) -> torch.Tensor:
    """The first slot alone, which sees itself: attention is its own value."""
    layer = "midlayer." if generation == 3 else "layers.0."

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + told["rms_norm_eps"]) * weights[name]

    def w(name):
        return weights[f"{layer}{name}.weight"]

    embedding = weights.get("embed_tokens.weight", target.get_input_embeddings().weight)
    e, f = embedding[tokens[0, 0]], states[0, 0]
    if generation == 1:
        x = read = weights["fc.weight"] @ torch.cat([e, f]) + weights.get("fc.bias", 0)
    else:
        x = weights["fc.weight"] @ f
        read = torch.cat([norm(e, f"{layer}input_layernorm.weight"), norm(x, f"{layer}hidden_norm.weight")])
    value = w("self_attn.v_proj") @ read + weights.get(f"{layer}self_attn.v_proj.bias", 0)
    groups = told["num_attention_heads"] // told["num_key_value_heads"]
    x = x + w("self_attn.o_proj") @ value.view(-1, 8).repeat_interleave(groups, 0).flatten()
    h = norm(x, f"{layer}post_attention_layernorm.weight")
    x = x + w("mlp.down_proj") @ (torch.nn.functional.silu(w("mlp.gate_proj") @ h) * (w("mlp.up_proj") @ h))
    if generation == 1:
        return target.get_output_embeddings().weight @ x
    logits = torch.full((96,), -torch.inf)
    logits[torch.arange(40) + weights["d2t"]] = weights["lm_head.weight"] @ norm(x, "norm.weight")
    return logits


@torch.inference_mode()
def test_fused_names_and_pickled_tensors_are_the_same_head(tmp_path):
    target = target_of("llama-3")
    told, weights = published("llama-3", 1)
    plain = load_head(write(tmp_path / "plain", told, weights), target)
    assert _same(plain, load_head(write(tmp_path / "pickled", told, weights, pickled=True), target))
    fused = dict(weights)
    parts = [fused.pop(f"layers.0.self_attn.{part}_proj.weight") for part in "qkv"]
    fused["layers.0.self_attn.qkv_proj.weight"] = torch.cat(parts)
    gates = [fused.pop(f"layers.0.mlp.{part}_proj.weight") for part in ("gate", "up")]
    fused["layers.0.mlp.gate_up_proj.weight"] = torch.cat(gates)
    assert _same(plain, load_head(write(tmp_path / "fused", told, fused), target))


def _same(one: EagleHead, other: EagleHead) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def test_code_in_a_pickle_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    told, weights = published("llama-3", 1)
    write(tmp_path / "head", told, weights | {"evil": Evil()}, pickled=True)
    with pytest.raises(ModelUnavailable, match="UnpicklingError"):
        load_head(tmp_path / "head", target_of("llama-3"))
    assert not (tmp_path / "ran").exists()


def test_heads_of_other_targets_and_broken_ones_are_refused(tmp_path):
    target = target_of("llama-3")
    told, weights = published("llama-3", 1)
    wide = weights | {"fc.weight": torch.randn(32, 128)}
    with pytest.raises(IncompatibleModels, match="states of width 64"):
        load_head(write(tmp_path / "wide", told, wide), target)
    with pytest.raises(IncompatibleModels, match="knows 95 tokens, and the target 96"):
        load_head(write(tmp_path / "few", told, weights | {"embed_tokens.weight": torch.randn(95, 32)}), target)
    told3, weights3 = published("llama-3", 3)
    with pytest.raises(IncompatibleModels, match="was trained for 95 tokens"):
        load_head(write(tmp_path / "t2d", told3, weights3 | {"t2d": weights3["t2d"][:95]}), target)
    for change in ({"fc.weight": None}, {"layers.0.mlp.up_proj.weight": None}, {"other": torch.zeros(1)}):
        broken = {name: value for name, value in (weights | change).items() if value is not None}
        with pytest.raises(ModelUnavailable, match="cannot be loaded"):
            load_head(write(tmp_path / "broken", told, broken), target)
    with pytest.raises(ModelUnavailable):
        load_head(tmp_path / "nowhere", target)


@pytest.mark.parametrize("generation", [1, 3])
@torch.inference_mode()
def test_a_saved_head_is_the_head_in_bfloat16(tmp_path, generation):
    target = toy_model(40, seed=1, layers=4)
    told = torch.tensor([0, 3, 4, 9, 39])
    head = new_head(target, generation, told, tail_mass=0.1)
    save_head(head, tmp_path, {"rest_share": 0.1})
    stored = load_file(tmp_path / "model.safetensors")
    assert ("midlayer.mlp.up_proj.weight" in stored) == (generation == 3)
    assert "lm_head.weight" not in stored  # the target lends it
    again = load_head(tmp_path, target)
    assert (again.covers_all, again.lm_head.tokens.tolist()) == (True, told.tolist())
    states, tokens = torch.randn(1, 5, 32 * (1 if generation == 1 else 3)), torch.randint(0, 40, (1, 5))
    ours, theirs = (h.logits(states_of(h, states, tokens)).softmax(-1) for h in (head.eval(), again))
    torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0.1)
    others = [x for x in range(40) if x not in told]
    torch.testing.assert_close(theirs[..., others].sum(-1), torch.full((1, 5), 0.1))


@pytest.mark.parametrize("generation", [1, 3])
@torch.inference_mode()
def test_it_drafts_as_it_was_taught(generation):
    """What the drafter answers behind a text, step by step, are the states of the training's unrolled steps."""
    module = toy_model(40, seed=2, layers=4)
    head, model = toy_head(module, generation, seed=4), LanguageModel(module)
    text, steps = torch.randint(0, 40, (1, 14)), 4
    known = 14 - steps  # of the target's states
    drafter = EagleProposer(head, 4, SamplingConfig(temperature=1.0), 64, 40)
    drafter.begin_row(0, text[:, :0])
    assert drafter.begin(text, [text[0, : known + 1].tolist()]) is None
    model.forward(text[:, :known], model.new_cache(64), aux_hidden_states=drafter.aux_hidden_states)
    states = drafter.aux_hidden_states.states.clone()
    drafter.commit([known])
    drafted = [drafter.begin(text, [text[0, : known + 1].tolist()])]
    drafted += [drafter.extend(text[:, known + 1 + i]) for i in range(steps - 1)]

    nothing, every = torch.zeros(0), torch.ones(1, 13, dtype=torch.bool)
    batch = TrainingBatch(text[:, 1:], torch.cat([states, states[:, :3]], 1), states, every, nothing, nothing)
    lessons = HeadLoss(head, steps, 0.0, 1.0).eval()
    for step, (row, unrolled) in enumerate(zip(drafted, lessons.unroll(batch, steps), strict=True)):
        assert row is not None
        expected = head.logits(unrolled[0, known - 1 + step]).softmax(-1)
        torch.testing.assert_close(row.raw[0], expected, atol=1e-4, rtol=1e-3)


@torch.inference_mode()
def test_a_tree_of_one_way_is_a_chain_and_siblings_do_not_see_each_other():
    module = toy_model(40, seed=2, layers=4)
    head, model = toy_head(module, 3, seed=4), LanguageModel(module)
    text = torch.randint(0, 40, (1, 8))

    def begun() -> EagleProposer:
        drafter = EagleProposer(head, 4, SamplingConfig(temperature=1.0), 64, 40)
        drafter.begin_row(0, text[:, :0])
        drafter.begin(text, [text[0].tolist()])
        model.forward(text[:, :7], model.new_cache(64), aux_hidden_states=drafter.aux_hidden_states)
        drafter.commit([7])
        assert drafter.begin(text, [text[0].tolist()]) is not None
        return drafter

    chain, tree = begun(), begun()
    alone = [chain.extend(torch.tensor([x])).raw for x in (5, 6)]
    first = tree.extend_level(torch.tensor([[9, 5]]), torch.tensor([-1, -1])).raw
    second = tree.extend_level(torch.tensor([[6, 7, 6]]), torch.tensor([1, 1, 0])).raw
    torch.testing.assert_close(first[1:], alone[0])
    torch.testing.assert_close(second[:1], alone[1])
    assert (second[2] - second[0]).abs().max() > 1e-4


def test_a_real_target_lends_its_embedding(tmp_path):
    target = toy_model(40, seed=1, layers=4)
    target.save_pretrained(tmp_path / "target")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    head = new_head(again, 1)
    assert head.embedding.data_ptr() == again.get_input_embeddings().weight.data_ptr()
    assert head.lm_head.weight.data_ptr() == again.get_output_embeddings().weight.data_ptr()
