"""Block verification: lossless, keeps no fewer tokens than the token-wise test, and is what its formulas say."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from fsd_core.config import Autoregressive, ChainTopology, DecodingConfig, SamplingConfig, Speculative
from fsd_core.decoding.verification import DraftProposal, make_verification
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.distributions import ScoredDraft, UniformStream, draw
from fsd_core.rules import Block
from fsd_core.testing import beginnings, distribution_of_texts, fit, open_session, related, run, toy_model, written
from fsd_core.topologies import DraftTree
from tests.tools.sizes import size

N = 200_000


class Process:
    """Random distributions p and q behind every prefix, over a few tokens."""

    def __init__(self, vocabulary: int, length: int, seed: int, apart: float) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.vocabulary, self.length = vocabulary, length
        self.p, self.q = [], []
        for level in range(length + 1):
            logits = torch.randn(vocabulary**level, vocabulary, generator=generator).double()
            self.p.append(logits.softmax(-1))
            self.q.append((logits + apart * torch.randn(logits.shape, generator=generator).double()).softmax(-1))

    def drafted(self, count: int, generator: torch.Generator) -> tuple[ScoredDraft, torch.Tensor]:
        """So many drafts with what both models say at each position, and p behind the last, [count,V]."""
        at = torch.zeros(count, dtype=torch.int64)
        tokens, p, q = [], [], []
        for level in range(self.length):
            p.append(self.p[level][at])
            q.append(self.q[level][at])
            tokens.append(draw(q[-1], torch.rand(count, generator=generator, dtype=torch.float64)))
            at = at * self.vocabulary + tokens[-1]
        rows = [torch.stack(x, 1) for x in (tokens, p, q, p, q)]
        return ScoredDraft(*rows), self.p[self.length][at]

    def round(self, rule, seed: int, count: int = N) -> tuple[torch.Tensor, torch.Tensor]:
        """What one round writes, continued by the target to length + 1 tokens, as a number; how many were kept."""
        generator = torch.Generator().manual_seed(seed)
        rows, bonus = self.drafted(count, generator)
        u = torch.rand(self.length, count, generator=generator, dtype=torch.float64).T
        verdict = rule.judge(rows, u, u)
        kept = verdict.accepted.long().cumprod(1).sum(1)
        at = kept.clamp_max(self.length - 1)
        weights = rule.correction(rows.at(at), verdict.at(at))[:, 0]
        weights = torch.where((kept == self.length)[:, None], bonus, weights)
        text = torch.where(torch.arange(self.length) < kept[:, None], rows.tokens, -1)
        text = torch.cat([text, text.new_full((count, 1), -1)], 1)
        text = text.scatter(1, kept[:, None], draw(weights, torch.rand(count, generator=generator).double())[:, None])
        at = torch.zeros(count, dtype=torch.int64)
        for level in range(self.length + 1):
            fresh = draw(self.p[level][at], torch.rand(count, generator=generator).double())
            at = at * self.vocabulary + torch.where(text[:, level] < 0, fresh, text[:, level])
        return at, kept

    def texts(self) -> torch.Tensor:
        """The target's probability of each text of length + 1 tokens."""
        whole = torch.ones(1, dtype=torch.float64)
        for level in self.p:
            whole = (whole[:, None] * level).reshape(-1)
        return whole


@pytest.mark.parametrize(("vocabulary", "length", "apart"), [(3, 3, 1.0), (2, 5, 0.7), (4, 2, 2.0), (3, 1, 1.0)])
def test_block_verification_is_lossless_and_keeps_at_least_as_many_tokens(vocabulary, length, apart):
    process = Process(vocabulary, length, seed=5, apart=apart)
    texts, kept = process.round(Block(), seed=6)
    assert fit(texts, process.texts()) > 1e-4
    same, fewer = process.round(Speculative(), seed=6)
    assert fit(same, process.texts()) > 1e-4
    gain = (kept - fewer).double()
    if length == 1:
        assert torch.equal(kept, fewer)
    else:
        assert gain.mean() > 4 * gain.std() / len(gain) ** 0.5, "it keeps more, by more than four standard errors"


def test_the_test_can_fail():
    """Block's test with the token-wise correction is another distribution."""

    class Wrong(Block):
        kind: str = "wrong"

        def correction(self, row, result):
            return Speculative().correction(row, result)

    process = Process(4, 2, seed=5, apart=2.0)
    assert fit(process.round(Wrong(), seed=6)[0], process.texts()) < 1e-6


def by_hand(p, q, tokens) -> tuple[list[float], list[float]]:
    """The chances hᵢ, and P_τ for τ from 0, by the formulas as they are printed."""
    reached = [1.0]
    for i, x in enumerate(tokens):
        reached.append(min(1.0, reached[-1] * p[i][x] / q[i][x]))
    chances = []
    for i in range(1, len(tokens)):
        rest = sum(max(0.0, reached[i] * a - b) for a, b in zip(p[i], q[i], strict=True))
        chances.append(rest / (rest + 1 - reached[i]) if rest else 0.0)
    return [*chances, reached[-1]], reached


TABLE = [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]


@pytest.mark.parametrize("tokens", list(product(range(3), repeat=3)), ids=str)
def test_the_chances_are_those_of_the_formulas(tokens):
    p, q = TABLE, TABLE[1:] + TABLE[:1]
    chances, reached = by_hand(p, q, tokens)
    rows = ScoredDraft(torch.tensor([tokens]), *(torch.tensor([x]) for x in (p, q, p, q)))
    for i, chance in enumerate(chances):
        below, above = torch.ones(1, 3).double(), torch.ones(1, 3).double()
        below[0, i], above[0, i] = max(chance - 1e-6, 0), chance + 1e-6
        assert Block().judge(rows, below, below).accepted.sum() == (i + 1 if chance > 1e-5 else 0)
        verdict = Block().judge(rows, above, above)
        assert verdict.accepted.sum() == 0
        torch.testing.assert_close(verdict.weight, torch.tensor([reached[:3]]).double(), atol=1e-6, rtol=0)


def test_a_text_that_drafted_less_is_judged_as_if_it_stood_alone():
    """Beside a longer draft, the last token of a shorter one is still tested by P and followed by p."""
    process = Process(3, 4, seed=8, apart=1.0)
    generator = torch.Generator().manual_seed(9)
    long, _ = process.drafted(2000, generator)
    u = torch.rand(2000, 4, generator=generator, dtype=torch.float64)
    short = ScoredDraft(*(x[:, :2] for x in (long.tokens, long.target, long.draft, long.target, long.draft)))
    alone = Block().judge(short, u[:, :2], u[:, :2]).accepted
    lengths = torch.full((2000,), 2)
    beside = ScoredDraft(long.tokens, long.target, long.draft, long.target, long.draft, lengths=lengths)
    assert torch.equal(Block().judge(beside, u, u).accepted[:, :2], alone)
    assert not Block().judge(beside, u, u).accepted[:, 2:].any()


@pytest.fixture(scope="module")
def models() -> tuple[LanguageModel, LanguageModel]:
    target = toy_model(4, seed=21, hidden=16)
    return LanguageModel(target), LanguageModel(related(target, noise=0.5, seed=22))


def test_whole_texts_have_the_targets_distribution(models):
    config = DecodingConfig(
        acceptance=Block(), topology=ChainTopology(length=3), sampling=SamplingConfig(temperature=1), max_new_tokens=5
    )
    found = beginnings(*models, config, [0, 1, 2, 1], 4, size(1000, 6000))
    texts = (found * torch.tensor([64, 16, 4, 1])).sum(-1)
    assert fit(texts, distribution_of_texts(models[0], [0, 1, 2, 1], 4)) > 1e-4


def test_greedy_texts_are_the_targets_in_the_rounds_of_token_wise_decoding():
    target = toy_model(40, seed=11)
    both = LanguageModel(target), LanguageModel(related(target, noise=0.15, seed=12))
    for prompt in ([3, 1, 4, 1, 5], [7]):
        alone = written(*both, DecodingConfig(acceptance=Autoregressive(), max_new_tokens=40), prompt, ends=False)
        rounds = []
        for rule in (Speculative(), Block()):
            session = run(
                open_session(*both, DecodingConfig(acceptance=rule, max_new_tokens=40), prompt, 0, frozenset())
            )
            rounds.append(len(session.history))
            assert session.history[len(prompt) :] == alone
        assert rounds[0] == rounds[1]


def test_sampled_rounds_write_more_than_token_wise_ones(models):
    """In the loop itself: fewer rounds for the same number of tokens."""
    spent = {}
    for rule in (Speculative(), Block()):
        config = DecodingConfig(
            acceptance=rule, topology=ChainTopology(length=6), sampling=SamplingConfig(temperature=1),
            max_new_tokens=60,
        )  # fmt: skip
        spent[rule.kind] = 0
        for seed in range(size(15, 60)):
            with open_session(*models, config, [0, 1, 2, 1], seed, frozenset()) as session:
                while session.stop_reason is None:
                    session.run_round()
                    spent[rule.kind] += 1
    assert spent["block"] < spent["speculative"]


def test_the_correction_is_at_the_row_of_the_first_token_that_is_not_kept():
    """Through the verification of a chain: what is written behind τ kept tokens is drawn from (P_τ·p − q)₊."""
    process = Process(3, 3, seed=5, apart=1.0)
    generator = torch.Generator().manual_seed(3)
    rows, bonus = process.drafted(1, generator)
    logits = torch.cat([rows.target, bonus[:, None]], 1).log()
    tree = DraftTree(rows.tokens, 3, rows.draft, rows.draft)
    verification = make_verification("chain", Block(), SamplingConfig(temperature=1))
    seen = set()
    for seed in range(300):
        result = verification.verify(DraftProposal(tree, 3, [3], [3], [0]), logits, [UniformStream(seed)])
        kept, token = int(result.count), int(result.emitted[0, result.count])
        if kept < 3:
            _, reached = by_hand(rows.target[0].tolist(), rows.draft[0].tolist(), rows.tokens[0].tolist())
            assert reached[kept] * rows.target[0, kept, token] > rows.draft[0, kept, token]
        seen.add(kept)
    assert len(seen) > 1
