"""The lossy rules: those by the target alone, and all of them greedily, on trees, in batches and begun strictly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import pytest
import torch

from fsd_core.config import (
    DRAFTERS,
    ChainTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    DynamicTreeTopology,
    PromptLookupDrafter,
    SamplingConfig,
    Speculative,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import IncompatibleOptions, InvalidSetting, NotApplicable
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.distributions import ScoredDraft, one_hot
from fsd_core.rules import (
    CHAIN,
    RULES,
    TREE,
    Block,
    Cascade,
    Ensemble,
    Fuzzy,
    FuzzyHead,
    Head,
    HeadStrict,
    Lookahead,
    Margin,
    Mentored,
    Rule,
    ThresholdAccept,
    TopNDelta,
    Typical,
)
from fsd_core.testing import judging_rules, open_session, recomputed_logits, related, toy_model, toy_pair, written
from tests.tools.sizes import size

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [7], [2, 7, 1, 8, 2, 8, 1, 8]]
SAMPLED = SamplingConfig(temperature=1.0, top_p=0.9)
LOSSY = {kind: rule for kind, rule in judging_rules().items() if not rule.lossless}


@pytest.fixture(scope="module")
def models() -> tuple[LanguageModel, LanguageModel]:
    target = toy_model(40, seed=11)
    return LanguageModel(target), LanguageModel(related(target, noise=0.3, seed=12))


def lenient(kind: str) -> Rule:
    """A rule where its grid forgives the most."""
    rule = LOSSY[kind]
    assert rule.knob is not None
    return rule.checked(**{rule.knob.field: rule.knob.by_leniency(rule.knob.grid)[-1]})


def rows(target: list[float], token: int, logits: list[float] | None = None, greedy: bool = False) -> ScoredDraft:
    """One position with a draft that is even over all tokens."""
    raw = torch.tensor([[target]])
    even = torch.full_like(raw, 1 / len(target))
    p, q = (one_hot(x.argmax(-1), len(target)) for x in (raw, even)) if greedy else (raw, even)
    known = raw.log() if logits is None else torch.tensor([[logits]])
    return ScoredDraft(torch.tensor([[token]]), p, q, raw, even, None, known, greedy)


def keeps(rule: Rule, position: ScoredDraft, uniform: float = 0.999) -> bool:
    u = torch.full((1, 1), uniform, dtype=torch.float64)
    return bool(rule.judge(position, u, u).accepted)


P = [0.5, 0.3, 0.15, 0.05]
ENTROPY = -sum(x * math.log(x) for x in P)


@pytest.mark.parametrize("greedy", [False, True])
def test_typical_acceptance_asks_more_of_a_token_the_surer_the_target_is(greedy):
    enough = 0.3 * math.exp(-ENTROPY)
    assert 0.05 < enough < 0.15
    assert [keeps(Typical(), rows(P, x, greedy=greedy)) for x in range(4)] == [True, True, True, False]
    always = Typical(posterior_threshold=0.04)
    assert keeps(always, rows(P, 3, greedy=greedy))
    sure = [0.97, 0.02, 0.005, 0.005]
    assert not keeps(Typical(), rows(sure, 1, greedy=greedy)), "less than 0.09"


@pytest.mark.parametrize("greedy", [False, True])
def test_the_relaxed_rule_keeps_the_first_n_within_delta(greedy):
    def kept(n, delta):
        return [keeps(TopNDelta(relaxed_topk=n, relaxed_delta=delta), rows(P, x, greedy=greedy)) for x in range(4)]

    assert kept(10, 0.6) == [True] * 4
    assert kept(2, 0.6) == [True, True, False, False]
    assert kept(10, 0.25) == [True, True, False, False]
    assert kept(10, 0.0) == [True, False, False, False]


def test_the_margin_rule_keeps_a_second_token_of_nearly_the_logit_of_the_first():
    def kept(logits, ratio, x):
        return keeps(Margin(logit_ratio=ratio), rows(torch.tensor(logits).softmax(-1).tolist(), x, logits))

    assert [kept([10.0, 9.5, 9.4], 0.9, x) for x in range(3)] == [True, True, False]
    assert not kept([10.0, 8.9, 1.0], 0.9, 1)
    assert not kept([-9.0, -10.0, -11.0], 0.9, 1), "a ratio of negative logits says nothing"
    assert kept([-9.0, -10.0, -11.0], 0.9, 0)
    shifted = [kept([logit + by for logit in (10.0, 8.0, 1.0)], 0.9, 1) for by in (0.0, 20.0)]
    assert shifted == [False, True], "as published, the rule changes when all logits are shifted"


def test_the_two_thresholds_of_sglang():
    assert keeps(ThresholdAccept(threshold_acc=0.5), rows([0.4, 0.6], 0), 0.79)
    assert not keeps(ThresholdAccept(threshold_acc=0.5), rows([0.4, 0.6], 0), 0.81)
    assert keeps(ThresholdAccept(threshold_acc=1, threshold_single=0.4), rows([0.4, 0.6], 0), 0.99)
    assert not keeps(ThresholdAccept(threshold_acc=1, threshold_single=0.5), rows([0.4, 0.6], 0), 0.99)


def chain(target: list[list[float]], tokens: list[int], lengths: list[int] | None = None) -> ScoredDraft:
    """A greedy chain, one position a row of ``target``."""
    raw, drafted = torch.tensor([target]), torch.tensor([tokens])
    q = one_hot(drafted, raw.shape[-1])
    own = None if lengths is None else torch.tensor(lengths)
    return ScoredDraft(drafted, one_hot(raw.argmax(-1), raw.shape[-1]), q, raw, q, greedy=True, lengths=own)


UNSURE, SURE = [0.4, 0.35, 0.2, 0.05], [0.97, 0.01, 0.01, 0.01]


def test_lookahead_forgives_a_mismatch_that_the_target_goes_along_with():
    rule = Lookahead(lookahead_entropy=0.3, lookahead_window=2)

    def kept(target, tokens, lengths=None):
        u = torch.zeros(1, len(tokens), dtype=torch.float64)
        return rule.judge(chain(target, tokens, lengths), u, u).accepted[0].tolist()

    assert kept([UNSURE] * 4, [1, 0, 0, 0]) == [True] * 4
    assert kept([SURE] * 4, [1, 0, 0, 0])[0] is False, "the target was sure of another"
    assert kept([UNSURE] * 4, [1, 0, 1, 0])[0] is False, "one of the next two fails too"
    assert kept([UNSURE] * 4, [0, 0, 1, 0])[2] is False, "only one token follows"
    assert kept([UNSURE] * 4, [1, 0, 0, 0], [3])[0] is True
    assert kept([UNSURE] * 4, [1, 0, 0, 0], [2])[0] is False, "what follows belongs to a longer draft"


def strict_cases() -> Iterator[tuple[str, SamplingConfig, DrafterSettings]]:
    """With sampling, a rule that judges its bonus drafts one more token a round, and one that drafts greedily other
    tokens, so that their uniforms are others than those of speculative decoding; check_rule tests what they write."""
    for kind, rule in LOSSY.items():
        for drafter in (DraftModelDrafter(), PromptLookupDrafter()):
            if rule.can_be_off() and (drafter.has_distribution or not rule.needs_distribution):
                yield kind, SamplingConfig(), drafter
                if not (rule().bonus_is_judged or rule.greedy_draft):
                    yield kind, SAMPLED, drafter


@pytest.mark.parametrize(("kind", "sampling", "drafter"), list(strict_cases()), ids=str)
def test_at_its_strict_value_a_rule_writes_what_speculative_decoding_writes(models, kind, sampling, drafter):
    """Token for token, with the same uniforms."""
    rule = LOSSY[kind].checked(**{LOSSY[kind].knob.field: LOSSY[kind].knob.strict})
    shared = {"sampling": sampling, "max_new_tokens": 20, "drafter": drafter, "topology": ChainTopology(length=4)}
    for seed, prompt in enumerate(PROMPTS):
        texts = [
            written(*models, DecodingConfig(acceptance=r, **shared), prompt, seed, ends=False)
            for r in (rule, Speculative())
        ]
        assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", LOSSY)
def test_greedily_a_rule_forgives_what_it_says(models, kind):
    """A rule with a note that it is exact SD at temperature 0 is, and every other one forgives something there."""
    config = DecodingConfig(acceptance=lenient(kind), topology=ChainTopology(length=16), max_new_tokens=size(40, 80))
    if kind == "lookahead":
        config = config.model_copy(update={"acceptance": Lookahead(lookahead_entropy=0.1, lookahead_window=1)})
    lenient_tokens = 0
    for prompt in PROMPTS:
        with open_session(*models, config, prompt, 0, frozenset()) as session:
            while session.stop_reason is None:
                lenient_tokens += session.run_round().kinds.count("lenient")
    assert (lenient_tokens == 0) == ("At temperature 0 it forgives nothing" in RULES[kind].greedy_note)


def test_greedily_the_ensemble_writes_the_likeliest_token_of_the_mixture(models):
    target, draft = models
    for weight in (0.7, 0.3):
        config = DecodingConfig(acceptance=Ensemble(target_weight=weight), max_new_tokens=25)
        text = written(target, draft, config, PROMPTS[0], ends=False)
        for i, token in enumerate(text[:-1]):  # the last is the target's, where the limit leaves no room for a draft
            p, q = (recomputed_logits(m, PROMPTS[0] + text[:i]).softmax(-1) for m in models)
            assert token == (weight * p + (1 - weight) * q).argmax()


@cache
def on_a_tree(
    models: tuple[LanguageModel, LanguageModel], rule: Rule, sampling: SamplingConfig
) -> tuple[list[list[int]], int]:
    """What a rule writes behind each prompt, and in how many rounds."""
    tree = DynamicTreeTopology(top_k=3, length=4, total_tokens=12)
    config = DecodingConfig(acceptance=rule, sampling=sampling, topology=tree, max_new_tokens=size(15, 30))
    texts, rounds = [], 0
    for seed, prompt in enumerate(PROMPTS):
        with open_session(*models, config, prompt, seed, frozenset()) as session:
            while session.stop_reason is None:
                session.run_round()
                rounds += 1
            texts.append(session.history[len(prompt) :])
    return texts, rounds


@pytest.mark.parametrize("sampling", [SamplingConfig(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", [kind for kind, rule in LOSSY.items() if TREE in rule.shapes])
def test_on_a_tree_a_rule_writes_the_best_child_or_as_speculative_decoding_does(models, kind, sampling):
    exact, rounds = on_a_tree(models, Speculative(), sampling)
    rule = LOSSY[kind]
    if rule.can_be_off():
        assert on_a_tree(models, rule.checked(**{rule.knob.field: rule.knob.strict}), sampling)[0] == exact
    assert on_a_tree(models, lenient(kind), sampling)[1] <= rounds


@pytest.mark.parametrize("kind", LOSSY)
def test_side_by_side_a_text_is_what_it_is_alone_and_begins_strictly(kind):
    """In a batch, with a limit that lets the texts draft different amounts; the first tokens are never lenient."""
    pair = toy_pair(noise=0.3)
    rule = lenient(kind) if kind != "lookahead" else Lookahead(lookahead_entropy=0.1, lookahead_window=1)
    config = DecodingConfig(
        acceptance=rule, topology=ChainTopology(length=4), sampling=SAMPLED, max_new_tokens=18, strict_first=3
    )
    decoder = PairDecoder(pair, config)
    decoder.eos = frozenset()
    alone = [decoder.generate(prompt, seed) for seed, prompt in enumerate(PROMPTS)]
    beside = dict(decoder.generate_all(PROMPTS, range(3), 2))
    for place, text in enumerate(alone):
        assert beside[place].tokens == text.tokens
        kinds = [kind for record in text.records for kind in record.kinds]
        assert "lenient" not in kinds[:3]


@pytest.mark.wide
def test_a_strict_beginning_is_written_as_speculative_decoding_writes_it(models):
    """`fsd` at its largest threshold keeps everything; with a strict beginning, not before that is over."""
    shared = {"sampling": SAMPLED, "max_new_tokens": 24, "topology": ChainTopology(length=4)}
    exact = DecodingConfig(acceptance=Speculative(), **shared)
    for topology in (ChainTopology(length=4), DynamicTreeTopology(top_k=3, length=4, total_tokens=12)):
        shared["topology"] = topology
        exact = DecodingConfig(acceptance=Speculative(), **shared)
        config = DecodingConfig(acceptance=Fuzzy(threshold=math.log(2)), strict_first=8, **shared)
        whole = config.model_copy(update={"strict_first": 24})
        loose = config.model_copy(update={"strict_first": 0})
        for seed, prompt in enumerate(PROMPTS):
            strict, begun, all_strict, free = (
                written(*models, c, prompt, seed, ends=False) for c in (exact, config, whole, loose)
            )
            assert all_strict == strict
            assert begun[:8] == strict[:8]
            assert begun != strict or free == strict
    assert "strict first 8" in config.label


@pytest.mark.parametrize("rule", [Speculative(), Block()])
def test_a_lossless_rule_takes_no_strict_beginning(rule):
    with pytest.raises(NotApplicable, match="strict_first"):
        DecodingConfig.checked(acceptance=rule, strict_first=2)


@pytest.mark.parametrize("kind", [kind for kind, rule in RULES.items() if CHAIN in rule.shapes])
def test_a_rule_that_asks_for_the_draft_refuses_copied_tokens(kind):
    for copying in (d for d in DRAFTERS.values() if not d.has_distribution):
        if kind == "fsd-official":
            with pytest.raises(IncompatibleOptions, match="infinite for a copied token"):
                DecodingConfig.checked(acceptance=RULES[kind](), drafter=copying())
        elif RULES[kind].needs_distribution:
            with pytest.raises(IncompatibleOptions, match="draft found other tokens"):
                DecodingConfig.checked(acceptance=RULES[kind](), drafter=copying())
        else:
            assert DecodingConfig(acceptance=RULES[kind](), drafter=copying()).drafter == copying()


@pytest.mark.parametrize(
    ("rule", "field", "wrong"),
    [
        (Ensemble, "target_weight", 1.1), (Mentored, "kl_budget", -0.1), (Head, "head_width", 2.0),
        (HeadStrict, "head_width", -1.0), (Typical, "posterior_threshold", 0.0), (Margin, "logit_ratio", 1.5),
        (Lookahead, "lookahead_window", 0), (TopNDelta, "relaxed_topk", 0), (Cascade, "trigger", "guess"),
        (Cascade, "deferral_cost", math.inf), (FuzzyHead, "threshold", 5.0),
    ],
)  # fmt: skip
def test_a_knob_out_of_its_range_is_refused_in_a_sentence(rule, field, wrong):
    with pytest.raises(InvalidSetting, match=r"^[A-Z].*expected .*") as raised:
        rule.checked(**{field: wrong})
    assert "\n" not in str(raised.value)
