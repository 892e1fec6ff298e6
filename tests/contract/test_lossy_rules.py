"""What the lossy rules write, against their formulas: on trees, in batches, greedily and begun strictly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

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
from fsd_core.ops.distributions import ScoredDraft, js, mentored, one_hot, reverse_kl, tv
from fsd_core.rules import (
    CHAIN,
    RULES,
    TREE,
    Block,
    Cactus,
    Cascade,
    Ears,
    Ensemble,
    Fuzzy,
    FuzzyHead,
    GeneralForm,
    Head,
    HeadStrict,
    Lenience,
    Lookahead,
    Margin,
    Mentored,
    Rule,
    ThresholdAccept,
    TopNDelta,
    Typical,
)
from fsd_core.testing import (
    Q_FAR,
    Q_NEAR,
    accepted_share,
    beginnings,
    fit,
    judging_rules,
    open_session,
    recomputed_logits,
    related,
    toy_model,
    toy_pair,
    try_position,
    written,
    written_distribution,
)
from fsd_core.testing import P as TESTING_P
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


p, q_near, q_far = (x.double().numpy() for x in (TESTING_P, Q_NEAR, Q_FAR))
EXACT = 2e-6


def overlap(a, b):
    return np.minimum(a, b).sum()


def ensemble(p, q, w):
    return w * p + (1 - w) * q


def head(p, q, width):
    kept = p >= (1 - width) * p.max()
    return np.where(kept, q, 0) + (1 - q[kept].sum()) * p


def cascade(p, q, trigger, cost):
    entropy = [-(x[x > 0] * np.log(x[x > 0])).sum() for x in (p, q)]
    apart = np.abs(p - q).sum() / 2
    defers = {
        "chow": q.max() < 1 - cost,
        "diff": q.max() < p.max() - cost,
        "opt": q.max() < p.max() - cost * apart,
        "entropy": entropy[1] > entropy[0] + cost * apart,
    }
    return p if defers[trigger] else q


def stock(p, q, kept):
    """What is written where a token is kept with such a chance, and replaced from norm((p−q)₊)."""
    rest = np.maximum(p - q, 0)
    rest = rest / rest.sum() if rest.sum() else p
    return q * kept + (q * (1 - kept)).sum() * rest


def ratio(p, q):
    return np.divide(p, q, out=np.full_like(p, np.inf), where=q > 0)


def lenience(p, q, share, own=True):
    kept = np.minimum(1, ratio(p, (1 - share) * q))
    rest = np.maximum(p - (1 - share) * q if own else p - q, 0)
    return q * kept + (q * (1 - kept)).sum() * rest / rest.sum()


def cactus(p, q, budget):
    written = np.zeros_like(p)
    for x in np.flatnonzero(q):
        raised = min(1, p[x] + math.sqrt(2 * budget * p[x] * (1 - p[x])))
        kept = min(1, raised / q[x])
        target = p * (1 - raised) / (1 - p[x])
        target[x] = raised
        rest = np.maximum(target - q, 0)
        written[x] += q[x] * kept
        written += q[x] * (1 - kept) * (rest / rest.sum() if rest.sum() else target)
    return written


def ears(p, q, tolerance):
    return stock(p, q, np.minimum(1, ratio(p, q) + tolerance * (1 - p.max())))


def head_strict(p, q, width):
    return stock(p, q, np.where(p >= (1 - width) * p.max(), 1, np.minimum(1, ratio(p, q))))


WRITTEN = [
    *((Ensemble(target_weight=w), ensemble, (w,)) for w in (0.95, 0.8, 0.3, 0.0)),
    *((Head(head_width=w), head, (w,)) for w in (0.0, 0.35, 0.8)),
    *(
        (Cascade(trigger=t, deferral_cost=c), cascade, (t, c))
        for t in ("chow", "diff", "opt", "entropy")
        for c in (-0.2, 0.0, 0.1, 0.75)
    ),
    *((Lenience(lenience=a), lenience, (a,)) for a in (0.1, 0.5, 0.9)),
    *((Lenience(lenience=a, stock_residual=True), lenience, (a, False)) for a in (0.1, 0.5, 0.9)),
    *((Cactus(cactus_budget=d), cactus, (d,)) for d in (0.1, 1.0, 10.0)),
    *((Ears(tolerance=t), ears, (t,)) for t in (0.1, 0.5)),
    *((HeadStrict(head_width=w), head_strict, (w,)) for w in (0.0, 0.2, 0.6)),
]


@pytest.mark.parametrize(("rule", "formula", "knob"), WRITTEN, ids=lambda x: str(x) if isinstance(x, str) else None)
@pytest.mark.parametrize("q", [q_near, q_far], ids=["near", "far"])
def test_what_a_rule_writes_is_its_formula(rule, formula, knob, q):
    written = written_distribution(rule, TESTING_P, torch.tensor(q, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(written, formula(p, q, *knob), atol=EXACT)


def test_the_rules_of_the_general_form_accept_the_overlap_of_their_distribution_with_the_draft():
    for rule, formula, knob in WRITTEN:
        if isinstance(rule, GeneralForm):
            assert accepted_share(rule, TESTING_P, Q_FAR) == pytest.approx(
                overlap(formula(p, q_far, *knob), q_far), abs=EXACT
            ), rule


def test_the_ensemble_accepts_one_less_its_weight_of_the_total_variation():
    for w in (0.9, 0.5):
        accepted = accepted_share(Ensemble(target_weight=w), TESTING_P, Q_FAR)
        assert accepted == pytest.approx(1 - w * tv(TESTING_P, Q_FAR).item(), abs=EXACT)


def test_fsd_head_is_the_head_rule_where_the_models_are_near_and_strict_elsewhere():
    d = js(TESTING_P, Q_FAR).item()
    near = written_distribution(FuzzyHead(threshold=d * 1.01, token_width=0.35), TESTING_P, Q_FAR).numpy()
    np.testing.assert_allclose(near, head(p, q_far, 0.35), atol=EXACT)
    apart = written_distribution(FuzzyHead(threshold=d * 0.99, token_width=0.35), TESTING_P, Q_FAR).numpy()
    np.testing.assert_allclose(apart, p, atol=EXACT)


def largest_overlap(p, q, budget):
    """max Σ min(π, q) over all π with KL(p‖π) ≤ budget, by a solver that knows nothing of the solution's shape."""
    n = len(p)
    found = minimize(
        lambda x: -x[n:].sum(), np.concatenate([p, np.minimum(p, q)]), jac=lambda x: np.repeat([0.0, -1.0], n),
        method="SLSQP", bounds=[(1e-9, 1)] * n + [(0, bound) for bound in q],
        constraints=[
            {"type": "ineq", "fun": lambda x: x[:n] - x[n:]},
            {"type": "eq", "fun": lambda x: x[:n].sum() - 1},
            {"type": "ineq", "fun": lambda x: budget - (p * np.log(p / x[:n])).sum()},
        ],
        options={"maxiter": 1000, "ftol": 1e-10},
    )  # fmt: skip
    assert found.success, found.message
    return -found.fun


class TestMentored:
    def pairs(self, vocabulary=200, rows=400):
        generator = torch.Generator().manual_seed(3)
        wide = torch.rand(rows, 1, generator=generator).double() * 4
        logits = torch.randn(rows, vocabulary, generator=generator).double() * wide
        other = logits + torch.randn(rows, vocabulary, generator=generator).double() * wide / 2
        return logits.softmax(-1), other.softmax(-1)

    @pytest.mark.parametrize("budget", [1e-4, 0.01, 0.2, 1.0])
    def test_the_budget_is_spent_to_a_millionth(self, budget):
        target, draft = self.pairs()
        own = mentored(target, draft, budget)
        assert (own.sum(-1) - 1).abs().max() < 1e-9
        spent, all_of_it = reverse_kl(target, own), reverse_kl(target, draft)
        assert (spent - all_of_it.clamp_max(budget)).abs().max() < 1e-6
        near = all_of_it <= budget
        assert torch.equal(own[near], draft[near])

    @pytest.mark.parametrize("budget", [0.01, 0.2])
    def test_nothing_within_the_budget_accepts_more(self, budget):

        target, draft = (x[:6, :6] / x[:6, :6].sum(-1, keepdim=True) for x in self.pairs(6, 6))
        for t, d, own in zip(target.numpy(), draft.numpy(), mentored(target, draft, budget).numpy(), strict=True):
            assert overlap(own, d) == pytest.approx(largest_overlap(t, d, budget), abs=2e-4)

    def test_its_ends_are_strict_decoding_and_the_draft(self):
        none = try_position(Mentored(kl_budget=0), TESTING_P, Q_NEAR, 20_000, seed=1)
        strict = try_position(Speculative(), TESTING_P, Q_NEAR, 20_000, seed=1)
        assert torch.equal(none.emitted, strict.emitted)
        enough = reverse_kl(TESTING_P, Q_NEAR).item() * 1.01
        every = try_position(Mentored(kl_budget=enough), TESTING_P, Q_NEAR, 20_000, seed=1)
        assert every.accepted.all()

    def test_a_token_that_the_draft_never_writes_costs_no_infinite_budget(self):
        target, draft = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.0, 0.9, 0.1])
        own = mentored(target, draft, 0.1)
        assert reverse_kl(target.double(), own).item() == pytest.approx(0.1, abs=1e-6)
        excluded = torch.tensor([0.0, 0.6, 0.4]), torch.tensor([0.7, 0.2, 0.1])
        assert mentored(*excluded, 0.1)[0] == 0

    @pytest.mark.parametrize("vocabulary", [2, 3, 50, 600])
    @pytest.mark.parametrize("budget", [1e-3, 0.1, 3.0])
    def test_tokens_that_one_or_both_of_the_models_exclude_leave_a_distribution_within_the_budget(
        self, vocabulary, budget
    ):
        generator = torch.Generator().manual_seed(5)
        kept = torch.rand(2, 2000, vocabulary, generator=generator) < 0.6
        kept[..., 0] = True
        sharp = (torch.randn(2, 2000, vocabulary, generator=generator) * 4).masked_fill(~kept, -torch.inf)
        even = kept / kept.sum(-1, keepdim=True)
        for target, draft in (sharp.softmax(-1), even):
            own = mentored(target, draft, budget)
            assert (own.sum(-1) - 1).abs().max() < 1e-6
            assert reverse_kl(target.double(), own.double()).max() < budget + 1e-6
            far = reverse_kl(target, draft) > budget * 1.001
            assert not own[far][target[far] == 0].any()

    @pytest.mark.parametrize("budget", [0.05, 0.5])
    def test_a_large_vocabulary_keeps_the_budget_and_loses_hardly_any_acceptance(self, budget):
        generator = torch.Generator().manual_seed(4)
        logits = torch.randn(8, 20_000, generator=generator).double() * 3
        other = logits + torch.randn(8, 20_000, generator=generator).double()
        target, draft = logits.softmax(-1), other.softmax(-1)
        own = mentored(target, draft, budget)
        assert (own.sum(-1) - 1).abs().max() < 1e-9
        assert (reverse_kl(target, own) - reverse_kl(target, draft).clamp_max(budget)).max() < 1e-6
        whole = whole_vocabulary(target, draft, budget)
        lost = whole.minimum(draft).sum(-1) - own.minimum(draft).sum(-1)
        assert lost.min() > -1e-6
        assert lost.max() < 0.001


def whole_vocabulary(target, draft, budget):
    """Mentored decoding with all tokens told apart."""
    import fsd_core.ops.distributions as code

    known, code.MAX_UNGROUPED = code.MAX_UNGROUPED, target.shape[-1]
    try:
        return mentored(target, draft, budget)
    finally:
        code.MAX_UNGROUPED = known


PROMPT = [0, 1, 2, 1]
TEXTS = size(600, 8_000)
AS_IT_IS = SamplingConfig(temperature=1.0)


@pytest.fixture(scope="module")
def general_models():
    target = toy_model(4, seed=21, hidden=16)
    return LanguageModel(target), LanguageModel(related(target, noise=0.5, seed=22))


def texts_by(models, formula, length=3):
    """The probability of every text whose tokens are drawn from a formula of p and q, [4^length]."""
    whole = np.ones(1)
    prefixes = [()]
    for _ in range(length):
        rows = []
        for prefix in prefixes:
            both = [recomputed_logits(m, PROMPT + list(prefix)).double().softmax(-1).numpy() for m in models]
            rows.append(formula(*both))
        whole = (whole[:, None] * np.stack(rows)).reshape(-1)
        prefixes = [(*prefix, token) for prefix in prefixes for token in range(4)]
    return torch.tensor(whole)


@pytest.mark.parametrize(
    ("rule", "formula", "length"),
    [
        (Ensemble(target_weight=0.3), lambda p, q: ensemble(p, q, 0.3), 1),
        (Ensemble(target_weight=0.3), lambda p, q: ensemble(p, q, 0.3), 3),
        (Head(head_width=0.6), lambda p, q: head(p, q, 0.6), 3),
        (Cascade(trigger="diff", deferral_cost=0.05), lambda p, q: cascade(p, q, "diff", 0.05), 2),
        (Mentored(kl_budget=0.05), lambda p, q: mentored(torch.tensor(p), torch.tensor(q), 0.05).numpy(), 3),
    ],
    ids=["ensemble-1", "ensemble", "head", "cascade", "mentored"],
)
def test_whole_texts_have_the_distribution_of_the_general_form_at_any_draft_length(
    general_models, rule, formula, length
):
    config = DecodingConfig(acceptance=rule, topology=ChainTopology(length=length), sampling=AS_IT_IS, max_new_tokens=4)
    found = beginnings(*general_models, config, PROMPT, 3, TEXTS)
    texts = (found * torch.tensor([16, 4, 1])).sum(-1)
    assert fit(texts, texts_by(general_models, formula)) > 1e-4
    assert fit(texts, texts_by(general_models, lambda p, q: p)) < 1e-6, (
        "the target's own distribution must be told apart"
    )
