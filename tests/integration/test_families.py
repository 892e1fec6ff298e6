"""Every family of models decodes rightly at toy size, or is refused."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from fsd_core.config import (
    Autoregressive,
    BeamSampling,
    BeamsTopology,
    ChainTopology,
    DecodingConfig,
    DraftModelDrafter,
    DynamicTreeTopology,
    SamplingConfig,
    SearchTreeTopology,
    Speculative,
    SpeculativeBeams,
    TrigramDrafter,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.loop import compose
from fsd_core.errors import IncompatibleModels, IncompatibleOptions
from fsd_core.models.caches import RecurrentCache
from fsd_core.models.forward import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet, check_cache, make_pair
from fsd_core.testing import (
    beginnings,
    distribution_of_texts,
    fit,
    next_logits,
    open_session,
    recomputed_logits,
    related,
    toy_model,
    toy_pair,
    toy_tokenizer,
)
from tests.tools.toy_families import PROMPT, SIZE, VOCABULARY, check_greedy_sd_is_the_greedy_target, pair_of, toy_family
from tests.tools.toy_hybrids import DELTA, HYBRIDS, STEPPED

# A window shorter than the texts, so that a layer which ignored it would be found out.
FAMILIES = {
    "llama": LlamaConfig(**SIZE),
    "gemma2": Gemma2Config(
        **SIZE, sliding_window=9, query_pre_attn_scalar=8, attn_logit_softcapping=2.0, final_logit_softcapping=5.0
    ),
    "qwen2": Qwen2Config(**SIZE),
    "qwen2-sliding": Qwen2Config(**SIZE, use_sliding_window=True, sliding_window=9, max_window_layers=2),
    "qwen3": Qwen3Config(**SIZE),
    "mistral": MistralConfig(**SIZE, sliding_window=9),
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(FAMILIES[request.param]).eval()


@torch.inference_mode()
def test_logits_through_our_cache_are_those_of_the_whole_text(family: PreTrainedModel) -> None:
    tokens = torch.randint(VOCABULARY, (1, 40), generator=torch.Generator().manual_seed(0))
    whole = family(tokens).logits
    model, at = LanguageModel(family), 0
    cache = model.new_cache(64)
    for count in (17, 1, 6, 1, 9, 6):  # a prompt, single steps, verifications
        ours = model.forward(tokens[:, at : at + count], cache)
        torch.testing.assert_close(ours, whole[:, at : at + count], atol=1e-4, rtol=1e-3)
        at += count
    cache.rollback(21)
    torch.testing.assert_close(model.forward(tokens[:, 21:28], cache), whole[:, 21:28], atol=1e-4, rtol=1e-3)


@pytest.mark.wide
def test_greedy_sd_is_the_greedy_target(family: PreTrainedModel) -> None:
    check_greedy_sd_is_the_greedy_target(family, noise=0.2, tokens=24)


@pytest.mark.wide
def test_a_target_spread_over_several_devices_decodes_as_on_one(tmp_path: Path) -> None:
    """Half of the layers live on disk here, as they would on a second GPU: accelerate brings their inputs to them."""
    family = toy_pair().target.module
    prompt = toy_tokenizer()(PROMPT)["input_ids"]
    theirs = family.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :].tolist()
    draft = related(family, 0.2, seed=1)
    places = {"model.layers.1": "disk", "model.norm": "disk", "lm_head": "disk"}
    places |= dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.layers.0"), "cpu")
    spread = dispatch_model(deepcopy(family), places, main_device="cpu", offload_dir=str(tmp_path))
    assert any(parameter.is_meta for parameter in spread.parameters())
    pair = make_pair(toy_pair().spec, toy_tokenizer(), spread, draft)
    config = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=4), max_new_tokens=24)
    assert PairDecoder(pair, config).generate(prompt, seed=0).tokens == theirs


@pytest.mark.parametrize("extra", [-5, 5])
def test_a_draft_may_lack_the_last_tokens_or_have_more(extra: int) -> None:
    """The distribution stays the target's over all of its own tokens."""
    target = toy_model(VOCABULARY, seed=0)
    draft = toy_model(VOCABULARY + extra, seed=0)  # the same seed, but for rows that there are more or fewer of
    pair = make_pair(toy_pair().spec, toy_tokenizer(), target, draft)
    assert pair.target.vocabulary == VOCABULARY
    prompt = [*toy_tokenizer()(PROMPT)["input_ids"], VOCABULARY - 1]  # a token that the smaller draft does not know
    theirs = target.generate(torch.tensor([prompt]), max_new_tokens=48, do_sample=False)[0, len(prompt) :].tolist()
    config = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=4), max_new_tokens=48)
    assert PairDecoder(pair, config).generate(prompt, seed=0).tokens == theirs
    row = pair.draft.forward(torch.tensor([prompt]), pair.draft.new_cache(99), logits_to_keep=1).softmax(-1)[0, 0]
    assert row.shape == (VOCABULARY,)
    assert bool((row[VOCABULARY + min(extra, 0) :] == 0).all())


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
def test_greedy_sd_is_the_greedy_target_in_any_family(family: str) -> None:
    check_greedy_sd_is_the_greedy_target(model_of(family), noise=0.02, tokens=16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", sized(REFUSED))
def test_what_cannot_be_rolled_back_is_refused_in_a_sentence(family: str) -> None:
    model = model_of(family)
    with pytest.raises(IncompatibleModels, match=r"model of this kind is not supported: .+ Choose another pair\.$"):
        pair_of(model, noise=0.02)


HYBRID_QUICK = ("lfm2", "mamba", "qwen3_next")
"""what the gate builds: convolutions, a state that is continued token by token, one beside attention and experts"""
ALL = [family if family in HYBRID_QUICK else pytest.param(family, marks=pytest.mark.long) for family in HYBRIDS]
SAMPLED = DecodingConfig(
    acceptance=Speculative(), topology=ChainTopology(length=3), sampling=SamplingConfig(temperature=1.0),
    max_new_tokens=12,
)  # fmt: skip


def hybrid(family: str, **size: Any) -> LanguageModel:
    """Return the family's toy model, checked as a loaded one is."""
    model = LanguageModel(toy_family(family, **HYBRIDS[family], **size))
    check_cache(model)
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ALL)
def test_greedy_sd_is_the_greedy_target_with_recurrent_layers(family: str) -> None:
    check_greedy_sd_is_the_greedy_target(toy_family(family, **HYBRIDS[family]), noise=0.02, tokens=16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ALL)
@torch.inference_mode()
def test_what_follows_a_rollback_is_what_follows_the_text_alone(family: str) -> None:
    """Prompts, verifications and single steps, with rollbacks to every place: none, into the round, to its beginning,
    twice in a row, and far before it."""
    model, generator = hybrid(family), torch.Generator().manual_seed(0)
    assert model.recurrent is not None
    assert model.recurrent.at_once == (family not in STEPPED)
    cache, text = model.new_cache(64), []
    for count, kept in (
        (9, 9),
        (4, 12),
        (1, 13),
        (5, 13),
        (5, 15),
        (1, 16),
        (1, 17),
        (1, 16),
        (6, 4),
        (7, 10),
        (3, 11),
    ):
        new = torch.randint(VOCABULARY, (count,), generator=generator).tolist()
        logits = model.forward(torch.tensor([new]), cache)[0]
        text += new
        torch.testing.assert_close(logits[-1], recomputed_logits(model, text), atol=2e-3, rtol=1e-3)
        text = text[:kept]
        cache.rollback(kept + 2)
        cache.rollback(kept)
        assert cache.length == len(text) == kept


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ALL)
def test_caches_after_every_round_are_recomputed_ones(family: str) -> None:
    target = hybrid(family)
    draft = LanguageModel(related(target.module, 0.3, seed=1))
    check_cache(draft)
    prompt, rejected = [3, 1, 4, 1, 5, 9, 2, 6], 0
    with open_session(target, draft, SAMPLED, prompt, 5, frozenset()) as session:
        while session.stop_reason is None:
            record = session.run_round()
            rejected += record.accepted < len(record.drafted)
            assert session.cache.length == len(session.history) - 1
            expected = recomputed_logits(target, session.history)
            torch.testing.assert_close(next_logits(session), expected, atol=2e-3, rtol=1e-3)
    assert rejected


def small_pair() -> tuple[LanguageModel, LanguageModel]:
    """Return a target of one recurrent layer and one of attention, and a draft that often differs, of 5 tokens."""
    small = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "vocab_size": 5}
    target = LanguageModel(toy_family("qwen3_5_text", **DELTA, **small, eos_token_id=4, pad_token_id=4))
    draft = LanguageModel(related(target.module, 0.6, seed=1))
    for model in (target, draft):
        check_cache(model)
    return target, draft


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_texts_of_sd_are_distributed_as_those_of_the_target() -> None:
    target, draft = small_pair()
    prompt, length = [0, 1, 2, 1], 3
    texts = beginnings(target, draft, SAMPLED.model_copy(update={"max_new_tokens": 4}), prompt, length, 600)
    emitted = (texts * torch.tensor([25, 5, 1])).sum(1)
    assert fit(emitted, distribution_of_texts(target, prompt, length)) > 1e-4
    assert fit(emitted, distribution_of_texts(draft, prompt, length)) < 1e-9


@pytest.mark.filterwarnings("ignore")
def test_a_recurrent_draft_of_a_plain_target_is_lossless() -> None:
    target, draft = LanguageModel(toy_model(VOCABULARY, seed=3)), hybrid("mamba")
    prompt = [5, 4, 3, 2, 1]
    config = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=3), max_new_tokens=12)
    texts = []
    for each in (config, config.model_copy(update={"acceptance": Autoregressive(), "drafter": None, "topology": None})):
        with open_session(target, draft, each, prompt, 0, frozenset()) as session:
            while session.stop_reason is None:
                session.run_round()
            texts.append(session.history)
    assert texts[0] == texts[1]


@pytest.mark.filterwarnings("ignore")
def test_a_rollback_restores_the_state_bit_by_bit() -> None:
    model = hybrid("qwen3_next")
    cache, tokens = model.new_cache(32), torch.arange(20)[None]
    assert isinstance(cache, RecurrentCache)
    with torch.inference_mode():
        model.forward(tokens[:, :10], cache, logits_to_keep=1)
        cache.rollback(10)
        before = cache.first_state().clone()
        model.forward(tokens[:, 10:], cache)
        assert not torch.equal(cache.first_state(), before)
        cache.rollback(10)
    assert torch.equal(cache.first_state(), before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["mamba", "qwen3_next"])
@torch.inference_mode()
def test_hidden_states_are_of_all_tokens_fed_and_no_others(family: str) -> None:
    """A prompt is fed in two parts, and Mamba's later tokens one by one. Accepted tokens are fed again unseen."""
    model, tokens = hybrid(family), torch.arange(30, 50)[None]
    whole = model.module(input_ids=tokens, use_cache=False, output_hidden_states=True).hidden_states
    whole = torch.cat([whole[1], whole[4]], -1)
    aux, cache = AuxHiddenStates((1, 4)), model.new_cache(32)
    model.forward(tokens[:, :14], cache, logits_to_keep=3, aux_hidden_states=aux)
    torch.testing.assert_close(aux.states, whole[:, :14], atol=1e-4, rtol=1e-3)
    cache.rollback(12)
    model.forward(tokens[:, 12:17], cache, aux_hidden_states=aux)
    torch.testing.assert_close(aux.states, whole[:, 12:17], atol=1e-4, rtol=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_a_state_that_starts_anew_is_found_in_16_bits_too() -> None:
    for family, at_once in (("mamba", False), ("jamba", False), ("mamba2", True)):
        model = LanguageModel(toy_family(family, **HYBRIDS[family]).bfloat16())
        check_cache(model)
        assert model.recurrent is not None
        assert model.recurrent.at_once == at_once, family


@pytest.mark.filterwarnings("ignore")
def test_branches_and_batches_are_refused_before_anything_is_written() -> None:
    hybrids, plain = small_pair(), LanguageModel(toy_model(5, seed=0))
    tree = SAMPLED.model_copy(update={"topology": DynamicTreeTopology()})
    for models in (ModelSet(*hybrids), ModelSet(plain, hybrids[1])):
        with pytest.raises(IncompatibleOptions, match="dynamic-tree"):
            compose(models, tree)
    search = DecodingConfig(acceptance=Speculative(), drafter=TrigramDrafter(), topology=SearchTreeTopology())
    with pytest.raises(IncompatibleOptions, match="search-tree"):
        compose(ModelSet(hybrids[0]), search)
    beams = [DecodingConfig(acceptance=BeamSampling(), sampling=SamplingConfig(temperature=1))]
    beams.append(
        beams[0].model_copy(
            update={"acceptance": SpeculativeBeams(), "drafter": DraftModelDrafter(), "topology": BeamsTopology()}
        )
    )
    for models, config in (
        (ModelSet(hybrids[0]), beams[0]),
        (ModelSet(*hybrids), beams[1]),
        (ModelSet(plain, hybrids[1]), beams[1]),
    ):
        with pytest.raises(IncompatibleOptions, match="one chain of tokens"):
            compose(models, config)
    for config in (SAMPLED, DecodingConfig(acceptance=Autoregressive())):
        with pytest.raises(IncompatibleOptions, match="choose --batch 1"):
            compose(ModelSet(*hybrids), config).check_batch_size(2)
    with pytest.raises(IncompatibleOptions, match="choose --batch 1"):
        compose(ModelSet(plain, hybrids[1]), SAMPLED).check_batch_size(2)
    with pytest.raises(IncompatibleModels, match="feed it one text at a time"):
        hybrids[0].new_cache(8, rows=2)
