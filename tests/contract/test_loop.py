"""Every drafter within the one loop: identities that hold token for token, and the distribution of whole texts."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftOnly,
    DynamicTreeTopology,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    SamplingConfig,
    Speculative,
)
from fsd_core.models.language_model import LanguageModel
from fsd_core.testing.acceptance import fit
from fsd_core.testing.decoding import DRAFTERS, beginnings, next_logits, open_session, recomputed_logits, run, written
from fsd_core.testing.toy import related, toy_model

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


@pytest.mark.parametrize("drafter", DRAFTERS, ids=str)
@pytest.mark.parametrize("length", [1, 3, 8])
@pytest.mark.parametrize("rule", [Speculative(), FuzzyReducible(threshold=None), Fuzzy(threshold=None)], ids=str)
def test_greedy_strict_decoding_is_the_greedy_target(models, greedy, drafter, length, rule):
    for prompt, alone in zip(PROMPTS, greedy, strict=True):
        config = DecodingConfig(
            acceptance=rule, drafter=drafter, topology=ChainTopology(length=length), max_new_tokens=50
        )
        assert written(*models, config, prompt, ends=False) == alone


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
        record = session.step()
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
    for rule, texts in ((FuzzyOfficial(threshold=0), 1500), (FuzzyOfficial(threshold=0, sample_target=False), 20)):
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


@pytest.mark.parametrize("drafter", DRAFTERS, ids=str)
@pytest.mark.parametrize("rule", [Speculative(), FuzzyReducible(threshold=0.05)], ids=str)
def test_caches_hold_no_rejected_token(models, drafter, rule):
    """After every round, the logits that follow are those of the text recomputed from nothing."""
    config = DecodingConfig(acceptance=rule, drafter=drafter, sampling=SAMPLED, max_new_tokens=40)
    session = open_session(*models, config, PROMPTS[0], seed=3, eos=frozenset())
    rejected = 0
    while session.stop_reason is None:
        record = session.run_round()
        rejected += record.accepted < len(record.drafted)
        assert session.cache.length == len(session.history) - 1
        torch.testing.assert_close(
            next_logits(session), recomputed_logits(models[0], session.history), atol=1e-4, rtol=1e-4
        )
    assert rejected > 2  # or the test would have shown nothing


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
        (Speculative(), DRAFTERS[0], "target"),
        (Speculative(), DRAFTERS[2], "target"),
        (FuzzyReducible(threshold=None), DRAFTERS[0], "target"),
        (Fuzzy(threshold=0.08, judge_bonus=True), DRAFTERS[0], "fuzzy"),
        (FuzzyReducible(threshold=0.08), DRAFTERS[0], "fuzzy"),
    ],
    ids=str,
)
def test_the_distribution_of_whole_texts(rule, drafter, expected):
    """3,000 texts of three tokens: χ² against the exact distribution, by enumeration; and not against the other."""
    vocabulary, prompt, length = 5, PROMPT, 2
    module = toy_model(vocabulary, seed=21, layers=1, hidden=16)
    target, draft = LanguageModel(module), LanguageModel(related(module, noise=0.6, seed=22))
    sampling = SamplingConfig(temperature=1.0)
    # The third token of room lets both measured tokens be drafted.
    config = DecodingConfig(
        acceptance=rule, drafter=drafter, topology=ChainTopology(length=1), sampling=sampling, max_new_tokens=length + 1
    )
    texts = beginnings(target, draft, config, prompt, length, 3000)
    emitted = texts[:, 0] * vocabulary + texts[:, 1]
    distributions = {
        name: _exact_distribution(target, draft, prompt, vocabulary, length, t)
        for name, t in (("target", None), ("fuzzy", 0.08))
    }
    assert fit(emitted, distributions[expected]) > 1e-4
    assert fit(emitted, distributions["fuzzy" if expected == "target" else "target"]) < 1e-6


def _exact_distribution(target, draft, prompt, vocabulary, length, threshold):
    """Probability of every text of ``length`` tokens where q writes at D ≤ threshold and p elsewhere; [V^length]."""
    from fsd_core.ops.divergences import js

    def step(prefix):
        p, q = (recomputed_logits(m, prompt + list(prefix)).softmax(-1) for m in (target, draft))
        return q if threshold is not None and js(p, q) <= threshold else p

    known = {prefix: step(prefix) for n in range(length) for prefix in product(range(vocabulary), repeat=n)}
    return torch.tensor(
        [
            math.prod(known[text[:i]][token].item() for i, token in enumerate(text))
            for text in product(range(vocabulary), repeat=length)
        ]
    )
