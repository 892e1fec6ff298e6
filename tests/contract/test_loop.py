"""Texts are what the loop's definition says: by every drafter, side by side, with marks and ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from fsd_core.config import (
    DRAFTERS,
    TOPOLOGIES,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    DraftOnly,
    DynamicTreeTopology,
    EagleDrafter,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    PromptLookupDrafter,
    RecentAcceptance,
    SamplingConfig,
    Speculative,
    SuffixDrafter,
    TopologySettings,
    TrigramDrafter,
)
from fsd_core.decoding import loop
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.decoding.loop import Batch, Mark, TextMarks, _text_marks, compose
from fsd_core.drafters import DraftModelProposer
from fsd_core.errors import IncompatibleOptions, NotApplicable, NotGiven, PromptTooLong
from fsd_core.models.caches import KVCache, causal_mask, uncached_tokens
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair, ModelSet, make_pair
from fsd_core.ops.distributions import DraftDistribution
from fsd_core.rules import BEAMS, Block
from fsd_core.testing import (
    TOY,
    beginnings,
    check_drafter,
    check_topology,
    distribution_of_texts,
    fit,
    open_session,
    recomputed_logits,
    related,
    run,
    toy_head,
    toy_model,
    toy_pair,
    toy_tokenizer,
    written,
)
from fsd_core.topologies import Chain, DraftTree
from tests.tools.sizes import size, some

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [7], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4]]
PROMPT = [0, 1, 2, 1]  # of a vocabulary of 5
RULES = [Speculative(), Fuzzy(threshold=0.05), FuzzyReducible(threshold=0.05), FuzzyOfficial(threshold=0.1)]
SAMPLED = SamplingConfig(temperature=0.8, top_k=20, top_p=0.95)


@pytest.fixture(scope="module")
def models() -> tuple[LanguageModel, LanguageModel]:
    target = toy_model(40, seed=11)
    return LanguageModel(target), LanguageModel(related(target, noise=0.15, seed=12))


@pytest.fixture(scope="module")
def greedy(models) -> list[list[int]]:
    """What the target alone writes behind each prompt: 50 tokens."""
    config = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=50)
    return [written(*models, config, prompt, ends=False) for prompt in PROMPTS]


@pytest.mark.parametrize("drafter", some(DRAFTERS, "draft-model", "suffix"))
def test_every_drafter_keeps_the_contract(drafter):
    check_drafter(DRAFTERS[drafter])


@pytest.mark.parametrize(
    "topology", some([kind for kind, t in TOPOLOGIES.items() if t.judged_as != BEAMS], "chain", "dynamic-tree")
)
def test_every_topology_keeps_the_contract(topology):
    check_topology(TOPOLOGIES[topology], size(200, 600))


class Halved(DraftModelProposer):
    """Says half of what the draft model says."""

    def _row(self, tokens):
        row = super()._row(tokens)
        return DraftDistribution(row.warped / 2, row.raw / 2)


class Forgetful(DraftModelProposer):
    """Remembers the rounds of the texts before."""

    rounds = 0

    def begin(self, tokens, texts):
        Forgetful.rounds += 1
        return None if Forgetful.rounds % 3 else super().begin(tokens, texts)


class Eager(Chain):
    """Draws the likeliest token where it ought to be drawn by chance."""

    @classmethod
    def for_method(cls, config):
        return cls(config.topology.length)

    def grow(self, first, source, depth, uniforms, greedy):
        return super().grow(first, source, depth, uniforms, True)


@pytest.mark.parametrize(("code", "message"), [(Halved, "is no distribution"), (Forgetful, "writes another text")])
def test_a_drafter_that_breaks_the_contract_is_told_of_it(monkeypatch, code, message):
    class Broken(DrafterSettings):
        title, implementation = "Broken", f"{__name__}:{code.__name__}"
        kind: str = "broken"

    monkeypatch.setitem(DRAFTERS._things, "broken", Broken)
    with pytest.raises(AssertionError, match=message):
        check_drafter(Broken)


def test_a_topology_that_breaks_the_contract_is_told_of_it(monkeypatch):
    class Broken(TopologySettings):
        title, implementation = "Broken", f"{__name__}:Eager"
        kind: str = "broken"
        length: int = 3

    monkeypatch.setitem(TOPOLOGIES._things, "broken", Broken)
    with pytest.raises(AssertionError, match="writes another distribution"):
        check_topology(Broken)


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize(
    "rule",
    [
        Fuzzy(threshold=math.log(2), judge_bonus=True),
        FuzzyReducible(threshold=math.log(2)),
        Fuzzy(divergence="kl", threshold=math.inf, judge_bonus=True),
    ],
    ids=str,
)
def test_an_infinite_threshold_is_the_draft_model_alone(models, rule, length):
    for prompt in PROMPTS:
        alone = written(*models, DecodingConfig(acceptance=DraftOnly(), max_new_tokens=40), prompt, ends=False)
        config = DecodingConfig(acceptance=rule, topology=ChainTopology(length=length), max_new_tokens=40)
        # The last token of the limit is the target's: with room for one, nothing is drafted.
        assert written(*models, config, prompt, ends=False)[:39] == alone[:39]


def test_the_published_bonus_is_the_targets(models):
    """At an infinite threshold too, behind every draft stands the target's likeliest token."""
    config = DecodingConfig(
        acceptance=Fuzzy(threshold=math.log(2)), topology=ChainTopology(length=3), max_new_tokens=40
    )
    session = open_session(*models, config, PROMPTS[0], 0, frozenset())
    while session.stop_reason is None:
        record = session.run_round()
        assert record.accepted == len(record.drafted)
        assert session.history[-1] == recomputed_logits(models[0], session.history[:-1]).argmax()
    drafted = written(*models, DecodingConfig(acceptance=DraftOnly(), max_new_tokens=40), PROMPTS[0], ends=False)
    assert session.history[len(PROMPTS[0]) :] != drafted


@pytest.mark.parametrize(
    "topology", [ChainTopology(length=2), DynamicTreeTopology(top_k=2, total_tokens=4, length=2)], ids=str
)
def test_the_official_rule_draws_the_targets_tokens_from_the_raw_target_at_temperature_0(topology):
    """No draft is accepted. χ² against the target at temperature 1, whatever top-k is; or its likeliest token."""
    module = toy_model(5, seed=21, layers=1, hidden=16)
    target, draft = LanguageModel(module), LanguageModel(related(module, noise=0.6, seed=22))
    raw = recomputed_logits(target, PROMPT).softmax(-1)
    for rule, texts in (
        (FuzzyOfficial(threshold=0), size(300, 1500)),
        (FuzzyOfficial(threshold=0, sample_target=False), 20),
    ):
        config = DecodingConfig(acceptance=rule, topology=topology, sampling=SamplingConfig(top_k=2), max_new_tokens=4)
        first = beginnings(target, draft, config, PROMPT, 1, texts)[:, 0]
        if rule.sample_target:
            assert fit(first, raw) > 1e-4
        else:
            assert {*first.tolist()} == {int(raw.argmax())}


@pytest.mark.parametrize("sampling", [SamplingConfig(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_same_seed_same_tokens(models, rule, sampling):
    config = DecodingConfig(acceptance=rule, sampling=sampling, max_new_tokens=40)
    first, again = (written(*models, config, PROMPTS[0], seed=5, ends=False) for _ in range(2))
    assert first == again
    if not sampling.greedy and rule.kind != "fsd-official":
        assert written(*models, config, PROMPTS[0], seed=6, ends=False) != first


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_record_tells_the_round(models, rule):
    config = DecodingConfig(acceptance=rule, sampling=SAMPLED, max_new_tokens=40)
    session, text = open_session(*models, config, PROMPTS[0], seed=2, eos=frozenset()), []
    while session.stop_reason is None:
        record = session.run_round()
        text += record.emitted
        assert record.emitted[: record.accepted] == record.drafted[: record.accepted]
        assert len(record.emitted) == record.accepted + 1 == len(record.kinds)
        assert set(record.kinds[: record.accepted]) <= {"strict", "lenient"}
        if record.drafted:
            rejected = record.accepted < len(record.drafted)
            assert (record.kinds[-1] == "correction") == rejected
        for p, q, e in zip(
            record.target_probability, record.draft_probability, record.emitted_probability, strict=False
        ):
            assert 0 <= p <= 1
            assert 0 <= q <= 1
            assert 0 < e <= 1
    assert text == session.history[len(PROMPTS[0]) :]
    assert len(text) == 40


def test_a_text_ends_at_its_end_token_and_what_was_drafted_behind_it_is_not_counted(models):
    for seed in range(200):
        config = DecodingConfig(acceptance=FuzzyReducible(threshold=0.6), sampling=SamplingConfig(temperature=1.5))
        session = run(open_session(*models, config, PROMPTS[0], seed, eos=frozenset({39})))
        if session.stop_reason == "eos":
            assert session.history[-1] == 39
            assert 39 not in session.history[:-1]
            return
    pytest.fail("no text ended in 200 tries")


def test_the_context_is_filled_and_not_overrun(models):
    context = models[0].context
    prompt = [1, 2, 3] * 80
    config = DecodingConfig(acceptance=Speculative(), max_new_tokens=500)
    session = run(open_session(*models, config, prompt, 0, eos=frozenset()))
    assert (session.stop_reason, len(session.history)) == ("context", context)


@pytest.mark.parametrize(
    ("rule", "drafter", "expected"),
    [
        (Speculative(), DraftModelDrafter(), "target"),
        (Speculative(), PromptLookupDrafter(max_ngram=1), "target"),
        (Speculative(), SuffixDrafter(), "target"),
        (Speculative(), TrigramDrafter(), "target"),
        (FuzzyReducible(threshold=None), DraftModelDrafter(), "target"),
        (Fuzzy(threshold=0.08, judge_bonus=True), DraftModelDrafter(), "fuzzy"),
        (FuzzyReducible(threshold=0.08), DraftModelDrafter(), "fuzzy"),
    ],
    ids=str,
)
def test_the_distribution_of_whole_texts(rule, drafter, expected):
    """Texts of three tokens: χ² against the exact distribution, by enumeration; and not against the other."""
    vocabulary, prompt, length = 5, PROMPT, 2
    module = toy_model(vocabulary, seed=21, layers=1, hidden=16)
    target, draft = LanguageModel(module), LanguageModel(related(module, noise=0.6, seed=22))
    sampling = SamplingConfig(temperature=1.0)
    # The third token of room lets both measured tokens be drafted.
    config = DecodingConfig(
        acceptance=rule, drafter=drafter, topology=ChainTopology(length=1), sampling=sampling, max_new_tokens=length + 1
    )
    texts = beginnings(target, draft, config, prompt, length, size(500, 3000))
    emitted = texts[:, 0] * vocabulary + texts[:, 1]
    distributions = {
        "target": distribution_of_texts(target, prompt, length),
        "fuzzy": distribution_of_texts(target, prompt, length, near=(draft, 0.08)),
    }
    assert fit(emitted, distributions[expected]) > 1e-4
    assert fit(emitted, distributions["fuzzy" if expected == "target" else "target"]) < 1e-6


BATCH_RULES = [
    Autoregressive(), DraftOnly(), Speculative(), Fuzzy(threshold=0.08), FuzzyReducible(threshold=0.08),
    FuzzyReducible(threshold=0.3, divergence="random"), FuzzyOfficial(threshold=0.3),
]  # fmt: skip
BATCH_PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [7], [2, 7, 1, 8], [1] * 40, [5, 3, 5, 8, 9], [6, 6, 2], [8] * 17]
SEEDS = [11, 12, 13, 14, 15, 16, 17]


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return toy_pair(noise=0.3)


def settings(rule, temperature: float = 1.0) -> DecodingConfig:
    return DecodingConfig(
        acceptance=rule,
        topology=ChainTopology(length=4),
        sampling=SamplingConfig(temperature=temperature, top_p=0.9) if temperature else SamplingConfig(),
        max_new_tokens=21,
    )


def side_by_side(decoder: PairDecoder, rows: int) -> list:
    found = dict(decoder.generate_all(BATCH_PROMPTS, SEEDS, rows))
    return [found[place] for place in range(len(BATCH_PROMPTS))]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", BATCH_RULES, ids=str)
def test_a_text_is_what_it_is_alone(pair: LoadedPair, rule, temperature: float) -> None:
    decoder = PairDecoder(pair, settings(rule, temperature))
    # An end token that some texts meet and others do not, so that rows leave and are filled again.
    decoder.eos = frozenset()
    decoder.eos = frozenset({decoder.generate(BATCH_PROMPTS[2], SEEDS[2]).tokens[5]})
    alone = [decoder.generate(prompt, seed) for prompt, seed in zip(BATCH_PROMPTS, SEEDS, strict=True)]
    assert "eos" in {generation.stop_reason for generation in alone}
    for rows in (1, 3, 16):
        for ours, theirs in zip(side_by_side(decoder, rows), alone, strict=True):
            assert ours.tokens == theirs.tokens
            assert ours.stop_reason == theirs.stop_reason
            for one, other in zip(ours.records, theirs.records, strict=True):
                assert (one.drafted, one.accepted, one.kinds) == (other.drafted, other.accepted, other.kinds)
                assert one.divergence == pytest.approx(other.divergence, abs=1e-4)
                assert one.emitted_probability == pytest.approx(other.emitted_probability, abs=1e-4)


def test_texts_advance_by_different_amounts(pair: LoadedPair) -> None:
    decoder = PairDecoder(pair, settings(Speculative()))
    batch = Batch(decoder.method, frozenset(), 80, 3)
    texts = [batch.put(row, BATCH_PROMPTS[row], SEEDS[row]) for row in range(3)]
    spread = 0
    for _ in range(4):
        batch.run_round()
        written = [len(text.history) - len(prompt) for text, prompt in zip(texts, BATCH_PROMPTS, strict=False)]
        spread = max(spread, max(written) - min(written))
        assert batch.cache.lengths == [len(text.history) - 1 for text in texts]
    assert spread >= 3


def test_an_architecture_of_transformers_own_forward_too() -> None:
    """Soft-capping, and a window shorter than the texts."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Gemma2Config(
            vocab_size=257, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=256, initializer_range=0.15, sliding_window=9,
            bos_token_id=None, eos_token_id=256, pad_token_id=256,
        )  # fmt: skip
        target = AutoModelForCausalLM.from_config(config).eval()
    gemma = make_pair(toy_pair().spec, toy_tokenizer(), target, related(target, 0.2, seed=1))
    decoder = PairDecoder(gemma, settings(Speculative(), temperature=0.0))
    alone = [decoder.generate(prompt, seed).tokens for prompt, seed in zip(BATCH_PROMPTS, SEEDS, strict=True)]
    assert [generation.tokens for generation in side_by_side(decoder, 4)] == alone


def test_a_row_at_the_end_of_the_context_does_not_disturb_the_others() -> None:
    target = toy_model(257, seed=0, context=48)
    narrow = make_pair(toy_pair().spec, toy_tokenizer(), target, related(target, 0.3, seed=1))
    decoder = PairDecoder(narrow, settings(Speculative()))
    decoder.eos = frozenset()
    alone = [decoder.generate(prompt, seed) for prompt, seed in zip(BATCH_PROMPTS, SEEDS, strict=True)]
    assert alone[3].stop_reason == "context"
    assert [g.tokens for g in side_by_side(decoder, 7)] == [g.tokens for g in alone]


def test_the_seconds_of_all_texts_are_those_of_the_whole(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a second each time it is read."""
    clock, rounds = count(), []
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(Batch, "run_round", lambda batch, of=Batch.run_round: (rounds.append(1), of(batch))[1])
    found = side_by_side(PairDecoder(pair, settings(Speculative())), 4)
    whole = float(next(clock))
    # A round reads it at its beginning, behind the draft and at its end; a text, when its prompt is fed.
    assert sum(generation.seconds for generation in found) == pytest.approx(2 * len(rounds) + len(BATCH_PROMPTS))
    assert all(0 < generation.time_to_first_token < whole for generation in found)


def test_what_one_row_alone_can_do_is_refused_for_several(pair: LoadedPair) -> None:
    config = DecodingConfig(acceptance=Speculative(), drafter=PromptLookupDrafter())
    with pytest.raises(IncompatibleOptions, match="one text at a time"):
        Batch(PairDecoder(pair, config).method, frozenset(), 64, 2)
    batch = Batch(PairDecoder(pair, settings(Speculative())).method, frozenset(), 300, 2)
    with pytest.raises(PromptTooLong):
        batch.put(0, [1] * pair.target.context, 0)


def test_rows_of_a_cache_are_written_where_they_end() -> None:
    cache = KVCache(layers=1, capacity=8, rows=2)
    cache.lengths = [1, 3]
    assert cache.reserve(2, torch.device("cpu")).tolist() == [[1, 2], [3, 4]]
    states = torch.arange(4.0).view(2, 1, 2, 1)
    keys, values = cache.update(states, -states, 0)
    assert keys[:, 0, :, 0].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 2, 3]]
    assert torch.equal(values, -keys)
    cache.advance(2)
    cache.rollback([9, 4])
    assert cache.lengths == [3, 4]
    cache.keep_rows(torch.tensor([1]))
    assert (cache.lengths, cache.reserve(1, torch.device("cpu"))) == ([4], None)


def test_a_row_that_lacks_less_is_fed_some_again() -> None:
    cache, tokens = KVCache(layers=1, capacity=8, rows=2), torch.arange(12).view(2, 6)
    cache.lengths = [3, 4]
    assert uncached_tokens(tokens, cache, [5, 5]).tolist() == [[3, 4], [9, 10]]
    assert cache.lengths == [3, 3]
    cache.lengths = [3, 2]
    assert uncached_tokens(tokens, cache, [4, 3]).tolist() == [[3], [8]]


def test_a_mask_row_by_row() -> None:
    seen = causal_mask(torch.tensor([[0, 1], [2, 3]]), 4, window=2)[:, 0].int().tolist()
    assert seen == [[[1, 0, 0, 0], [1, 1, 0, 0]], [[0, 1, 1, 0], [0, 0, 1, 1]]]


VOCABULARY, MARK_PROMPT = 5, [0, 1, 2, 1]
LOOSE = Fuzzy(threshold=math.log(2))
"""accepts every draft"""
MARK_SAMPLED = SamplingConfig(temperature=1.0)


class Letters:
    """A tokenizer of one letter a token: a, b, c…"""

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        return "".join(chr(ord("a") + i) for i in ids)


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thought begins with an a and ends with a b."""
    monkeypatch.setattr(loop, "_ENDS", {"a": "b"})


@pytest.fixture(scope="module")
def mark_models() -> tuple[LanguageModel, LanguageModel]:
    target = toy_model(VOCABULARY, seed=3)
    return LanguageModel(target), LanguageModel(related(target, noise=0.6, seed=4))


def decoder(models: tuple[LanguageModel, LanguageModel], config: DecodingConfig) -> PairDecoder:
    """One whose texts have no end tokens."""
    target, draft = models
    tokenizer: Any = Letters()
    pair = LoadedPair(TOY, tokenizer, target, draft, "cpu", "float32", head=toy_head(target.module))
    decoder = PairDecoder(pair, config)
    decoder.eos = frozenset()
    return decoder


def thinking(prefix: Sequence[int], *, opened: bool = False) -> bool:
    """Whether a text is inside of a thought behind a prefix, by its letters alone."""
    inside = opened
    for token in prefix:
        inside = token == 0 or (inside and token != 1)
    return inside


@pytest.mark.wide
@pytest.mark.usefixtures("marks")
@pytest.mark.parametrize("lenient_in", ["thoughts", "answers"])
def test_the_draft_writes_where_the_rule_is_lenient_and_the_target_elsewhere(mark_models, lenient_in: str) -> None:
    """The law of the texts, enumerated with the marks read at every token, although several are drafted at once.

    They follow neither the law of a rule that is lenient everywhere, nor one with the marks read before each round.
    """
    config = DecodingConfig(
        acceptance=LOOSE,
        topology=ChainTopology(length=2),
        sampling=MARK_SAMPLED,
        max_new_tokens=3,
        lenient_in=lenient_in,
    )
    count = size(1500, 10_000)
    texts = decoder(mark_models, config).generate_all([MARK_PROMPT] * count, range(count), rows=500)
    emitted = torch.tensor([text.tokens[:2] for _, text in texts]) @ torch.tensor([VOCABULARY, 1])

    def law(where: Callable[[tuple[int, ...]], bool]) -> torch.Tensor:
        return distribution_of_texts(mark_models[0], MARK_PROMPT, 2, (mark_models[1], math.log(2)), where)

    def is_lenient(prefix: tuple[int, ...]) -> bool:
        return thinking(prefix) == (lenient_in == "thoughts")

    assert fit(emitted, law(is_lenient)) > 1e-4
    assert fit(emitted, law(lambda prefix: True)) < 1e-6
    assert fit(emitted, law(lambda prefix: is_lenient(()))) < 1e-6


@pytest.mark.usefixtures("marks")
@pytest.mark.parametrize(
    "drafting",
    [
        {"topology": ChainTopology(length=4)},
        {"topology": DynamicTreeTopology(top_k=3, length=4, total_tokens=12)},
        {"topology": ChainTopology(length=4), "drafter": EagleDrafter()},
    ],
    ids=["chain", "tree", "head"],
)
@pytest.mark.parametrize("lenient_in", ["thoughts", "answers"])
def test_no_token_is_lenient_elsewhere(mark_models, drafting: dict[str, Any], lenient_in: str) -> None:
    """Also behind prompts that end inside of a thought. The caches stay true: what is not lenient is the target's."""
    config = DecodingConfig(acceptance=LOOSE, max_new_tokens=60, lenient_in=lenient_in, **drafting)
    lenient, strict = 0, 0
    for seed, prompt in enumerate([[2, 1], [3, 4, 0], [4, 2, 3, 3]]):
        text = decoder(mark_models, config).generate(prompt, seed)
        opened = prompt[-1] == 0
        for index, kind in enumerate(kinds_of(text)):
            inside = thinking(text.tokens[:index], opened=opened)
            if inside == (lenient_in == "thoughts"):
                lenient += kind == "lenient"
            else:
                strict += 1
                assert kind != "lenient"
                assert text.tokens[index] == argmax(mark_models[0], [*prompt, *text.tokens[:index]])
    assert lenient
    assert strict


def kinds_of(text: GeneratedText) -> list[str]:
    return [kind for record in text.records for kind in record.kinds]


@torch.inference_mode()
def argmax(model: LanguageModel, tokens: list[int]) -> int:
    cache = model.new_cache(len(tokens))
    return int(model.forward(torch.tensor([tokens]), cache, logits_to_keep=1)[0, 0].argmax())


@pytest.mark.parametrize("acceptance", [Autoregressive(), Speculative(), LOOSE])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_stop_string_ends_a_text_where_it_is_complete(mark_models, acceptance: Any, rows: int) -> None:
    """Whatever was drafted behind it, and in each row of a batch; without it the texts go on as they did."""
    config = DecodingConfig(acceptance=acceptance, sampling=MARK_SAMPLED, max_new_tokens=60)
    prompts, generation = [[2, 1], [3, 4, 0], MARK_PROMPT], mark_models[0].module.generation_config
    free = dict(decoder(mark_models, config).generate_all(prompts, range(3), rows))
    try:
        generation.stop_strings = ["dc", "ee"]
        ended = dict(decoder(mark_models, config).generate_all(prompts, range(3), rows))
    finally:
        generation.stop_strings = None
    assert {text.stop_reason for text in free.values()} == {"length"}
    for index, text in free.items():
        letters = Letters().decode(text.tokens)
        end = min(letters.find(stop) % 1000 for stop in ("dc", "ee")) + 2
        assert end < 62
        assert (ended[index].tokens, ended[index].stop_reason) == (text.tokens[:end], "eos")
        assert len(kinds_of(ended[index])) == end


def test_strings_are_found_in_the_text_of_several_tokens() -> None:
    tokenizer = toy_pair().tokenizer

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    def tokens(text: str) -> list[int]:
        return tokenizer(text)["input_ids"]

    watch = TextMarks(decode, ["\n\nUser:"], thoughts=True)
    before = tokens("Über <th")
    assert watch.opened(before) is None
    assert watch.opened(tokens("Assistant: <think>\n")) == "</think>"
    assert watch.first(before, tokens("ink> a"), None) == Mark(4, "<think>")
    assert watch.first(tokens("<think>"), tokens("a <think> b"), watch.after("<think>")) is None
    assert watch.first(tokens("<think> x </thin"), tokens("k>B"), "</think>") == Mark(2, "</think>")
    assert watch.first(tokens("</think>"), tokens(" ü, no more"), None) is None
    assert watch.first(tokens("a\n\nUs"), tokens("er:er:"), "</think>") == Mark(3, "\n\nUser:")
    assert watch.after("\n\nUser:") is None
    assert watch.opened(tokens("<|channel|>analysis")) == "<|channel|>final"


def test_marks_of_the_models_own_template_are_looked_for(mark_models) -> None:
    """Where a rule is lenient is read as scorers read it."""
    tokenizer = toy_pair().tokenizer
    tokenizer.chat_template = "{% for m in messages %}{{ m.content.split('[/MUSE]')[-1] }}{% endfor %}"
    config = DecodingConfig(acceptance=LOOSE, lenient_in="thoughts")
    watch = _text_marks(mark_models[0], tokenizer, config)
    assert watch is not None
    assert watch.opened(tokenizer("Assistant: [MUSE]\n")["input_ids"]) == "[/MUSE]"
    assert watch.opened(tokenizer("Assistant: <think>\n")["input_ids"]) == "</think>"
    assert watch.first([], tokenizer("[MUSE]")["input_ids"], None) == Mark(6, "[MUSE]")
    assert watch.after("[MUSE]") == "[/MUSE]"


def test_leniency_in_a_part_of_a_text_is_refused_where_nothing_is_lenient_or_nobody_reads(mark_models) -> None:
    with pytest.raises(NotApplicable, match="lenient_in"):
        DecodingConfig.checked(acceptance=Speculative(), lenient_in="thoughts")
    with pytest.raises(NotGiven):
        compose(ModelSet(*mark_models), DecodingConfig(acceptance=LOOSE, lenient_in="answers"))


ADAPTIVE_PROMPT = [0, 1, 2, 1]
ADAPTIVE_SAMPLED = SamplingConfig(temperature=1.0)
LENGTHS = (
    ChainTopology(length=3),
    ChainTopology(length=3, length_by="token", least_probability=0.2),
    ChainTopology(length=3, length_by="chain", least_probability=0.05),
    ChainTopology(length=3, length_by="acceptance", draft_cost=0.3),
)


@pytest.fixture(scope="module")
def adaptive_models() -> tuple[LanguageModel, LanguageModel]:
    module = toy_model(5, seed=21, layers=1, hidden=16)
    return LanguageModel(module), LanguageModel(related(module, noise=0.6, seed=22))


def fit_of_texts(
    models: tuple[LanguageModel, LanguageModel], topology: ChainTopology, rule, texts: int
) -> tuple[float, float]:
    """Return the χ² test's p-value of texts of three tokens against the target's law, and against the draft's."""
    # Two more tokens of room: the three that are measured can be drafted together.
    config = DecodingConfig(acceptance=rule, topology=topology, sampling=ADAPTIVE_SAMPLED, max_new_tokens=5)
    written = beginnings(models[0], models[1], config, ADAPTIVE_PROMPT, 3, texts)
    emitted = (written * torch.tensor([25, 5, 1])).sum(1)
    laws = (distribution_of_texts(model, ADAPTIVE_PROMPT, 3) for model in models)
    target, draft = (fit(emitted, law) for law in laws)
    return target, draft


@pytest.mark.wide
@pytest.mark.parametrize(
    ("rule", "topology"), [*((Speculative(), length) for length in LENGTHS), (Block(), LENGTHS[2])], ids=str
)
def test_the_law_of_whole_texts_is_the_targets_whatever_ends_a_draft(adaptive_models, rule, topology) -> None:
    target, draft = fit_of_texts(adaptive_models, topology, rule, size(800, 20_000))
    assert target > 1e-4
    assert draft < 1e-9


class Dropping(Chain):
    """Leaves out the token at which the draft became unsure, too, but never the first."""

    @classmethod
    def for_method(cls, config):
        return cls(3)

    def grow(self, first, source, depth, uniforms, greedy):
        tree = super().grow(first, source, depth, uniforms, greedy)
        assert tree is not None
        unsure = tree.raw.gather(-1, tree.tokens[..., None])[..., 0] < 0.2
        lengths = torch.where(unsure.any(1), unsure.long().argmax(1), tree.size).clamp_min(1)
        return DraftTree(tree.tokens, tree.depth, tree.warped, tree.raw, lengths=lengths.tolist())


@pytest.mark.wide
def test_the_test_tells_a_draft_that_leaves_out_what_it_thinks_unlikely(adaptive_models, monkeypatch) -> None:
    monkeypatch.setattr(ChainTopology, "load", lambda self: Dropping)
    target, _ = fit_of_texts(adaptive_models, ChainTopology(length=3), Speculative(), size(2000, 20_000))
    assert target < 1e-6


@pytest.mark.parametrize(
    ("by", "least", "temperature"),
    [("token", 0.15, 0.0), ("chain", 0.01, 0.0), ("token", 0.03, 1.0), ("chain", 0.01, 1.0)],
)
def test_a_draft_ends_behind_its_first_unsure_token(by: str, least: float, temperature: float) -> None:
    target = toy_model(40, seed=11)
    models = LanguageModel(target), LanguageModel(related(target, noise=0.15, seed=12))
    topology = ChainTopology(length=6, length_by=by, least_probability=least)  # type: ignore[arg-type]
    sampling = SamplingConfig(temperature=temperature)
    config = DecodingConfig(acceptance=Speculative(), topology=topology, sampling=sampling, max_new_tokens=120)
    ended = set()
    with open_session(*models, config, [3, 1, 4, 1, 5], 1, frozenset()) as session:
        while len(session.history) < 5 + 120 - 8:
            record = session.run_round()
            judged = torch.tensor(record.draft_probability)
            sure = (judged if by == "token" else judged.cumprod(0)) >= least
            assert sure[: len(record.drafted) - 1].all()  # of those that were judged
            if len(sure) == len(record.drafted):
                assert len(sure) == 6 or not sure[-1]
            ended.add(len(record.drafted))
    assert len(ended) > 1


def test_the_length_by_acceptance_is_the_one_that_pays_best() -> None:
    def value(rate: float, cost: float, length: int) -> float:
        return (1 - rate ** (length + 1)) / (1 - rate) / (1 + cost * length)

    for accepted in (0.0, 1.0, 2.5, 4.0, 4.9):
        for cost in (0.01, 0.1, 0.5, 2.0):
            best = max(range(1, 17), key=lambda length: value(accepted / 5, cost, length))
            assert RecentAcceptance(accepted, 5.0).best_length(16, cost) == best
    assert RecentAcceptance(5.0, 5.0).best_length(16, 0.1) == 16
    assert RecentAcceptance().best_length(16, 0) == 16


def test_the_acceptance_so_far_forgets_and_counts_what_was_judged() -> None:
    once = RecentAcceptance().after(2, 5)  # the third was rejected, the last two were not judged
    assert (once.accepted, once.judged) == (0.9 * 4 + 2, 0.9 * 5 + 3)
    assert RecentAcceptance().after(5, 5).judged == 0.9 * 5 + 5
    assert RecentAcceptance().after(0, 0) == RecentAcceptance(0.9 * 4, 0.9 * 5)
    low = high = RecentAcceptance()
    for _ in range(30):
        low, high = low.after(0, 4), high.after(8, 8)
    assert (low.best_length(16, 0.1), high.best_length(16, 0.1)) == (1, 16)


def test_a_text_drafts_less_where_less_is_accepted() -> None:
    target = toy_model(40, seed=11)
    topology = ChainTopology(length=12, length_by="acceptance")
    drafted = []
    for noise in (0.0, 2.0):
        models = LanguageModel(target), LanguageModel(related(target, noise=noise, seed=12))
        config = DecodingConfig(acceptance=Speculative(), topology=topology, max_new_tokens=100)
        with open_session(*models, config, [3, 1, 4], 0, frozenset()) as session:
            while len(session.history) < 80:
                drafted.append(len(session.run_round().drafted))
    assert drafted[0] == 6  # before anything is known
    assert 12 in drafted
    assert drafted[-1] == 1
