"""What the lossy rules write, against their formulas worked out apart from their code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fsd_core.config import ChainTopology, DecodingConfig, SamplingConfig, Speculative
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.distributions import js, mentored, reverse_kl, tv
from fsd_core.rules import Cactus, Cascade, Ears, Ensemble, FuzzyHead, GeneralForm, Head, HeadStrict, Lenience, Mentored
from fsd_core.testing import (
    Q_FAR,
    Q_NEAR,
    P,
    accepted_share,
    beginnings,
    fit,
    recomputed_logits,
    related,
    toy_model,
    try_position,
    written_distribution,
)
from tests.tools.sizes import size

p, q_near, q_far = (x.double().numpy() for x in (P, Q_NEAR, Q_FAR))
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
    written = written_distribution(rule, P, torch.tensor(q, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(written, formula(p, q, *knob), atol=EXACT)


def test_the_rules_of_the_general_form_accept_the_overlap_of_their_distribution_with_the_draft():
    for rule, formula, knob in WRITTEN:
        if isinstance(rule, GeneralForm):
            assert accepted_share(rule, P, Q_FAR) == pytest.approx(
                overlap(formula(p, q_far, *knob), q_far), abs=EXACT
            ), rule


def test_the_ensemble_accepts_one_less_its_weight_of_the_total_variation():
    for w in (0.9, 0.5):
        accepted = accepted_share(Ensemble(target_weight=w), P, Q_FAR)
        assert accepted == pytest.approx(1 - w * tv(P, Q_FAR).item(), abs=EXACT)


def test_fsd_head_is_the_head_rule_where_the_models_are_near_and_strict_elsewhere():
    d = js(P, Q_FAR).item()
    near = written_distribution(FuzzyHead(threshold=d * 1.01, token_width=0.35), P, Q_FAR).numpy()
    np.testing.assert_allclose(near, head(p, q_far, 0.35), atol=EXACT)
    apart = written_distribution(FuzzyHead(threshold=d * 0.99, token_width=0.35), P, Q_FAR).numpy()
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
        none = try_position(Mentored(kl_budget=0), P, Q_NEAR, 20_000, seed=1)
        strict = try_position(Speculative(), P, Q_NEAR, 20_000, seed=1)
        assert torch.equal(none.emitted, strict.emitted)
        enough = reverse_kl(P, Q_NEAR).item() * 1.01
        every = try_position(Mentored(kl_budget=enough), P, Q_NEAR, 20_000, seed=1)
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
def models():
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
def test_whole_texts_have_the_distribution_of_the_general_form_at_any_draft_length(models, rule, formula, length):
    config = DecodingConfig(acceptance=rule, topology=ChainTopology(length=length), sampling=AS_IT_IS, max_new_tokens=4)
    found = beginnings(*models, config, PROMPT, 3, TEXTS)
    texts = (found * torch.tensor([16, 4, 1])).sum(-1)
    assert fit(texts, texts_by(models, formula)) > 1e-4
    assert fit(texts, texts_by(models, lambda p, q: p)) < 1e-6, "the target's own distribution must be told apart"
