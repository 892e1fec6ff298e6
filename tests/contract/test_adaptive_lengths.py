"""Drafts that end before their draft length: where they end, and that no law changes by it."""

from __future__ import annotations

import pytest
import torch

from fsd_core.config import ChainTopology, DecodingConfig, RecentAcceptance, SamplingConfig, Speculative
from fsd_core.models.language_model import LanguageModel
from fsd_core.rules import Block
from fsd_core.testing import beginnings, distribution_of_texts, fit, open_session, related, toy_model
from fsd_core.topologies import Chain, DraftTree
from tests.tools.sizes import size

PROMPT = [0, 1, 2, 1]
SAMPLED = SamplingConfig(temperature=1.0)
LENGTHS = (
    ChainTopology(length=3),
    ChainTopology(length=3, length_by="token", least_probability=0.2),
    ChainTopology(length=3, length_by="chain", least_probability=0.05),
    ChainTopology(length=3, length_by="acceptance", draft_cost=0.3),
)


@pytest.fixture(scope="module")
def models() -> tuple[LanguageModel, LanguageModel]:
    module = toy_model(5, seed=21, layers=1, hidden=16)
    return LanguageModel(module), LanguageModel(related(module, noise=0.6, seed=22))


def fit_of_texts(
    models: tuple[LanguageModel, LanguageModel], topology: ChainTopology, rule, texts: int
) -> tuple[float, float]:
    """Return the χ² test's p-value of texts of three tokens against the target's law, and against the draft's."""
    # Two more tokens of room: the three that are measured can be drafted together.
    config = DecodingConfig(acceptance=rule, topology=topology, sampling=SAMPLED, max_new_tokens=5)
    written = beginnings(models[0], models[1], config, PROMPT, 3, texts)
    emitted = (written * torch.tensor([25, 5, 1])).sum(1)
    laws = (distribution_of_texts(model, PROMPT, 3) for model in models)
    target, draft = (fit(emitted, law) for law in laws)
    return target, draft


@pytest.mark.wide
@pytest.mark.parametrize(
    ("rule", "topology"), [*((Speculative(), length) for length in LENGTHS), (Block(), LENGTHS[2])], ids=str
)
def test_the_law_of_whole_texts_is_the_targets_whatever_ends_a_draft(models, rule, topology) -> None:
    target, draft = fit_of_texts(models, topology, rule, size(800, 20_000))
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
def test_the_test_tells_a_draft_that_leaves_out_what_it_thinks_unlikely(models, monkeypatch) -> None:
    monkeypatch.setattr(ChainTopology, "load", lambda self: Dropping)
    target, _ = fit_of_texts(models, ChainTopology(length=3), Speculative(), size(2000, 20_000))
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
