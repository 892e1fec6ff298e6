"""A model's limits: its context, its numbers, the tokens that end it, and what a short forward takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from fsd_core.config import (
    AcceptanceConfig,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftOnly,
    DynamicTreeTopology,
    FuzzyReducible,
    MultiDraftTopology,
    SamplingConfig,
    Speculative,
    TopologySettings,
)
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.errors import PromptTooLong
from fsd_core.evaluation.harness import run_examples
from fsd_core.models.forwards import FusedLlama
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair, make_pair
from fsd_core.models.sources import context
from fsd_core.ops.kernels import prepack_linear
from fsd_core.rules.several import RecursiveRejection
from fsd_core.tasks import get_task
from fsd_core.testing import TOY, related, toy_model, toy_pair, toy_tokenizer
from tests.tools.toy_families import PROMPT, SIZE, pair_of, toy_family

BORDER = 48
LONG = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": BORDER,
    "short_factor": [1.0] * 4, "long_factor": [6.0, 5.0, 4.0, 3.0],
}  # fmt: skip


def model_of(rope: dict[str, Any], **size: Any) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**(SIZE | size), rope_parameters=dict(rope))).eval()


@pytest.mark.parametrize(
    ("rope", "size"),
    [
        (LONG, {}),
        ({"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}, {"max_position_embeddings": BORDER}),
    ],
    ids=["longrope", "dynamic"],
)
@pytest.mark.parametrize("acceptance", [Autoregressive(), Speculative()])
def test_a_text_is_the_targets_own_up_to_the_border_and_ends_there(
    rope: dict[str, Any], size: dict[str, int], acceptance: AcceptanceConfig
) -> None:
    model = model_of(rope, **size)
    pair = pair_of(model, noise=0.02)
    prompt = pair.tokenizer(PROMPT)["input_ids"]
    room = BORDER - len(prompt)
    expected: list[int] = []
    with torch.no_grad():
        while len(expected) < room:  # without a cache
            logits = model(input_ids=torch.tensor([prompt + expected]), use_cache=False).logits
            expected.append(int(logits[0, -1].argmax()))
    config = DecodingConfig(acceptance=acceptance, topology=ChainTopology(length=4), max_new_tokens=100)
    text = PairDecoder(pair, config).generate(prompt, seed=0)
    assert (text.tokens, text.stop_reason) == (expected, "context")
    with pytest.raises(PromptTooLong, match=f"context holds {BORDER}"):
        PairDecoder(pair, config).generate(prompt + expected, seed=0)


YARN = {"rope_theta": 10_000.0, "factor": 4.0}
TWO_KINDS = {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rope_parameters": YARN | {"rope_type": "yarn", "original_max_position_embeddings": 48}}, 256),
        ({"rope_parameters": YARN | {"rope_type": "yarn", "original_max_position_embeddings": 256}}, 1024),
        ({"rope_scaling": YARN | {"type": "yarn", "original_max_position_embeddings": 64}}, 256),
        ({"rope_scaling": YARN | {"type": "yarn"}}, 1024),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 1024),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, 512),
        ({"rope_parameters": TWO_KINDS}, 256),  # Gemma 3, whose positions count the factor in
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}}, 256),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 8e6}, "model_max_length": 4096}, 4096),  # Command R
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, 256),
        ({"rope_scaling": {"type": "su", "factor": 4.0}, "original_max_position_embeddings": 48}, 48),
        ({"model_max_length": 4096}, 256),  # learned positions have no rows beyond
        ({"rope_scaling": [1], "text_config": None}, 256),
        ({"rope_scaling": {"type": "linear", "factor": "four"}}, 256),
    ],
)
def test_the_context_is_what_frequencies_reach(fields: dict[str, Any], expected: int) -> None:
    assert context({"max_position_embeddings": 256} | fields) == expected
    assert context({"text_config": {"max_position_embeddings": 256} | fields}) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0}},
        {"rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": BORDER}},
        {"model_max_length": 4 * BORDER},
    ],
    ids=["linear", "yarn", "linear as before", "yarn as before", "longer than in training"],
)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_text_beyond_the_positions_of_training_is_what_transformers_writes(
    family: str, fields: dict[str, Any]
) -> None:
    model = toy_family(family, max_position_embeddings=BORDER, eos_token_id=[], **fields)
    pair = pair_of(model, noise=0.02)
    prompt = pair.tokenizer(PROMPT * 3)["input_ids"]
    assert len(prompt) > 2 * BORDER
    room = 4 * BORDER - len(prompt)
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=room, do_sample=False)[0, len(prompt) :].tolist()
    for acceptance in (Autoregressive(), Speculative()):
        config = DecodingConfig(acceptance=acceptance, topology=ChainTopology(length=4), max_new_tokens=room + 9)
        text = PairDecoder(pair, config).generate(prompt, seed=0)
        assert (text.tokens, text.stop_reason) == (expected, "context")


TASK = get_task("arithmetic")


@pytest.fixture
def pair_without_numbers() -> LoadedPair:
    return toy_pair()


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("acceptance", "broken"),
    [
        (Speculative(), "target"), (Autoregressive(), "target"), (FuzzyReducible(threshold=0.1), "target"),
        (Speculative(), "draft"), (FuzzyReducible(threshold=0.1), "draft"), (DraftOnly(), "draft"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_model_is_named(
    pair_without_numbers: LoadedPair,
    acceptance: AcceptanceConfig,
    broken: str,
    temperature: float,
    rows: int,
    value: float,
) -> None:
    with torch.no_grad():
        getattr(pair_without_numbers, broken).module.model.norm.weight[0] = value
    sampling = SamplingConfig(temperature=temperature)
    config = DecodingConfig(
        acceptance=acceptance, topology=ChainTopology(length=3), sampling=sampling, max_new_tokens=8
    )
    records = list(
        run_examples(PairDecoder(pair_without_numbers, config), TASK, dict(enumerate(TASK.examples(2))), 0, rows)
    )
    assert [record.outcome for record in records] == ["failed"] * 2
    assert str(records[0].error).startswith(f"The {broken} model computes values that are not numbers")


END_PROMPT = "Hello there, hello"


@contextmanager
def ending(model: LanguageModel, token: int) -> Iterator[None]:
    """The model's texts end with another token meanwhile."""
    config = model.module.generation_config
    former, config.eos_token_id = config.eos_token_id, token
    try:
        yield
    finally:
        config.eos_token_id = former


def decode(pair: LoadedPair, acceptance: AcceptanceConfig) -> tuple[list[int], str]:
    decoder = PairDecoder(
        pair, DecodingConfig(acceptance=acceptance, topology=ChainTopology(length=4), max_new_tokens=12)
    )
    text = decoder.generate(decoder.prompt_ids(END_PROMPT), 0)
    return text.tokens, text.stop_reason


@pytest.mark.parametrize("acceptance", [Speculative(), Autoregressive(), FuzzyReducible(threshold=0.05)])
def test_a_draft_does_not_end_the_text_of_the_target(pair: LoadedPair, acceptance: AcceptanceConfig) -> None:
    text = decode(pair, acceptance)
    with ending(pair.draft, text[0][3]):
        assert decode(pair, acceptance) == text
    with ending(pair.target, text[0][3]):
        assert decode(pair, acceptance) == (text[0][: text[0].index(text[0][3]) + 1], "eos")


def test_a_draft_that_writes_alone_ends_its_own_text(pair: LoadedPair) -> None:
    text, _ = decode(pair, DraftOnly())
    with ending(pair.target, text[0]):
        assert decode(pair, DraftOnly())[0] == text
    with ending(pair.draft, text[0]):
        assert decode(pair, DraftOnly()) == (text[:1], "eos")


SHORT, SHORT_LONG = 48, 96
PROMPTS = ("Nine hens lay seven eggs.", "Nine hens.", "Nine hens lay seven eggs each day, and each of them is sold.")


@pytest.fixture(scope="module")
def short_pair() -> LoadedPair:
    """The last prompt alone is longer than the context of the draft."""
    tokenizer = toy_tokenizer()
    target = toy_model(len(tokenizer), 0, context=SHORT_LONG)
    target.generation_config.eos_token_id = None
    draft = related(target, 0.02, 1)
    draft.config.max_position_embeddings = SHORT
    return make_pair(TOY, tokenizer, target, draft)


def decoded(
    pair: LoadedPair, rows: int, acceptance: AcceptanceConfig, topology: TopologySettings
) -> list[GeneratedText]:
    config = DecodingConfig(acceptance=acceptance, topology=topology, max_new_tokens=200)
    decoder = PairDecoder(pair, config)
    decoder.eos = frozenset()
    prompts = [decoder.prompt_ids(prompt) for prompt in PROMPTS]
    found = dict(decoder.generate_all(prompts, [0] * len(prompts), rows))
    return [found[index] for index in range(len(prompts))]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_texts_fill_the_context_of_the_target(short_pair: LoadedPair, rows: int) -> None:
    plain = decoded(short_pair, rows, Autoregressive(), ChainTopology(length=4))
    texts = decoded(short_pair, rows, Speculative(), ChainTopology(length=4))
    assert [(text.tokens, text.stop_reason) for text in texts] == [(text.tokens, "context") for text in plain]
    for prompt, text in zip(PROMPTS, texts, strict=True):
        assert len(prompt) + len(text.tokens) == SHORT_LONG
        end = len(prompt)
        for record in text.records:
            assert not record.drafted or end + len(record.drafted) <= SHORT
            end += len(record.emitted)
        drafted = any(record.drafted for record in text.records)
        assert drafted == (len(prompt) < SHORT) or rows > 1  # beside a text that is too long none is drafted


@pytest.mark.parametrize("topology", [DynamicTreeTopology(), MultiDraftTopology(length=3, drafts=2)])
def test_trees_and_several_drafts_end_there_too(short_pair: LoadedPair, topology: TopologySettings) -> None:
    plain = decoded(short_pair, 1, Autoregressive(), ChainTopology(length=4))
    acceptance = Speculative() if isinstance(topology, DynamicTreeTopology) else RecursiveRejection()
    texts = decoded(short_pair, 1, acceptance, topology)
    assert [len(text.tokens) for text in texts] == [len(text.tokens) for text in plain]


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
