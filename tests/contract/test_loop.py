"""Every drafter within the one loop: identities that hold token for token, and the distribution of whole texts."""

from __future__ import annotations

import math

import pytest

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
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    PromptLookupDrafter,
    SamplingConfig,
    Speculative,
    SuffixDrafter,
    TopologySettings,
    TrigramDrafter,
)
from fsd_core.drafters import DraftModelProposer
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.distributions import DraftDistribution
from fsd_core.rules import BEAMS
from fsd_core.testing import (
    beginnings,
    check_drafter,
    check_topology,
    distribution_of_texts,
    fit,
    open_session,
    recomputed_logits,
    related,
    run,
    toy_model,
    written,
)
from fsd_core.topologies import Chain
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
