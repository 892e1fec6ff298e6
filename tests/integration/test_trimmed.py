"""A draft on its target's embedding: the head over some tokens, its files, and decoding with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from fsd_core.config import ChainTopology, DecodingConfig, FuzzyOfficial, SamplingConfig, Speculative
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models import draft_weights
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import load_pair, make_pair
from fsd_core.testing import save_toy_pair, toy_model, toy_pair, toy_tokenizer

V, K, REST = len(toy_tokenizer()), 60, 0.02
TOKENS = torch.arange(0, V, 4)[:K].contiguous()


def sharing(target: LlamaForCausalLM) -> LlamaForCausalLM:
    """A draft of the target's first layer."""
    draft = draft_weights.assemble(draft_weights.draft_config(target, "Toy/target", 1, K, REST), target, TOKENS)
    draft.model.layers[0].load_state_dict(target.model.layers[0].state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    return draft.eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pair whose draft lives on the embedding of its target."""
    save_toy_pair(tmp_path)
    target = LlamaForCausalLM.from_pretrained(tmp_path / "target")
    for file in (tmp_path / "draft").iterdir():
        file.unlink()
    draft_weights.save(sharing(target), tmp_path / "draft")
    return tmp_path


def test_the_others_share_the_rest_evenly() -> None:
    head = draft_weights.ReducedHead(torch.randn(K, 8), TOKENS, V, REST)
    hidden = torch.randn(2, 3, 8)
    q = head(hidden).softmax(-1)
    known = torch.zeros(V, dtype=torch.bool).index_fill(0, TOKENS, True)
    torch.testing.assert_close(q[..., ~known], torch.full((2, 3, V - K), REST / (V - K)))
    torch.testing.assert_close(q[..., known], (1 - REST) * head.reduced_logits(hidden).softmax(-1))


def test_a_head_over_all_tokens_is_the_whole_head() -> None:
    weight, hidden = torch.randn(V, 8), torch.randn(1, 4, 8)
    head = draft_weights.ReducedHead(weight, torch.arange(V), V, 0.01)
    torch.testing.assert_close(head(hidden), hidden @ weight.T)


def test_the_draft_holds_no_copy_of_the_embedding() -> None:
    target = toy_model(V, seed=0)
    draft = sharing(target)
    assert draft.get_input_embeddings().weight.data_ptr() == target.get_input_embeddings().weight.data_ptr()


@torch.inference_mode()
def test_the_lean_forward_is_that_of_transformers() -> None:
    draft = sharing(toy_model(V, seed=0))
    tokens = torch.randint(V, (1, 12), generator=torch.Generator().manual_seed(0))
    theirs = draft(tokens).logits
    for lean in (True, False):
        model = LanguageModel(draft, lean=lean)
        torch.testing.assert_close(model.forward(tokens, model.new_cache(12)), theirs, atol=1e-4, rtol=1e-4)


def test_what_is_saved_comes_back(folder: Path) -> None:
    pair = load_pair(f"path:{folder}", device="cpu")
    assert pair.target.vocabulary == pair.draft.vocabulary == V
    ours = sharing(toy_pair().target.module)
    tokens = torch.arange(20)[None]
    torch.testing.assert_close(pair.draft.module(tokens).logits, ours(tokens).logits, atol=0.3, rtol=0.05)  # bfloat16
    assert (folder / "draft" / "model.safetensors").stat().st_size < (
        folder / "target" / "model.safetensors"
    ).stat().st_size


def test_greedy_sd_with_it_is_the_greedy_target(folder: Path) -> None:
    pair = load_pair(f"path:{folder}", device="cpu")
    prompt = pair.tokenizer("Nine hens lay seven eggs each day.")["input_ids"]
    theirs = pair.target.module.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False)[0, len(prompt) :]
    config = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=4), max_new_tokens=40)
    assert PairDecoder(pair, config).generate(prompt, seed=0).tokens == theirs.tolist()


def test_every_divergence_is_finite_with_it(folder: Path) -> None:
    """Of a head that gave the other tokens nothing, ``ag`` would be infinite everywhere, and nothing lenient kept."""
    decoder = PairDecoder(
        load_pair(f"path:{folder}", device="cpu"),
        DecodingConfig(
            acceptance=FuzzyOfficial(threshold=50.0), sampling=SamplingConfig(temperature=1.0), max_new_tokens=20
        ),
    )
    generation = decoder.generate(decoder.prompt_ids("Why is it so?"), seed=0)
    assert all(value < 50 for record in generation.records for value in record.divergence)
    assert "lenient" in {kind for record in generation.records for kind in record.kinds}


def test_a_target_of_another_width_is_refused(folder: Path) -> None:
    toy_model(V, seed=0, hidden=64).save_pretrained(folder / "target")
    with pytest.raises(IncompatibleModels, match="hidden_size"):
        load_pair(f"path:{folder}")


@pytest.mark.parametrize("damage", ["truncated", "absent", "other names", "config"])
def test_broken_files_are_refused(folder: Path, damage: str) -> None:
    weights, config = folder / "draft" / "model.safetensors", folder / "draft" / "config.json"
    match damage:
        case "truncated":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "absent":
            weights.unlink()
        case "other names":
            weights.write_bytes(weights.read_bytes().replace(b"mlp.down_proj", b"mlp.down_porj"))
        case "config":
            config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 2}))
    with pytest.raises(ModelUnavailable, match="cannot be loaded"):
        load_pair(f"path:{folder}")


def test_a_pair_of_the_same_widths_needs_nothing_lent() -> None:
    assert draft_weights.owner_of(Path("nowhere")) is None
    pair = make_pair(toy_pair().spec, toy_tokenizer(), toy_model(V, seed=0), sharing(toy_model(V, seed=0)))
    assert pair.draft.vocabulary == V
