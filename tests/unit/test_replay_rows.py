"""Every rule on the rows that a trace keeps judges as it does on full rows, exactly or nearly."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from fsd_core.config import SamplingConfig
from fsd_core.replays.prediction import reduced_rows, replayable
from fsd_core.rules import RULES, Cascade, FuzzyReducible, Rule
from fsd_core.testing import cases
from tests.tools.sizes import some
from tests.tools.synthetic_traces import random_rows, trace_of

GREEDY, PLAIN = SamplingConfig(), SamplingConfig(temperature=1)
RESTRICTED = SamplingConfig(temperature=0.7, top_k=40, top_p=0.9)
VOCABULARY, ROUNDS, JUDGED, TOP = 400, 150, 6, 10
APPROXIMATE = {"mentored": 0.05, "head": 0.03, "block": 0.02, "top-n-delta": 0.01, "fsd-head": 0.005}
"""rules that read more than was written down: share of positions that they may judge otherwise, at most, where the ten
likeliest tokens have no more than two thirds of the probability; all others judge alike"""
MORE = (
    *(Cascade(trigger=trigger, deferral_cost=cost) for trigger in ("chow", "diff", "entropy") for cost in (0.05, 0.3)),
    *(FuzzyReducible(divergence=name, threshold=0.3) for name in ("kl", "reverse-kl", "tv", "ag")),
)


def all_cases() -> list[Rule]:
    return [*dict.fromkeys([case for rule in replayable().values() for case in cases(rule)] + [*MORE])]


@pytest.mark.parametrize(
    ("top", "sampling"),
    some(product((TOP, VOCABULARY), (GREEDY, PLAIN, RESTRICTED)), (TOP, PLAIN), (VOCABULARY, RESTRICTED)),
)
def test_rules_judge_reduced_rows_as_full_ones(sampling: SamplingConfig, top: int) -> None:
    rows = random_rows(sampling, ROUNDS, JUDGED, VOCABULARY, seed=1)
    uniforms = torch.rand(ROUNDS, JUDGED, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    trace = trace_of(rows, uniforms, sampling, top)
    small = reduced_rows(trace)
    index = torch.arange(ROUNDS * JUDGED).view(ROUNDS, JUDGED)
    apart = {}
    for rule in all_cases():
        full = rule.judge(rows, uniforms, uniforms).accepted
        few = rule.judge(small.windows(index), uniforms, uniforms).accepted
        apart[rule] = (full != few).double().mean().item()
    worst = {str(rule): share for rule, share in apart.items() if share > APPROXIMATE.get(rule.kind, 0.0)}
    if top == TOP:
        assert not worst
        assert any(apart.values())
    else:
        assert not any(apart.values())
        assert small.target.shape[-1] == VOCABULARY


def test_what_was_kept_is_what_the_models_said() -> None:
    rows = random_rows(RESTRICTED, 4, JUDGED, VOCABULARY, seed=3)
    uniforms = torch.rand(4, JUDGED, dtype=torch.float64)
    small = reduced_rows(trace_of(rows, uniforms, RESTRICTED, TOP))
    for name in ("target", "draft", "target_raw", "draft_raw"):
        own, theirs = getattr(small, name)[:, 0], getattr(rows, name).flatten(0, 1)
        torch.testing.assert_close(own.sum(-1), torch.ones(len(own)))
        torch.testing.assert_close(
            own.gather(1, small.tokens), theirs.gather(1, rows.tokens.view(-1, 1)), rtol=1e-6, atol=1e-9
        )
        torch.testing.assert_close(own.amax(-1), theirs.amax(-1))
    torch.testing.assert_close(small.divergence("js", small.tokens)[:, 0], rows.divergence("js", uniforms).flatten())
    torch.testing.assert_close(small.graded_entropy[:, 0], rows.graded_entropy.flatten())


def test_every_rule_for_single_drafts_can_be_replayed() -> None:
    assert "speculative" in replayable()
    assert "block" in replayable()
    assert not {"autoregressive", "draft-only", "rrs", "k-seq", "synthetic"} & set(replayable())
    assert {kind for kind in replayable() if RULES[kind].judges_together} == {"block", "lookahead"}
