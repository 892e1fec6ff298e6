"""Several drafts per position: every verifier writes as the target does and accepts as theory says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsd_core.config import (
    Autoregressive,
    DecodingConfig,
    Fuzzy,
    MultiDraftTopology,
    PromptLookupDrafter,
    SamplingConfig,
    Speculative,
)
from fsd_core.decoding.verification import written_token
from fsd_core.errors import IncompatibleOptions
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.distributions import DraftDistribution, draw, draw_several
from fsd_core.ops.kernels import TreeAttention, ancestors
from fsd_core.rules import (
    RULES,
    VERIFIERS,
    CouplingResult,
    Drafts,
    GreedyOptimal,
    KSeq,
    RecursiveRejection,
    RecursiveRejectionWithout,
    SpecHub,
    Verifier,
)
from fsd_core.testing import (
    Q_FAR,
    Q_NEAR,
    P,
    beginnings,
    check_rule,
    distribution_of_texts,
    drafted,
    fit,
    next_logits,
    open_session,
    recomputed_logits,
    related,
    run,
    toy_model,
    written,
)
from fsd_core.theory import Vector
from fsd_core.topologies import MultiDraft
from tests.contract.test_loop import PROMPTS, SAMPLED
from tests.tools.sizes import size

TOKENS = size(25, 50)
ALL = [rule() for rule in VERIFIERS.values()]


def shape(rule, length: int = 3, drafts: int = 3) -> MultiDraftTopology:
    return MultiDraftTopology(length=length, drafts=2 if rule.kind == "spec-hub" else drafts)


@pytest.fixture(scope="module")
def models() -> tuple[LanguageModel, LanguageModel]:
    target = toy_model(40, seed=11)
    return LanguageModel(target), LanguageModel(related(target, noise=0.15, seed=12))


@pytest.fixture(scope="module")
def greedy(models) -> list[list[int]]:
    """What the target alone writes behind each prompt."""
    config = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=TOKENS)
    return [written(*models, config, prompt, ends=False) for prompt in PROMPTS]


@pytest.mark.parametrize("rule", ALL, ids=str)
@pytest.mark.parametrize("length", [1, 4])
def test_greedily_it_is_the_greedy_target(models, greedy, rule, length):
    for prompt, alone in zip(PROMPTS, greedy, strict=True):
        config = DecodingConfig(acceptance=rule, topology=shape(rule, length), max_new_tokens=TOKENS)
        assert written(*models, config, prompt, ends=False) == alone


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_caches_hold_what_was_kept_and_nothing_else(models, rule):
    config = DecodingConfig(acceptance=rule, topology=shape(rule), sampling=SAMPLED, max_new_tokens=40)
    session = open_session(*models, config, PROMPTS[0], seed=3, eos=frozenset())
    kept = 0
    while session.stop_reason is None:
        record = session.run_round()
        kept += record.accepted
        assert record.emitted[: record.accepted] == record.drafted[: record.accepted]
        assert session.cache.length == len(session.history) - 1
        torch.testing.assert_close(
            next_logits(session), recomputed_logits(models[0], session.history), atol=1e-4, rtol=1e-4
        )
    assert kept > 5


@pytest.mark.parametrize("rule", [RecursiveRejection(), KSeq(), RecursiveRejectionWithout(), GreedyOptimal()], ids=str)
@pytest.mark.parametrize("lean", [True, False])
def test_a_draft_that_is_the_target_is_always_kept(rule, lean):
    """Which it would not be if it read a cache in which a rejected branch was left."""
    target = LanguageModel(toy_model(40, seed=11), lean=lean)
    config = DecodingConfig(
        acceptance=rule, topology=shape(rule), sampling=SamplingConfig(temperature=1.0), max_new_tokens=60
    )
    session = open_session(target, target, config, PROMPTS[2], seed=1, eos=frozenset())
    rounds = []
    while session.stop_reason is None:
        rounds.append(session.run_round())
    full = [record.accepted == len(record.drafted) for record in rounds]
    assert all(full) or rule.kind == "greedy-optimal"  # whose certain drafts may be what p likes less
    assert sum(full) > len(full) / 3
    assert "bonus" in {record.kinds[-1] for record in rounds}


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_the_distribution_of_whole_texts_is_the_targets(rule):
    """χ² against the target's exact distribution, by enumeration; it tells the draft's from it."""
    vocabulary, prompt, length = 5, [0, 1, 2, 1], 2
    module = toy_model(vocabulary, seed=21, layers=1, hidden=16)
    target, draft = LanguageModel(module), LanguageModel(related(module, noise=1.0, seed=22))
    config = DecodingConfig(
        acceptance=rule, topology=shape(rule, 2), sampling=SamplingConfig(temperature=1.0), max_new_tokens=length + 1
    )
    texts = beginnings(target, draft, config, prompt, length, size(300, 1200))
    emitted = texts[:, 0] * vocabulary + texts[:, 1]
    assert fit(emitted, distribution_of_texts(target, prompt, length)) > 1e-4
    assert fit(emitted, distribution_of_texts(draft, prompt, length)) < 1e-9


def test_a_truncated_draft_that_has_fewer_tokens_than_drafts(models, greedy):
    """Top-k 1 leaves one token to draw: it is drafted, and the text is the greedy one."""
    for rule in ALL:
        sampling = SamplingConfig(temperature=1.0, top_k=1)
        config = DecodingConfig(acceptance=rule, topology=shape(rule), sampling=sampling, max_new_tokens=20)
        assert written(*models, config, PROMPTS[0], ends=False) == greedy[0][:20]


def test_a_node_sees_the_text_and_what_is_above_it():
    attends_to = ancestors(torch.tensor([-1, -1, 0, 0, 2]), 3)
    assert attends_to.int().tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 1, 0, 1],
    ]
    tree_attention = TreeAttention(2, torch.tensor([0, 0, 1, 1, 2]), attends_to)
    assert tree_attention.position_ids(2).tolist() == [[3, 4]]
    assert tree_attention.mask(2)[0, 0].int().tolist() == [[1, 1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 1, 0, 1]]
    assert tree_attention.mask(2, window=2)[0, 0].int().tolist() == [[0, 0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 1, 0, 1]]


def test_what_cannot_be_is_refused(models):
    for rule, topology, told in (
        (Speculative(), MultiDraftTopology(), "choose it, or one of rrs, "),
        (KSeq(), {"kind": "chain"}, "judges drafts of the shape 'multi-draft'"),
        (Fuzzy(), MultiDraftTopology(), "judges drafts of the shape 'chain'"),
        (SpecHub(), MultiDraftTopology(drafts=3), "couples 2 drafts, not 3"),
    ):
        with pytest.raises(IncompatibleOptions, match=told):
            DecodingConfig.checked(acceptance=rule, topology=topology)
    with pytest.raises(IncompatibleOptions, match="a distribution of its own"):
        DecodingConfig.checked(acceptance=KSeq(), drafter=PromptLookupDrafter())
    assert DecodingConfig(acceptance=SpecHub()).topology == MultiDraftTopology(drafts=2)
    assert DecodingConfig(acceptance=KSeq()).label == "K-SEQ · 3 drafts · γ 5"


def test_a_text_fills_the_context_and_does_not_overrun_it(models):
    config = DecodingConfig(acceptance=KSeq(), max_new_tokens=500)
    session = run(open_session(*models, config, [1, 2, 3] * 80, 0, eos=frozenset()))
    assert (session.stop_reason, len(session.history)) == ("context", models[0].context)


def test_what_chains_share_is_fed_once_and_counted_as_often_as_it_was_drawn():
    """A draft that is nearly certain: three chains are mostly one way, which three drafts stand for."""
    distribution = torch.tensor([[0.02, 0.9, 0.08]])
    tree = MultiDraft(3, 3, "with_replacement").grow(
        DraftDistribution(distribution, distribution),
        _Always(distribution),
        3,
        torch.tensor([[0.5, 0.5, 0.95, 0.5, 0.5, 0.5, 0.5, 0.01, 0.5]]),
        False,
    )
    assert tree is not None
    assert tree.structure is not None
    assert tree.tokens.tolist() == [[1, 2, 1, 1, 1, 0, 1]]
    assert tree.structure.parents.tolist() == [-1, -1, 0, 1, 2, 2, 3]
    assert tree.structure.levels.tolist() == [1, 1, 2, 2, 3, 3, 3]
    assert tree.structure.chains is not None
    assert tree.structure.chains.tolist() == [[0, 0, 1], [2, 2, 3], [4, 5, 6]]
    assert tree.structure.fed.tolist() == [0, 2, 3, 5, 6, 7, 8]


class _Always:
    """A drafter that says the same wherever it is asked."""

    def __init__(self, distribution: torch.Tensor) -> None:
        self.distribution = distribution

    def extend(self, token):
        raise AssertionError("several drafts are fed level by level")

    def extend_level(self, tokens, parents) -> DraftDistribution:
        distributions = self.distribution.expand(tokens.shape[1], -1)
        return DraftDistribution(distributions, distributions)


N = size(100_000, 400_000)


@pytest.mark.parametrize("kind", VERIFIERS)
def test_every_verifier_keeps_the_contract(kind: str) -> None:
    check_rule(VERIFIERS[kind], N)


class Fresh(RecursiveRejection):
    """Draws from p where every draft is refused, not from what is left of it."""

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return super().couple(drafts, uniforms)._replace(residual=drafts.target)


class Boaster(RecursiveRejection):
    """Says that it accepts more often than it does."""

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        return super().rate(p, q, count + 1, samples)


@pytest.mark.parametrize(("verifier", "message"), [(Fresh, "another distribution"), (Boaster, "and its rate is")])
def test_a_verifier_that_breaks_the_contract_is_told_of_it(
    monkeypatch: pytest.MonkeyPatch, verifier: type[Verifier], message: str
) -> None:
    monkeypatch.setitem(RULES._things, "rrs", verifier)
    monkeypatch.setitem(VERIFIERS._things, "rrs", verifier)
    with pytest.raises(AssertionError, match=message):
        check_rule(verifier, N)


def coupling_written(name: str, drafts: Drafts, uniforms: Tensor) -> Tensor:
    return written_token(VERIFIERS[name](), drafts, uniforms)


@pytest.mark.parametrize("q", [Q_NEAR, Q_FAR], ids=["near", "far"])
def test_drafts_are_drawn_as_their_name_says(q: Tensor) -> None:
    u = torch.rand(N, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    wide = q.expand(N, -1)
    for sampling in ("with_replacement", "without_replacement"):
        assert fit(draw_several(wide, u, sampling)[:, 0], q) > 1e-4
    apart = draw_several(wide, u, "without_replacement")
    assert (apart[:, 0] != apart[:, 1]).all()
    first = int(q.argmax())
    behind = apart[apart[:, 0] == first][:, 1]
    assert fit(behind, q.index_fill(0, torch.tensor(first), 0)) > 1e-4
    greedy = draw_several(wide, u, "greedy")
    assert (greedy[:, 0] == first).all()
    assert fit(greedy[:, 1], q.index_fill(0, torch.tensor(first), 0)) > 1e-4


def test_the_negative_controls_are_told_from_the_target() -> None:
    """The same test at the same size fails where the residual is wrong, or drafts are of another kind."""
    drafts, uniforms = drafted(VERIFIERS["rrs"], Q_FAR, 2, N, seed=9)
    x, kept = drafts.tokens[:, 0], torch.minimum(P / Q_FAR.clamp_min(1e-9), torch.ones(()))
    fresh = torch.where(uniforms[:, 0] < kept[x], x, draw(drafts.target, uniforms[:, -1]))  # p, not the residual
    assert fit(fresh, P) < 1e-9
    apart, uniforms = drafted(VERIFIERS["rrs-without-replacement"], Q_FAR, 3, N, seed=9)
    assert fit(coupling_written("rrs", apart, uniforms), P) < 1e-9
    together, uniforms = drafted(VERIFIERS["rrs"], Q_FAR, 3, N, seed=9)
    assert (
        fit(coupling_written("greedy-optimal", together, uniforms), P) > 1e-4
    )  # its last draft is a sample of q: plain SD


def test_where_both_are_the_same_the_first_draft_is_written() -> None:
    drafts, uniforms = drafted(VERIFIERS["rrs"], P, 2, N, seed=4)
    for name in ("rrs", "k-seq", "naive"):
        assert torch.equal(coupling_written(name, drafts, uniforms), drafts.tokens[:, 0])
