"""EAGLE heads in every published layout draft what plain torch finds from the file and from transformers' states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, LlamaForCausalLM

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
from fsd_core.models.draft_weights import EagleHead
from fsd_core.models.eagle_files import load_head, read_head, save_head
from fsd_core.models.language_model import LanguageModel
from fsd_core.testing import open_session, toy_model, written
from tests.tools.eagle_layouts import LAYERS, LAYOUTS, VOCABULARY, WIDTH, Layout
from tests.tools.sizes import some

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
