"""The one place where a configuration and loaded models become the parts of a method."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from fsd_core.acceptance.multi_draft import COUPLINGS
from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftOnly,
    DynamicTreeTopology,
    EagleDrafter,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    MultiDraftTopology,
    PromptLookupDrafter,
    SamplingConfig,
    Speculative,
)
from fsd_core.config.drafting import DrafterConfig, TopologyConfig
from fsd_core.decoding.composition import compose
from fsd_core.decoding.session import Session
from fsd_core.decoding.verification.chain import ChainVerification
from fsd_core.decoding.verification.tree import TreeVerification
from fsd_core.drafters import DRAFTERS, DraftModelDrafter, drafter_factory
from fsd_core.errors import InvalidSetting, PromptTooLong, UnknownName
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.model_set import ModelSet
from fsd_core.rules import EVERY_RULE, VERIFIERS, Rule
from fsd_core.rules.several import KSeq
from fsd_core.testing.toy import related, toy_head, toy_model
from fsd_core.topologies import TOPOLOGIES, VerifiedAs, make_topology
from fsd_core.values import members


@pytest.fixture(scope="module")
def models() -> ModelSet:
    target = toy_model(40, seed=11, layers=4, context=64)
    draft = related(toy_model(40, seed=11, layers=1, context=48), noise=0.1, seed=12)
    return ModelSet(LanguageModel(target), LanguageModel(draft), toy_head(target, 3))


def test_every_configuration_has_its_implementation() -> None:
    assert DRAFTERS.keys() == members(DrafterConfig).keys()
    assert TOPOLOGIES.keys() == members(TopologyConfig).keys()
    assert VERIFIERS.keys() == COUPLINGS.keys()
    single = [rule for kind, rule in EVERY_RULE.items() if not rule.baseline and kind not in VERIFIERS]
    assert all(rule.judge is not Rule.judge and rule.correction is not Rule.correction for rule in single)
    assert {topology.verified_as for topology in TOPOLOGIES.values()} == set(get_args(VerifiedAs))


def test_baselines_draft_nothing_and_are_written_by_one_model(models: ModelSet) -> None:
    target, draft = (compose(models, DecodingConfig(acceptance=rule)) for rule in (Autoregressive(), DraftOnly()))
    assert target.speculation is draft.speculation is None
    assert (target.model, draft.model) == (models.target, models.draft)
    assert (target.context, draft.context) == (64, 48)


def test_a_method_goes_as_far_as_the_models_at_work(models: ModelSet) -> None:
    for drafter, context in ((None, 48), (PromptLookupDrafter(), 64), (EagleDrafter(), 64)):
        chosen = {} if drafter is None else {"drafter": drafter}
        assert compose(models, DecodingConfig(acceptance=Speculative(), **chosen)).context == context


@pytest.mark.parametrize(
    ("rule", "topology", "verification"),
    [
        (Speculative(), ChainTopology(), ChainVerification),
        (FuzzyReducible(), DynamicTreeTopology(), TreeVerification),
        (KSeq(), MultiDraftTopology(), TreeVerification),
    ],
    ids=str,
)
def test_what_was_drafted_is_verified_as_its_topology_says(models: ModelSet, rule, topology, verification) -> None:
    method = compose(models, DecodingConfig(acceptance=rule, topology=topology))
    assert method.speculation is not None
    assert isinstance(method.speculation.verification, verification)
    with pytest.raises(FrozenInstanceError):
        method.max_new_tokens = 1  # type: ignore[misc]


def test_a_bonus_is_drafted_where_rule_and_topology_agree(models: ModelSet) -> None:
    for rule, topology, drafts in (
        (FuzzyReducible(), ChainTopology(), True),
        (Fuzzy(judge_bonus=True), ChainTopology(), True),
        (Fuzzy(), ChainTopology(), False),
        (Speculative(), ChainTopology(), False),
        (Fuzzy(judge_bonus=True), DynamicTreeTopology(), False),
        (KSeq(), MultiDraftTopology(), False),
    ):
        speculation = compose(models, DecodingConfig(acceptance=rule, topology=topology)).speculation
        assert speculation is not None
        assert speculation.drafts_bonus == drafts


def test_the_draft_is_greedy_where_the_target_or_the_rule_is(models: ModelSet) -> None:
    for rule, temperature, greedy in (
        (Speculative(), 0.0, True),
        (Speculative(), 1.0, False),
        (FuzzyOfficial(), 1, True),
    ):
        for topology in (ChainTopology(), DynamicTreeTopology()):
            sampling = SamplingConfig(temperature=temperature)
            method = compose(models, DecodingConfig(acceptance=rule, topology=topology, sampling=sampling))
            assert method.speculation is not None
            assert method.speculation.greedy_draft == greedy


@pytest.mark.parametrize("topology", [ChainTopology(), DynamicTreeTopology()], ids=str)
def test_the_official_rule_samples_at_temperature_0_unless_it_is_told_not_to(models: ModelSet, topology) -> None:
    for rule in (FuzzyOfficial(), FuzzyOfficial(sample_target=False), Fuzzy()):
        for sampling in (SamplingConfig(top_k=5), SamplingConfig(temperature=0.7, top_k=5)):
            method = compose(models, DecodingConfig(acceptance=rule, topology=topology, sampling=sampling))
            raw = rule == FuzzyOfficial() and sampling.greedy
            assert method.sampling == (SamplingConfig(temperature=1) if raw else sampling)


def test_what_is_missing_is_refused_before_anything_is_written(models: ModelSet) -> None:
    alone = ModelSet(models.target)
    for config, told in (
        (DecodingConfig(acceptance=DraftOnly()), "'draft-only' needs a draft model"),
        (DecodingConfig(acceptance=Speculative()), "'draft-model' needs a draft model"),
        (DecodingConfig(acceptance=Speculative(), drafter=EagleDrafter()), "needs a head that was trained"),
    ):
        with pytest.raises(InvalidSetting, match=told):
            compose(alone, config)
    reduced = ModelSet(models.target, None, toy_head(models.target.module, 3, covered=30))
    with pytest.raises(InvalidSetting, match="is infinite with this EAGLE head"):
        compose(reduced, DecodingConfig(acceptance=FuzzyOfficial(), drafter=EagleDrafter()))


def test_texts_side_by_side_are_refused_by_what_drafts_for_one(models: ModelSet) -> None:
    for config in (
        DecodingConfig(acceptance=Speculative(), topology=DynamicTreeTopology()),
        DecodingConfig(acceptance=KSeq()),
        DecodingConfig(acceptance=Speculative(), drafter=EagleDrafter()),
        DecodingConfig(acceptance=Speculative(), drafter=PromptLookupDrafter()),
    ):
        method = compose(models, config)
        method.check_batch_size(1)
        with pytest.raises(InvalidSetting, match="one text at a time"):
            method.check_batch_size(2)
    for rule in (Autoregressive(), Speculative()):
        compose(models, DecodingConfig(acceptance=rule)).check_batch_size(256)


def test_prompts_that_leave_no_room_are_refused(models: ModelSet) -> None:
    method = compose(models, DecodingConfig(acceptance=Speculative()))
    with pytest.raises(InvalidSetting, match="prompt is empty"):
        Session(method, [], 0, frozenset())
    with pytest.raises(PromptTooLong, match="context holds 48"):
        Session(method, [1] * 48, 0, frozenset())


def test_names_that_nobody_knows_are_refused(models: ModelSet) -> None:
    config = DecodingConfig(acceptance=Speculative())
    with pytest.raises(UnknownName, match="expected one of draft-model, "):
        drafter_factory("oracle", models, config, config.sampling)
    with pytest.raises(UnknownName, match="expected one of chain, "):
        make_topology("forest", config)
    with pytest.raises(InvalidSetting, match="There is no rule 'gone' here"):
        compose(models, DecodingConfig.checked(acceptance={"kind": "gone"}))


def test_a_new_drafter_needs_its_name_in_the_table_alone(models: ModelSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter of another's making, under the name of a configuration that is there."""

    class Halves(DraftModelDrafter):
        """The draft model, which proposes nothing behind texts of an odd length."""

        def begin(self, tokens, texts):
            row = super().begin(tokens, texts)
            return None if len(texts[0]) % 2 else row

    monkeypatch.setitem(DRAFTERS, "draft-model", Halves)
    session = Session(compose(models, DecodingConfig(acceptance=Speculative())), [1, 2, 3], 0, frozenset())
    while session.stop_reason is None:
        odd = len(session.history) % 2
        assert bool(session.run_round().drafted) != odd or session.stop_reason
