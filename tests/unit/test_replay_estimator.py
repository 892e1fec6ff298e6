"""What replay predicts where the truth is known: positions that are alike, of prompts that are not."""

from __future__ import annotations

import numpy as np
import pytest

from fsd_core.config import ChainTopology, DecodingConfig, DraftModelDrafter, SamplingConfig
from fsd_core.errors import UnfitTrace
from fsd_core.replays.prediction import Replay
from fsd_core.replays.trace_file import Costs
from fsd_core.rules import Autoregressive, Block, Lenience, Rule, Speculative, ThresholdAccept
from tests.tools.sizes import size
from tests.tools.synthetic_traces import TWO_Q, two_token_trace

SAMPLED = SamplingConfig(temperature=1)
LENGTH, TOKENS, PROMPTS = 6, 40, 25


def setting(rule: Rule, length: int, sampling: SamplingConfig = SAMPLED) -> DecodingConfig:
    return DecodingConfig(acceptance=rule, topology=ChainTopology(length=length), sampling=sampling)


def truth(likely: np.ndarray, lenience: float, length: int) -> tuple[float, float]:
    """Acceptance rate and tokens per pass of many answers with the same chance to keep a token everywhere."""
    generator = np.random.default_rng(0)
    chance = (
        np.minimum(1, likely / (1 - lenience) / TWO_Q) / 2 + np.minimum(1, (1 - likely) / (1 - lenience) / TWO_Q) / 2
    )
    at, rounds, drafted, accepted = np.zeros(len(likely), int), 0, 0, 0
    while (writing := at < TOKENS).any():
        draft = np.minimum(length, TOKENS - at - 1).clip(0)
        tests = generator.random((len(likely), length)) < chance[:, None]
        kept = np.minimum(np.cumprod(tests, 1).sum(1), draft)
        rounds, drafted, accepted = (
            rounds + writing.sum(),
            drafted + draft[writing].sum(),
            accepted + kept[writing].sum(),
        )
        at = at + np.where(writing, kept + 1, 0)
    return accepted / drafted, len(likely) * TOKENS / rounds


@pytest.mark.parametrize(("lenience", "length"), [(0.0, 6), (0.0, 3), (0.3, 6), (0.3, 2)])
def test_intervals_hold_the_truth(lenience: float, length: int) -> None:
    """Of 200 traces of 25 prompts of different difficulty. Two-sided 95 %, less what 200 trials leave in doubt."""
    trials = size(30, 200)
    population = np.random.default_rng(1).uniform(0.5, 0.95, 20_000)
    rate, per_pass = truth(population, lenience, length)
    rule = Lenience(lenience=lenience) if lenience else Speculative()
    held = np.zeros(2)
    for trial in range(trials):
        likely = np.random.default_rng([2, trial]).uniform(0.5, 0.95, PROMPTS)
        trace, _ = two_token_trace(likely, LENGTH, TOKENS, seed=trial)
        (said,) = Replay(trace).predict([setting(rule, length)])
        for i, (estimate, true) in enumerate(((said.acceptance_rate, rate), (said.tokens_per_pass, per_pass))):
            assert estimate.low is not None
            assert estimate.high is not None
            held[i] += estimate.low <= true <= estimate.high
    assert (held / trials >= 0.9).all(), held / trials


def test_strict_replay_is_the_recorded_run() -> None:
    trace, _ = two_token_trace(np.linspace(0.5, 0.9, 30), LENGTH, TOKENS, seed=3)
    (said,) = Replay(trace).predict([setting(Speculative(), LENGTH)])
    recorded = [len(prompt.rounds) for prompt in trace.prompts]
    assert said.counts[:, 1].tolist() == recorded
    assert said.counts[:, 0].tolist() == [TOKENS] * 30
    assert said.tokens_per_pass.value == pytest.approx(30 * TOKENS / sum(recorded))


def test_block_keeps_at_least_what_the_strict_test_keeps() -> None:
    trace, strict = two_token_trace(np.full(60, 0.7), LENGTH, 400, seed=4)
    one, block = Replay(trace).predict([setting(Speculative(), LENGTH), setting(Block(), LENGTH)])
    assert strict[0] == pytest.approx(0.8)
    assert block.tokens_per_pass.value > one.tokens_per_pass.value
    assert one.tokens_per_pass.value == pytest.approx((1 - 0.8 ** (LENGTH + 1)) / 0.2, rel=0.03)


@pytest.mark.parametrize("draft_pass", [0.02, 0.1, 0.3, 2.0])
def test_the_best_draft_length_is_that_of_the_formula(draft_pass: float) -> None:
    """Tokens a round by Leviathan et al. 2023 over its cost, at an acceptance of 0.8."""
    costs = Costs(
        target_alone=1, rounds={1: 1 + draft_pass, LENGTH: 1 + LENGTH * draft_pass}, draft_pass=draft_pass
    )  # fmt: skip
    trace, _ = two_token_trace(np.full(300, 0.7), LENGTH, 200, seed=5, costs=costs)
    lengths = list(range(1, LENGTH + 1))
    said = Replay(trace).predict([setting(Speculative(), length) for length in lengths])
    speed = [(1 - 0.8 ** (n + 1)) / 0.2 / (1 + n * draft_pass) for n in lengths]
    (best,) = [one.draft_length for one in said if one.is_best]
    assert speed[best - 1] > 0.98 * max(speed)
    near = [one.draft_length for one in said if one.is_near_best]
    assert int(np.argmax(speed)) + 1 in near
    assert best in near
    for one, true in zip(said, speed, strict=True):
        assert one.speed_up is not None
        assert one.speed_up.value == pytest.approx(true, rel=0.05)


def test_acceptance_at_each_place_of_the_draft() -> None:
    trace, strict = two_token_trace(np.full(300, 0.7), LENGTH, TOKENS, seed=6)
    (said,) = Replay(trace).predict([setting(Speculative(), LENGTH)])
    assert len(said.acceptance_at) == LENGTH
    assert said.acceptance_at == pytest.approx([strict[0]] * LENGTH, abs=0.03)
    assert said.tokens_per_second is None
    assert said.speed_up is None
    assert not said.is_best


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (setting(Speculative(), 7), "The draft length is 7, and the trace was recorded with 6"),
        (
            setting(Speculative(), 3, SamplingConfig()),
            "temperature 1.0, top_k 0, top_p 1.0, min_p 0.0, not at",
        ),
        (
            DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length_by="chain"), sampling=SAMPLED),
            "A trace holds drafts of one length.*leave out length_by",
        ),
        (setting(ThresholdAccept(), 3), "'threshold-accept' drafts the likeliest tokens"),
        (DecodingConfig(acceptance=Autoregressive(), sampling=SAMPLED), "no rule for a chain of single drafts"),
        (setting(Lenience(), 3).model_copy(update={"strict_first": 2}), "leave out strict_first"),
        (setting(Lenience(), 3).model_copy(update={"drafter": None}), "choose the drafter draft-model"),
    ],
)
def test_what_a_trace_cannot_tell_is_refused_in_a_sentence(config: DecodingConfig, sentence: str) -> None:
    trace, _ = two_token_trace(np.full(3, 0.7), LENGTH, TOKENS, seed=7)
    assert DraftModelDrafter().kind == "draft-model"
    with pytest.raises(UnfitTrace, match=sentence):
        Replay(trace).predict([config])
