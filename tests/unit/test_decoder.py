"""A configuration and loaded models become the parts of a method, if their caches can be compared."""

from __future__ import annotations

import weakref
from dataclasses import FrozenInstanceError

import pytest
import torch

from fsd_core.config import (
    CHAIN,
    DRAFTERS,
    TOPOLOGIES,
    TREE,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DrafterSettings,
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
    TopologySettings,
)
from fsd_core.config.decoding_config import chosen_shape
from fsd_core.decoding.decoder import DecodingSession
from fsd_core.decoding.loop import compose
from fsd_core.decoding.verification import ChainVerification, TreeVerification
from fsd_core.drafters import DraftModelProposer
from fsd_core.errors import IncompatibleModels, IncompatibleOptions, InvalidSetting, NotGiven, PromptTooLong
from fsd_core.frozen import option
from fsd_core.models import loading
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet, check_cache, relative_distance
from fsd_core.rules import BEAMS, EVERY_RULE, SEVERAL, VERIFIERS, KSeq, Rule, Verifier
from fsd_core.system import no_garbage_collection
from fsd_core.testing import related, toy_head, toy_model
from fsd_core.topologies import Chain


@pytest.fixture(scope="module")
def models() -> ModelSet:
    target = toy_model(40, seed=11, layers=4, context=64)
    draft = related(toy_model(40, seed=11, layers=1, context=48), noise=0.1, seed=12)
    return ModelSet(LanguageModel(target), LanguageModel(draft), toy_head(target, 3))


def test_every_configuration_has_its_implementation() -> None:
    assert all(callable(drafter.checked().load().for_models) for drafter in DRAFTERS.values())
    trees = [topology for topology in TOPOLOGIES.values() if topology.judged_as != BEAMS]
    assert all(callable(topology.checked().load().for_method) for topology in trees)
    assert callable(TOPOLOGIES[BEAMS].checked().load().layers)
    assert all(rule.couple is not Verifier.couple for rule in VERIFIERS.values())
    assert all(rule.rate.__func__ is not Verifier.rate.__func__ for rule in VERIFIERS.values())
    single = [r for kind, r in EVERY_RULE.items() if not (r.baseline or r.writes_beams or kind in VERIFIERS)]
    assert all(rule.judge is not Rule.judge and rule.correction is not Rule.correction for rule in single)
    assert {topology.judged_as for topology in TOPOLOGIES.values()} == {CHAIN, SEVERAL, TREE, BEAMS}


def test_baselines_draft_nothing_and_are_written_by_one_model(models: ModelSet) -> None:
    target, draft = (compose(models, DecodingConfig(acceptance=rule)) for rule in (Autoregressive(), DraftOnly()))
    assert target.speculation is draft.speculation is None
    assert (target.model, draft.model) == (models.target, models.draft)
    assert (target.context, draft.context) == (64, 48)


def test_a_method_goes_as_far_as_the_model_that_writes(models: ModelSet) -> None:
    for drafter in (None, PromptLookupDrafter(), EagleDrafter()):
        chosen = {} if drafter is None else {"drafter": drafter}
        assert compose(models, DecodingConfig(acceptance=Speculative(), **chosen)).context == 64


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


@pytest.mark.parametrize("topology", [ChainTopology(), DynamicTreeTopology()], ids=str)
def test_a_verification_and_what_it_captured_are_freed_as_soon_as_nobody_holds_them(models, topology) -> None:
    with no_garbage_collection():
        speculation = compose(models, DecodingConfig(acceptance=FuzzyReducible(), topology=topology)).speculation
        assert speculation is not None
        held = weakref.ref(speculation.verification)
        del speculation
        assert held() is None


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
    for config, message in (
        (DecodingConfig(acceptance=DraftOnly()), "'draft-only' needs a draft model"),
        (DecodingConfig(acceptance=Speculative()), "'draft-model' needs a draft model"),
        (DecodingConfig(acceptance=Speculative(), drafter=EagleDrafter()), "needs a head that was trained"),
    ):
        with pytest.raises(InvalidSetting, match=message):
            compose(alone, config)
    reduced = ModelSet(models.target, None, toy_head(models.target.module, 3, covered=30))
    with pytest.raises(IncompatibleOptions, match="this EAGLE head"):
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
        with pytest.raises(IncompatibleOptions, match="one text at a time"):
            method.check_batch_size(2)
    for rule in (Autoregressive(), Speculative()):
        compose(models, DecodingConfig(acceptance=rule)).check_batch_size(256)


def test_prompts_that_leave_no_room_are_refused(models: ModelSet) -> None:
    method = compose(models, DecodingConfig(acceptance=Speculative()))
    with pytest.raises(NotGiven):
        DecodingSession(method, [], 0, frozenset())
    with pytest.raises(PromptTooLong, match="context holds 64"):
        DecodingSession(method, [1] * 64, 0, frozenset())


def test_names_that_nobody_knows_are_refused(models: ModelSet) -> None:
    for part, message in (
        ({"acceptance": {"kind": "gone"}}, "There is no rule 'gone' here"),
        ({"drafter": {"kind": "oracle"}}, "There is no drafter 'oracle' here"),
        ({"topology": {"kind": "forest", "length": 2}}, "There is no topology 'forest' here"),
        ({"drafter": Unwritten()}, "'unwritten' cannot be used: its code, no.such:Thing, cannot be imported"),
    ):
        with pytest.raises(InvalidSetting, match=message):
            compose(models, DecodingConfig.checked(**{"acceptance": Speculative(), **part}))


class Unwritten(DrafterSettings):
    """Its code is nowhere."""

    title, implementation = "Unwritten", "no.such:Thing"
    kind: str = "unwritten"


def test_what_is_not_installed_is_told_as_it_was_stored() -> None:
    """A stored setting is read, named and hashed as before, with a drafter and a topology that nobody knows here."""
    stored = {
        "acceptance": {"kind": "speculative"},
        "drafter": {"kind": "oracle", "wisdom": 3},
        "topology": {"kind": "forest", "length": 4, "trees": 2},
    }
    decoding = DecodingConfig.checked(**stored)
    assert decoding.label == "SD · oracle · forest · γ 4"
    assert {part: decoding.as_json()[part] for part in stored} == stored
    assert DecodingConfig.model_validate(decoding.as_json()) == decoding


class EvenOnly(DraftModelProposer):
    """The draft model, which proposes nothing behind texts of an odd length."""

    def begin(self, tokens, texts):
        row = super().begin(tokens, texts)
        return None if len(texts[0]) % 2 else row


class EvenDrafter(DrafterSettings):
    title, word, implementation = "Even", "even", f"{__name__}:EvenOnly"
    kind: str = "even"
    patience: int = option(2, "Patience", "What it is told to have")


class Duo(TopologySettings):
    """A chain under another name."""

    title, implementation = "Duo", f"{__name__}:DuoCode"
    kind: str = "duo"
    length: int = option(2, "Draft length", "Tokens drafted in a round", name="draft_length", ge=1, le=4)


class DuoCode(Chain):
    @classmethod
    def for_method(cls, config):
        return cls(config.topology.length)


def test_a_new_topology_needs_its_line_in_the_list_alone(models: ModelSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOPOLOGIES._things, "duo", Duo)
    config = DecodingConfig.checked(acceptance=Speculative(), topology={"kind": "duo", "length": 3})
    assert config.label == "SD · duo · γ 3"
    assert chosen_shape(Speculative, "duo") == "duo"
    assert chosen_shape(KSeq, "duo") == "multi-draft"
    with DecodingSession(compose(models, config), [1, 2, 3], 0, frozenset()) as session:
        assert len(session.run_round().drafted) == 3
    with pytest.raises(IncompatibleOptions, match="multi-draft"):
        DecodingConfig.checked(acceptance=KSeq(), topology=Duo())


def test_a_new_drafter_needs_its_line_in_the_list_alone(models: ModelSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRAFTERS._things, "even", EvenDrafter)
    config = DecodingConfig.checked(acceptance=Speculative(), drafter={"kind": "even", "patience": 5})
    assert config.label == "SD · even · patience 5 · γ 5"
    session = DecodingSession(compose(models, config), [1, 2, 3], 0, frozenset())
    assert models.draft is not None
    while session.stop_reason is None and len(session.history) < models.draft.context:
        odd = len(session.history) % 2
        assert bool(session.run_round().drafted) != odd or session.stop_reason


def a_model(monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    monkeypatch.setattr(loading, "PROVEN", frozenset())
    return LanguageModel(toy_model(40, seed=1))


def test_a_model_of_zeros_gives_the_same_logits_through_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(monkeypatch)
    with torch.no_grad():
        model.module.get_input_embeddings().weight.zero_()
    check_cache(model)


def test_logits_that_are_no_numbers_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(monkeypatch)
    with torch.no_grad():
        next(model.module.parameters()).fill_(float("nan"))
    with pytest.raises(IncompatibleModels, match="no finite numbers"):
        check_cache(model)


def test_what_differs_from_zero_is_far_from_it() -> None:
    zero, other = torch.zeros(1, 3, 4), torch.ones(1, 3, 4)
    assert relative_distance(zero, zero) == 0
    assert relative_distance(other, zero) == float("inf")
