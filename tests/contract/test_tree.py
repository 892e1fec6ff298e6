"""Trees within the loop: identities token for token, caches, distributions of texts, fuzzy rules at a node."""

from __future__ import annotations

import math

import pytest
import torch

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftModelDrafter,
    DynamicTreeTopology,
    EagleDrafter,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    MultiDraftTopology,
    PromptLookupDrafter,
    SamplingConfig,
    SearchTreeTopology,
    Speculative,
    TrigramDrafter,
)
from fsd_core.decoding import verification
from fsd_core.decoding.verification import NodeResult, SingleDraftNode, verify_tree
from fsd_core.errors import IncompatibleOptions, InvalidSetting, OutOfRange
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.distributions import draw
from fsd_core.rules import KSeq, RecursiveRejectionWithout
from fsd_core.testing import (
    beginnings,
    distribution_of_texts,
    fit,
    next_logits,
    open_session,
    recomputed_logits,
    related,
    run,
    toy_head,
    toy_model,
    written,
)
from fsd_core.topologies import DraftTree, TreeStructure
from tests.contract.test_loop import PROMPTS, SAMPLED
from tests.tools.sizes import size

TOKENS = size(25, 50)
TREES = (
    DynamicTreeTopology(top_k=3, length=4, total_tokens=12),
    DynamicTreeTopology(top_k=10, length=6, total_tokens=60),
    DynamicTreeTopology(top_k=2, length=1, total_tokens=9),
    DynamicTreeTopology(top_k=1, length=5, total_tokens=60),
)
DRAFTERS = {"draft-model": (DraftModelDrafter(), None), "eagle": (EagleDrafter(), 1), "eagle-3": (EagleDrafter(), 3)}


@pytest.fixture(scope="module")
def modules():
    target = toy_model(40, seed=11, layers=4)
    return target, related(target, noise=0.15, seed=12)


@pytest.fixture(scope="module")
def models(modules) -> tuple[LanguageModel, LanguageModel]:
    return LanguageModel(modules[0]), LanguageModel(modules[1])


@pytest.fixture(params=DRAFTERS, scope="module")
def drafting(request, modules):
    """A drafter and the head that it needs."""
    config, generation = DRAFTERS[request.param]
    return config, None if generation is None else toy_head(modules[0], generation, seed=5)


@pytest.fixture(scope="module")
def greedy(models) -> list[list[int]]:
    """What the target alone writes behind each prompt."""
    config = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=TOKENS)
    return [written(*models, config, prompt, ends=False) for prompt in PROMPTS]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_greedily_it_is_the_greedy_target(models, greedy, drafting, tree):
    drafter, head = drafting
    for prompt, alone in zip(PROMPTS, greedy, strict=True):
        config = DecodingConfig(acceptance=Speculative(), drafter=drafter, topology=tree, max_new_tokens=TOKENS)
        assert written(*models, config, prompt, ends=False, head=head) == alone


LOOKUPS = {"trigram": TrigramDrafter(), "trigram-run": TrigramDrafter(memory="run"), "lookup": PromptLookupDrafter()}


def rounds_of(target, prompt, **parts) -> list[tuple]:
    """What each round drafts and writes, with the target alone."""
    config = DecodingConfig(acceptance=Speculative(), max_new_tokens=TOKENS, **parts)
    session, rounds = open_session(target, None, config, prompt, 0, frozenset()), []
    while session.stop_reason is None:
        record = session.run_round()
        rounds.append((record.drafted, record.emitted))
    return rounds


@pytest.mark.parametrize("total_tokens", [2, 9, 60])
@pytest.mark.parametrize("drafter", LOOKUPS.values(), ids=LOOKUPS)
def test_greedily_a_search_tree_is_the_greedy_target(models, greedy, drafter, total_tokens):
    """Of two tokens, the root included, a tree of a table is a chain of one in every round."""
    for prompt, alone in zip(PROMPTS, greedy, strict=True):
        tree = SearchTreeTopology(total_tokens=total_tokens, length=4)
        rounds = rounds_of(models[0], prompt, drafter=drafter, topology=tree)
        assert [token for _, emitted in rounds for token in emitted] == alone
        if total_tokens == 2 and isinstance(drafter, TrigramDrafter):
            assert rounds == rounds_of(models[0], prompt, drafter=drafter, topology=ChainTopology(length=1))


@pytest.mark.parametrize("shape", [ChainTopology(length=4), MultiDraftTopology(length=3)], ids=str)
def test_a_head_drafts_in_any_shape(models, modules, greedy, shape):
    rule = KSeq() if isinstance(shape, MultiDraftTopology) else Speculative()
    for generation in (1, 3):
        head = toy_head(modules[0], generation)
        for prompt, alone in zip(PROMPTS, greedy, strict=True):
            config = DecodingConfig(acceptance=rule, drafter=EagleDrafter(), topology=shape, max_new_tokens=20)
            assert written(*models, config, prompt, ends=False, head=head) == alone[:20]


@pytest.mark.parametrize("lean", [True, False])
def test_caches_hold_what_was_kept_and_nothing_else(modules, drafting, lean):
    drafter, head = drafting
    target, draft = (LanguageModel(module, lean=lean) for module in modules)
    config = DecodingConfig(
        acceptance=Speculative(), drafter=drafter, topology=TREES[0], sampling=SAMPLED, max_new_tokens=40
    )
    session, kept = open_session(target, draft, config, PROMPTS[0], 3, frozenset(), head), 0
    while session.stop_reason is None:
        record = session.run_round()
        kept += record.accepted
        assert record.emitted[: record.accepted] == record.drafted[: record.accepted]
        assert session.cache.length == len(session.history) - 1
        torch.testing.assert_close(
            next_logits(session), recomputed_logits(target, session.history), atol=1e-4, rtol=1e-4
        )
    assert kept > 2


def test_a_draft_that_is_the_target_is_always_kept():
    """Greedily. Which it would not be if it read a cache in which a rejected branch was left."""
    target = LanguageModel(toy_model(40, seed=11))
    config = DecodingConfig(acceptance=Speculative(), topology=TREES[0], max_new_tokens=60)
    session = open_session(target, target, config, PROMPTS[2], 1, frozenset())
    while session.stop_reason is None:
        record = session.run_round()
        assert record.accepted == len(record.drafted)
        assert record.kinds[-1] in ("bonus", "plain")


@pytest.mark.parametrize("topology", [DynamicTreeTopology(top_k=2, length=2, total_tokens=5), ChainTopology(length=2)])
def test_the_distribution_of_whole_texts_is_the_targets(drafting, topology):
    """χ² against the target's exact distribution, by enumeration; it tells the draft's from it."""
    vocabulary, prompt, length = 5, [0, 1, 2, 1], 2
    drafter, head = drafting
    layers = 1 if head is None or head.generation == 1 else 4  # a head of generation 3 reads three of them
    module = toy_model(vocabulary, seed=21, layers=layers, hidden=16)
    target, draft = LanguageModel(module), LanguageModel(related(module, noise=1.0, seed=22))
    head = None if head is None else toy_head(module, head.generation, seed=3)
    config = DecodingConfig(
        acceptance=Speculative(),
        drafter=drafter,
        topology=topology,
        sampling=SamplingConfig(temperature=1.0),
        max_new_tokens=length + 2,
    )
    texts = beginnings(target, draft, config, prompt, length, size(300, 1500), head)
    emitted = texts[:, 0] * vocabulary + texts[:, 1]
    assert fit(emitted, distribution_of_texts(target, prompt, length)) > 1e-4
    assert fit(emitted, distribution_of_texts(draft, prompt, length)) < 1e-9


class Published(SingleDraftNode):
    """The published check of a drafted token: each of its paths draws from the target, and the longest match wins. If
    none matches, another token is drawn from the whole target, and not from what is left of it."""

    paths = 4

    def num_uniforms(self, structure):
        return self.paths + 1

    def __call__(self, tree, structure, node, uniforms):
        draws = torch.cat([draw(node.target, one[None]) for one in uniforms])
        matches = draws[:-1] == tree.tokens[0, node.first]
        written = torch.where(matches.any() & node.children.any(), tree.tokens[0, node.first], draws[-1:])
        return NodeResult(written, torch.ones_like(written, dtype=torch.bool), torch.zeros(1))


@pytest.mark.wide
@pytest.mark.parametrize(("paths", "expected"), [(1, (0.75, 0.15, 0.1)), (4, (0.96875, 0.01875, 0.0125))])
def test_the_published_check_of_a_search_tree_prefers_what_was_drafted(paths, expected):
    """On p = (.5, .3, .2) with token 0 drafted; ours follows p."""
    p, many = torch.tensor([[0.5, 0.3, 0.2]]), size(2000, 10000)
    structure = TreeStructure(*(torch.tensor([value]) for value in (-1, 1, 0, 0)))
    row = torch.tensor([[[1.0, 0.0, 0.0]]])
    tree = DraftTree(torch.tensor([[0]]), 1, row, row, structure)
    sampling, generator = SamplingConfig(temperature=1.0), torch.Generator().manual_seed(paths)
    uniforms = torch.rand(many, 2, paths + 2, dtype=torch.float64, generator=generator)
    published = Published(Speculative(), sampling)
    published.paths = paths
    logits = p.log().expand(1, 2, 3)
    for verifier, law, other in (
        (published, torch.tensor(expected), p[0]),
        (SingleDraftNode(Speculative(), sampling), p[0], torch.tensor(expected)),
    ):
        rounds = (
            verify_tree(tree, structure, logits, verifier, sampling, taken)
            for taken in uniforms[..., : verifier.num_uniforms(structure)]
        )
        written = torch.stack([round_.emitted[0, 0] for round_ in rounds])
        assert fit(written, law) > 1e-4
        assert fit(written, other) < 1e-9


@pytest.mark.wide
@pytest.mark.parametrize("drafter", [TrigramDrafter(), PromptLookupDrafter()], ids=lambda one: one.kind)
def test_whole_texts_of_a_search_tree_follow_the_target_and_those_of_the_published_check_do_not(monkeypatch, drafter):
    """χ² against the target's exact distribution, by enumeration."""
    vocabulary, prompt, length = 5, [0, 1, 2, 1, 3, 1, 2, 4, 2, 1], 2
    target = LanguageModel(toy_model(vocabulary, seed=21, layers=1, hidden=16))
    config = DecodingConfig(
        acceptance=Speculative(), drafter=drafter, topology=SearchTreeTopology(length=2, total_tokens=5),
        sampling=SamplingConfig(temperature=1.0), max_new_tokens=length + 2,
    )  # fmt: skip
    exact = distribution_of_texts(target, prompt, length)

    def fits() -> float:
        texts = beginnings(target, target, config, prompt, length, size(300, 1500))
        return fit(texts[:, 0] * vocabulary + texts[:, 1], exact)

    assert fits() > 1e-4
    monkeypatch.setattr(verification, "SingleDraftNode", Published)
    assert fits() < 1e-9


def test_a_fuzzy_rule_keeps_the_drafts_favourite_down_to_a_leaf(models):
    """Every node is near enough at the largest threshold, so that what is kept is the draft's own greedy text."""
    for rule in (Fuzzy(threshold=math.log(2)), FuzzyReducible(threshold=math.log(2))):
        config = DecodingConfig(acceptance=rule, topology=TREES[0], max_new_tokens=40)
        session, lenient = open_session(*models, config, PROMPTS[1], 0, frozenset()), 0
        while session.stop_reason is None:
            before = list(session.history)
            record = session.run_round()
            config_of_draft = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=8)
            favourite = written(models[1], models[1], config_of_draft, before, ends=False)
            assert record.accepted == len(record.drafted)
            assert list(record.emitted[: record.accepted]) == favourite[: record.accepted]
            lenient += sum(kind == "lenient" for kind in record.kinds)
        assert lenient > 2


def test_an_intermediate_threshold_lies_between(models):
    """Tokens a round grow with the threshold; off, and at 0, the text is the greedy target's."""
    alone = written(*models, DecodingConfig(acceptance=Autoregressive(), max_new_tokens=60), PROMPTS[0], ends=False)
    rounds = []
    for threshold in (None, 0.0, 0.05, math.log(2)):
        config = DecodingConfig(acceptance=Fuzzy(threshold=threshold), topology=TREES[0], max_new_tokens=60)
        session, count = open_session(*models, config, PROMPTS[0], 0, frozenset()), 0
        while session.stop_reason is None:
            session.run_round()
            count += 1
        rounds.append(count)
        if not threshold:
            assert session.history[len(PROMPTS[0]) :] == alone
    assert rounds[0] == rounds[1] >= rounds[2] >= rounds[3] < rounds[0]


def test_what_cannot_be_is_refused(models, modules):
    with pytest.raises(IncompatibleOptions, match="a distribution of its own"):
        DecodingConfig.checked(acceptance=Speculative(), drafter=PromptLookupDrafter(), topology=DynamicTreeTopology())
    with pytest.raises(IncompatibleOptions, match="multi-draft"):
        DecodingConfig.checked(acceptance=RecursiveRejectionWithout(), topology=DynamicTreeTopology())
    search = SearchTreeTopology()
    looked_up = "looks nothing up: choose the drafter 'prompt-lookup' or 'suffix' or 'trigram'"
    for drafter in (DraftModelDrafter(), EagleDrafter()):
        with pytest.raises(IncompatibleOptions, match=looked_up):
            DecodingConfig.checked(acceptance=Speculative(), drafter=drafter, topology=search)
    with pytest.raises(IncompatibleOptions, match="or a chain or a search tree"):
        DecodingConfig.checked(acceptance=Speculative(), drafter=TrigramDrafter(), topology=DynamicTreeTopology())
    with pytest.raises(IncompatibleOptions, match="is infinite for a copied token"):
        DecodingConfig.checked(acceptance=Fuzzy(divergence="ag"), drafter=TrigramDrafter(), topology=search)
    with pytest.raises(OutOfRange, match="Total tokens"):
        SearchTreeTopology.checked(total_tokens=1)
    config = DecodingConfig(acceptance=Speculative(), drafter=EagleDrafter())
    with pytest.raises(InvalidSetting, match="trained for the target"):
        open_session(*models, config, PROMPTS[0], 0, frozenset())
    reduced = toy_head(modules[0], covered=30)
    for rule in (FuzzyOfficial(), Fuzzy(divergence="reverse-kl", threshold=1.0)):
        with pytest.raises(IncompatibleOptions, match="this EAGLE head"):
            open_session(
                *models, DecodingConfig(acceptance=rule, drafter=EagleDrafter()), PROMPTS[0], 0, frozenset(), reduced
            )
    finite = DecodingConfig(acceptance=Fuzzy(), drafter=EagleDrafter(), topology=TREES[0], max_new_tokens=20)
    run(open_session(*models, finite, PROMPTS[0], 0, frozenset(), reduced))
    assert DecodingConfig(acceptance=Speculative(), topology=TREES[0]).label == "SD · tree 12 · top 3 · γ 4"


def test_a_text_fills_the_context_and_does_not_overrun_it(models, drafting):
    drafter, head = drafting
    config = DecodingConfig(acceptance=Speculative(), drafter=drafter, topology=TREES[1], max_new_tokens=500)
    session = run(open_session(*models, config, [1, 2, 3] * 80, 0, frozenset(), head))
    assert (session.stop_reason, len(session.history)) == ("context", models[0].context)
