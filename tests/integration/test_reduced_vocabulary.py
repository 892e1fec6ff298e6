"""Drafts over fewer or more tokens than their target: files, heads, and the target's own texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

import fsd_core
from fsd_core.config import ChainTopology, DecodingConfig, FuzzyOfficial, FuzzyReducible, SamplingConfig, Speculative
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.loop import compose
from fsd_core.errors import IncompatibleModels, IncompatibleOptions, ModelUnavailable
from fsd_core.models import draft_weights
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet, load_pair, make_pair, over_one_vocabulary
from fsd_core.testing import related, save_toy_pair, toy_model, toy_pair, toy_tokenizer
from fsd_core.worker.device import PairCache

PROMPT = "Hello there, hello"
PADDED, KNOWN, LONGEST = 270, 258, 12
"""logits of the target, tokens of its tokenizer, and of a text at most"""
END = KNOWN - 1
DRAFTS = [257, KNOWN, PADDED, 290]


def target_that_writes_late_ids() -> LlamaForCausalLM:
    """Its likeliest tokens are among its last, which no tokenizer has to know, and its fifth ends the text."""
    model, prompt = toy_model(PADDED, seed=0), torch.tensor([toy_tokenizer()(PROMPT)["input_ids"]])
    head = model.lm_head.weight.data
    head[KNOWN:] = 2.5 * head[: PADDED - KNOWN]
    for config in (model.generation_config, model.config):
        config.eos_token_id = None
    with torch.no_grad():
        text = model.generate(prompt, max_new_tokens=5, do_sample=False)
        head[END] = 1.1 * head[int(text[0, -1])]
    for config in (model.generation_config, model.config):
        config.eos_token_id = END
    return model


def draft_of(target: LlamaForCausalLM, size: int) -> LlamaForCausalLM:
    draft = related(target, 0.1, seed=1)
    draft.resize_token_embeddings(size)
    for config in (draft.generation_config, draft.config):
        config.eos_token_id = config.pad_token_id = None
    return draft


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return target_that_writes_late_ids()


@pytest.fixture(scope="module")
def expected(target: LlamaForCausalLM) -> list[int]:
    """What transformers writes."""
    prompt = torch.tensor([toy_tokenizer()(PROMPT)["input_ids"]])
    tokens = target.generate(prompt, max_new_tokens=LONGEST, do_sample=False)[0, prompt.shape[1] :].tolist()
    assert len(tokens) < LONGEST
    assert tokens[-1] == END < max(tokens)
    return tokens


@pytest.fixture(params=DRAFTS)
def folder(request: pytest.FixtureRequest, target: LlamaForCausalLM, tmp_path: Path) -> Path:
    for role, model in (("target", target), ("draft", draft_of(target, request.param))):
        tokenizer = toy_tokenizer()
        if role == "target" or request.param >= KNOWN:
            tokenizer.add_tokens(["<end of turn>"])
        model.save_pretrained(tmp_path / role)
        tokenizer.save_pretrained(tmp_path / role)
    return tmp_path


@pytest.mark.parametrize("acceptance", ["speculative", pytest.param("autoregressive", marks=pytest.mark.wide)])
def test_each_door_writes_what_transformers_writes(
    folder: Path, expected: list[int], acceptance: str, call: Callable[..., tuple[int, str, str]]
) -> None:
    name, options = f"path:{folder}", {"acceptance": acceptance, "max_new_tokens": LONGEST}
    library = fsd_core.Decoder(fsd_core.load_pair(name, device="cpu"), **options).generate(PROMPT)
    assert (list(library.tokens), library.stop_reason) == (expected, "eos")

    pair = PairCache("cpu")(name)  # of the worker, for pages and runs
    worker = PairDecoder(pair, fsd_core.DecodingConfig.model_validate(options | {"acceptance": {"kind": acceptance}}))
    assert worker.generate(worker.prompt_ids(PROMPT), seed=0).tokens == expected

    module = type(pair.target.module).from_pretrained(folder / "target")
    inside = module.generate(
        **pair.inputs(PROMPT), custom_generate=fsd_core.generate, acceptance=acceptance, do_sample=False,
        max_new_tokens=LONGEST, draft_model=type(module).from_pretrained(folder / "draft"),
    )  # fmt: skip
    assert inside[0, -len(expected) :].tolist() == expected

    status, out, _ = call(
        "generate", PROMPT, "--pair", name, "--acceptance", acceptance, "--max-new-tokens", str(LONGEST), "--json"
    )
    assert (status, json.loads(out)["tokens"], json.loads(out)["text"]) == (0, len(expected), library.text)


@pytest.mark.parametrize("size", DRAFTS)
def test_what_one_of_the_two_lacks_is_not_drafted(target: LlamaForCausalLM, size: int) -> None:
    writer, draft = over_one_vocabulary(target, draft_of(target, size))
    assert draft is not None
    tokens = torch.tensor([[1, 2, END, PADDED - 1]])
    p = writer.forward(tokens, writer.new_cache(4))
    q = draft.forward(tokens, draft.new_cache(4)).softmax(-1)
    torch.testing.assert_close(p, target(tokens).logits)
    assert q.shape == p.shape
    torch.testing.assert_close(q.sum(-1), torch.ones(1, 4))
    assert bool((q[..., size:] == 0).all())
    assert draft.covers_all == (size >= PADDED)


@pytest.mark.parametrize("divergence", ["ag", "reverse-kl"])
def test_a_divergence_that_is_infinite_without_them_is_refused(target: LlamaForCausalLM, divergence: str) -> None:
    config = DecodingConfig(acceptance=FuzzyReducible(divergence=divergence, threshold=0.2))
    for size in DRAFTS:
        models = ModelSet(*over_one_vocabulary(target, draft_of(target, size)))
        if size < PADDED:
            with pytest.raises(IncompatibleOptions, match=f"top-k-{divergence}"):
                compose(models, config)
        else:
            compose(models, config)


V, K, REST = len(toy_tokenizer()), 60, 0.02
TOKENS = torch.arange(0, V, 4)[:K].contiguous()


def sharing(target: LlamaForCausalLM) -> LlamaForCausalLM:
    """A draft of the target's first layer."""
    draft = draft_weights.assemble(draft_weights.draft_config(target, "Toy/target", 1, K, REST), target, TOKENS)
    draft.model.layers[0].load_state_dict(target.model.layers[0].state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    return draft.eval()


@pytest.fixture
def trimmed_folder(tmp_path: Path) -> Path:
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


def test_what_is_saved_comes_back(trimmed_folder: Path) -> None:
    pair = load_pair(f"path:{trimmed_folder}", device="cpu")
    assert pair.target.vocabulary == pair.draft.vocabulary == V
    ours = sharing(toy_pair().target.module)
    tokens = torch.arange(20)[None]
    torch.testing.assert_close(pair.draft.module(tokens).logits, ours(tokens).logits, atol=0.3, rtol=0.05)  # bfloat16
    assert (trimmed_folder / "draft" / "model.safetensors").stat().st_size < (
        trimmed_folder / "target" / "model.safetensors"
    ).stat().st_size


def test_greedy_sd_with_it_is_the_greedy_target(trimmed_folder: Path) -> None:
    pair = load_pair(f"path:{trimmed_folder}", device="cpu")
    prompt = pair.tokenizer("Nine hens lay seven eggs each day.")["input_ids"]
    theirs = pair.target.module.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False)[0, len(prompt) :]
    config = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=4), max_new_tokens=40)
    assert PairDecoder(pair, config).generate(prompt, seed=0).tokens == theirs.tolist()


def test_every_divergence_is_finite_with_it(trimmed_folder: Path) -> None:
    """Of a head that gave the other tokens nothing, ``ag`` would be infinite everywhere, and nothing lenient kept."""
    decoder = PairDecoder(
        load_pair(f"path:{trimmed_folder}", device="cpu"),
        DecodingConfig(
            acceptance=FuzzyOfficial(threshold=50.0), sampling=SamplingConfig(temperature=1.0), max_new_tokens=20
        ),
    )
    generation = decoder.generate(decoder.prompt_ids("Why is it so?"), seed=0)
    assert all(value < 50 for record in generation.records for value in record.divergence)
    assert "lenient" in {kind for record in generation.records for kind in record.kinds}


def test_a_target_of_another_width_is_refused(trimmed_folder: Path) -> None:
    toy_model(V, seed=0, hidden=64).save_pretrained(trimmed_folder / "target")
    with pytest.raises(IncompatibleModels, match="hidden_size"):
        load_pair(f"path:{trimmed_folder}")


@pytest.mark.parametrize("damage", ["truncated", "absent", "other names", "config"])
def test_broken_files_are_refused(trimmed_folder: Path, damage: str) -> None:
    weights, config = trimmed_folder / "draft" / "model.safetensors", trimmed_folder / "draft" / "config.json"
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
        load_pair(f"path:{trimmed_folder}")


def test_a_pair_of_the_same_widths_needs_nothing_lent() -> None:
    assert draft_weights.owner_of(Path("nowhere")) is None
    pair = make_pair(toy_pair().spec, toy_tokenizer(), toy_model(V, seed=0), sharing(toy_model(V, seed=0)))
    assert pair.draft.vocabulary == V
