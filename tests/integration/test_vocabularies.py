"""A draft with fewer, as many and more tokens than its target, through each door: the target's texts are its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

import fsd_core
from fsd_core.config import DecodingConfig, FuzzyReducible
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.loop import compose
from fsd_core.errors import IncompatibleOptions
from fsd_core.models.loading import ModelSet, over_one_vocabulary
from fsd_core.testing import related, toy_model, toy_tokenizer
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
