"""What the playground says of its settings: to the worker, and to the person when they are done."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dashboard.experiments import experiments_page
from dashboard.playground import playground_page
from dashboard.playground.lanes import Job, Lane, comparison, payload
from dashboard.ui.algorithms import (
    ALGORITHMS,
    PLAIN,
    SEVERAL,
    TUNED,
    WORDS,
    about,
    algorithm,
    can_be_off,
    decoding,
    divergence_title,
    threshold_range,
)
from fsd_core.config import ACCEPTANCES, DIVERGENCES, LOSSLESS, RULES, DecodingConfig, SamplingConfig, Speculative
from fsd_core.errors import InvalidSetting

GREEDY = SamplingConfig()


def lane(ids: list[int], speed: float = 100.0, sampling: SamplingConfig = GREEDY, **more: Any) -> Lane:
    method = DecodingConfig(acceptance=Speculative(), sampling=sampling)
    return Lane(method, [{"id": i} for i in ids], {"tokens_per_second": speed}, done=True, **more)


def test_chunks_are_taken_in_by_their_setting_and_each_once() -> None:
    job = Job("x", [lane([]), lane([])])
    chunk = {"stats": {"tokens": 1}, "done": True, "stop_reason": "eos", "error": None}
    changed = job.add(
        [(0, chunk | {"setting": 1, "tokens": [{"id": 4}]}), (1, chunk | {"setting": 1, "tokens": [{"id": 5}]})]
    )
    assert (changed, job.after) == ({1}, 1)
    assert [found.ids for found in job.lanes] == [[], [4, 5]]


def test_the_comparison_tells_the_pace_and_where_texts_part() -> None:
    assert comparison([lane([1, 2]), lane([1, 2], 131)]) == [
        "SD · γ 5 wrote 1.31× as fast as SD · γ 5; their texts are identical."
    ]
    assert "part at token 2 (2 tokens and 2)" in comparison([lane([1, 2]), lane([1, 3])])[0]
    assert "part at token 3" in comparison([lane([1, 2]), lane([1, 2, 3])])[0]


def test_sampled_lossless_texts_may_differ_and_greedy_ones_are_not_excused() -> None:
    sampled = SamplingConfig(temperature=1)
    assert "the law is the same" in comparison([lane([1], sampling=sampled), lane([2], sampling=sampled)])[0]
    assert "the law is the same" not in comparison([lane([1]), lane([2])])[0]


def test_nothing_is_compared_with_a_setting_that_failed() -> None:
    assert comparison([lane([], error="No."), lane([1])]) == []
    assert comparison([lane([1]), lane([], error="No.")]) == []


@pytest.mark.parametrize(("prompt", "seed"), [("  \n", 0), ("Hi", -1), ("Hi", 2**31)])
def test_a_job_that_cannot_be_done_is_refused_with_a_sentence(prompt: str, seed: int) -> None:
    with pytest.raises(InvalidSetting, match=r"^The (prompt|seed) .*: "):
        payload("bundled", prompt, seed, [DecodingConfig()])


def test_every_rule_of_the_configuration_is_offered_and_has_words() -> None:
    """The pages' lists follow from the configuration, so a new rule is offered; only words for it must be written."""
    assert set(ALGORITHMS) == set(ACCEPTANCES)
    assert {kind for kind, a in ALGORITHMS.items() if a.cost == "lossless"} == set(LOSSLESS)
    assert {*PLAIN, *TUNED, *SEVERAL} == set(ACCEPTANCES)
    choices = (*experiments_page.BASELINE_CHOICES, *experiments_page.RULE_CHOICES)
    assert [kind for _, kind in choices] == [*PLAIN, *TUNED]
    assert [kind for _, kind in experiments_page.SEVERAL_CHOICES] == [*SEVERAL]
    assert set(playground_page.DEFAULTS) <= set(ACCEPTANCES)
    assert set(WORDS) == set(ACCEPTANCES), "dashboard/ui/algorithms.py: say in WORDS what the rule does"


def test_a_rule_without_words_is_told_in_its_own() -> None:
    class Newcomer(Speculative):
        """Keeps every second token.

        More is not told.
        """

        title = "New"

    assert algorithm("newcomer", Newcomer) == ("New", "Keeps every second token.", "lossless")


@pytest.mark.parametrize("kind", TUNED)
def test_each_tuned_rule_says_whether_leniency_can_be_off(kind: str) -> None:
    method = decoding(kind, "js", None, "draft-model", 5, 3, "chain", 24, GREEDY, 20)
    assert (method.threshold is None) == can_be_off(kind)
    assert ("leniency is off" in about(kind, "js")) == can_be_off(kind)
    assert can_be_off(kind) == (kind != "fsd-official")


@pytest.mark.parametrize("kind", ACCEPTANCES)
def test_the_controls_make_the_method_that_they_name(kind: str) -> None:
    drafter = "prompt-lookup" if kind == "speculative" else "draft-model"
    method = decoding(kind, "tv", 0.3, drafter, 4, 6, "chain", 24, GREEDY, 20)
    assert method.acceptance.kind == kind
    assert method.max_new_tokens == 20
    assert getattr(method.topology, "drafts", None) == ({"spec-hub": 2}.get(kind, 6) if kind in SEVERAL else None)
    assert method.threshold == (0.3 if kind.startswith("fsd") else None)
    assert method.divergence == {"fsd": "tv", "fsd-reducible": "tv", "fsd-official": "ag"}.get(kind)


@pytest.mark.parametrize("kind", ACCEPTANCES)
def test_a_tree_is_for_rules_of_single_drafts(kind: str) -> None:
    method = decoding(kind, "js", 0.3, "eagle", 4, 6, "dynamic-tree", 17, GREEDY, 20)
    if RULES[kind].baseline:
        assert (method.drafter, method.topology) == (None, None)
    else:
        expected = "multi-draft" if kind in SEVERAL else "dynamic-tree"
        assert method.topology is not None
        assert (method.topology.kind, method.topology.length) == (expected, 4)
        assert getattr(method.topology, "total_tokens", 17) == 17


def test_an_empty_threshold_is_off_and_one_out_of_range_is_told() -> None:
    assert decoding("fsd", "js", None, "draft-model", 5, 3, "chain", 24, GREEDY, 20).threshold is None
    with pytest.raises(InvalidSetting, match="beyond the range of the divergence 'js'"):
        decoding("fsd", "js", 0.8, "draft-model", 5, 3, "chain", 24, GREEDY, 20)


def test_each_divergence_has_a_name_and_a_range_and_the_published_one_its_caveat() -> None:
    assert len({divergence_title(name) for name in DIVERGENCES}) == len(DIVERGENCES)
    assert threshold_range("js") == f"0 to {math.log(2):.3g} nats"
    assert threshold_range("tv") == "0 to 1"
    assert threshold_range("top-k-kl") == "0 or more nats"
    assert "was computed as ag" in about("fsd-reducible", "js")
    assert "was computed as ag" not in about("fsd-reducible", "tv")
