"""EAGLE heads in every published layout: what is drafted from them, and which are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DynamicTreeTopology,
    EagleDrafter,
    SamplingConfig,
    Speculative,
)
from fsd_core.drafters import EagleProposer
from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.caches import causal_mask
from fsd_core.models.draft_weights import EagleHead, aux_hidden_state_layers
from fsd_core.models.eagle_files import load_head, new_head, read_head, save_head
from fsd_core.models.forward import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.testing import open_session, toy_head, toy_model, written
from fsd_plugins.training.eagle_head import HeadLoss, TrainingBatch
from tests.tools.eagle_layouts import EAGLE_3, LAYERS, LAYOUTS, VOCABULARY, WIDTH, Layout, speculators
from tests.tools.eagle_layouts import write as write_layout
from tests.tools.sizes import some

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


TEXT, DRAFT = [3, 17, 9, 30, 1, 22, 5], [8, 31]


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return toy_model(VOCABULARY, seed=1, layers=LAYERS)


def drafted(head: EagleHead, target: LlamaForCausalLM) -> list[Tensor]:
    """What our drafter proposes behind the text and behind each token of the draft: [V] each."""
    model = LanguageModel(target)
    drafter = EagleProposer(head, LAYERS, SamplingConfig(temperature=1.0), 64, VOCABULARY)
    text = torch.tensor([TEXT])
    drafter.begin_row(0, text[:, :0])
    assert drafter.begin(text, [TEXT]) is None
    model.forward(text[:, :-1], model.new_cache(64), aux_hidden_states=drafter.aux_hidden_states)
    drafter.commit([len(TEXT) - 1])
    rows = [drafter.begin(text, [TEXT]), *(drafter.extend(torch.tensor([token])) for token in DRAFT)]
    return [row.raw[0] for row in rows if row is not None]


def by_hand(layout: Layout, target: LlamaForCausalLM) -> list[Tensor]:
    """The same from transformers' hidden states, of which state i is the input of layer i."""
    states = target.model(torch.tensor([TEXT[:-1]]), output_hidden_states=True).hidden_states
    assert states is not None
    read = torch.cat([states[i][0] for i in layout.inputs], -1)
    embedding, lm_head = target.model.embed_tokens.weight, target.lm_head.weight
    return layout.distributions(layout.weights(), read, embedding, lm_head, TEXT[1:] + DRAFT)


def differ(one: list[Tensor], other: list[Tensor]) -> float:
    """The least total variation between two drafts' distributions."""
    return min(float((p - q).abs().sum() / 2) for p, q in zip(one, other, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@torch.inference_mode()
def test_it_drafts_what_plain_torch_finds(tmp_path: Path, target: LlamaForCausalLM, layout: Layout) -> None:
    found = drafted(load_head(layout.write(tmp_path), target), target)
    assert len(found) == 1 + len(DRAFT)
    for ours, theirs in zip(found, by_hand(layout, target), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("layout", [x for x in LAYOUTS.values() if x.generation == 3])
@torch.inference_mode()
def test_other_states_or_another_residual_would_show(tmp_path: Path, target: LlamaForCausalLM, layout: Layout) -> None:
    """The comparison above can fail: layers one off, or a norm elsewhere, give clearly other drafts."""
    found = drafted(load_head(layout.write(tmp_path), target), target)
    for change in (-1, 1):
        shifted = replace(layout, inputs=tuple(min(max(i + change, 0), LAYERS - 1) for i in layout.inputs))
        assert differ(found, by_hand(shifted, target)) > 0.01
    assert differ(found, by_hand(replace(layout, norm_before_residual=not layout.norm_before_residual), target)) > 0.01
    other = by_hand(replace(layout, norm_output=not layout.norm_output), target)
    assert differ(found[1:], other[1:]) > 0.01


@pytest.mark.parametrize("name", some(LAYOUTS, "eagle-3", "vllm", "speculators"))
@torch.inference_mode()
def test_greedy_text_is_the_targets_and_a_saved_copy_drafts_the_same(
    tmp_path: Path, target: LlamaForCausalLM, name: str
) -> None:
    """Round by round, the head as published and as we save it draft and keep the same tokens."""
    LAYOUTS[name].write(tmp_path / "published")
    save_head(read_head(tmp_path / "published", target), tmp_path / "saved", {})
    heads = [load_head(tmp_path / folder, target) for folder in ("published", "saved")]
    assert heads[0].variant == heads[1].variant
    model = LanguageModel(target)
    alone = written(model, model, DecodingConfig(acceptance=Autoregressive(), max_new_tokens=24), TEXT, ends=False)
    for shape in (ChainTopology(length=3), DynamicTreeTopology(top_k=3, length=3, total_tokens=10)):
        config = DecodingConfig(acceptance=Speculative(), drafter=EagleDrafter(), topology=shape, max_new_tokens=24)
        rounds = []
        for head in heads:
            session = open_session(model, None, config, TEXT, 0, frozenset(), head)
            rounds.append([])
            while session.stop_reason is None:
                record = session.run_round()
                rounds[-1].append((record.drafted, record.accepted))
            assert session.history[len(TEXT) :] == alone
        assert rounds[0] == rounds[1]
        assert sum(len(tokens) for tokens, _ in rounds[0]) > 24


MROPE = {"type": "mrope", "mrope_section": [1, 1, 2]}


@pytest.mark.parametrize(
    "change",
    [
        {"max_position_embeddings": 4},
        {"target_model_type": "qwen3_moe"},
        {"decoder_sparse_step": 1},
        {"model_type": "phi3"},
        {"additional_fc": False, "reuse_target_lm_head": True},
        {"rope_scaling": MROPE},
        {"rope_scaling": {"mrope_section": [1, 1, 2], "mrope_interleaved": True}},
    ],
    ids=lambda change: ",".join(change),
)
@torch.inference_mode()
def test_what_changes_nothing_changes_nothing(
    tmp_path: Path, target: LlamaForCausalLM, change: dict[str, object]
) -> None:
    """Positions beyond those of training, as published heads name 2,048, and keys about the target, of SpecForge."""
    layout = LAYOUTS["eagle-3"]
    layout = replace(layout, config=layout.config | change)
    found = drafted(load_head(layout.write(tmp_path), target), target)
    assert differ(found, by_hand(layout, target)) < 1e-5


def test_a_head_reads_the_text_model_of_a_composite_target(tmp_path: Path) -> None:
    text = {
        "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
        "initializer_range": 0.15, "eos_token_id": None, "bos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    vision |= {"image_size": 8, "patch_size": 4}
    torch.manual_seed(0)
    composite = Gemma3ForConditionalGeneration(Gemma3Config(text_config=text, vision_config=vision))
    LAYOUTS["eagle-3"].write(tmp_path)
    head, model = load_head(tmp_path, composite), LanguageModel(composite)
    config = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=8)
    alone = written(model, model, config, TEXT, ends=False)
    config = DecodingConfig(acceptance=Speculative(), drafter=EagleDrafter(), max_new_tokens=8)
    session = open_session(model, None, config, TEXT, 0, frozenset(), head)
    drafts = []
    while session.stop_reason is None:
        drafts += session.run_round().drafted
    assert session.history[len(TEXT) :] == alone
    assert drafts


IDS, OWN = "eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layers"
SPECULATORS = speculators("eagle3", draft_vocab_size=24, norm_before_residual=True)
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}


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
        load_head(write_layout(folder / "head", config, weights), target)
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
        write_layout(folder, EAGLE_3 | {OWN: ids}, tensors)
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
    assert load_head(write_layout(tmp_path, EAGLE_3 | harmless, tensors), target).generation == 3


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
