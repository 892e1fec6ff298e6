"""The experiment form: what it makes of its fields, and the sentences it answers with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboard.experiments.sweep_form import SweepForm, build_sweep, parse_seeds, size_line
from dashboard.ui.algorithms import PLAIN, SEVERAL, TUNED
from fsd_core.config import ACCEPTANCES
from fsd_core.errors import FsdError, InvalidSetting

FORM = SweepForm(
    pair="bundled", task="arithmetic", limit=50, baselines=["autoregressive", "speculative"], rules=["fsd-reducible"],
    divergences=["js"], thresholds="0.05, 0.1, 0.2", drafters=["draft-model"], draft_length=5, temperature=0, top_k=0,
    top_p=1, max_new_tokens=128, seeds="0",
)  # fmt: skip


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "2147483648", "9" * 5000, ",".join(map(str, range(21)))])
def test_seeds_that_cannot_be_used_are_refused(text):
    with pytest.raises(InvalidSetting, match="expected"):
        parse_seeds(text)


def test_baselines_come_first_and_every_rule_meets_every_divergence_and_threshold():
    form = replace(FORM, rules=["fsd-reducible", "fsd"], divergences=["js", "tv"], seeds="0, 1")
    sweep = build_sweep(form)
    kinds = [decoding.acceptance.kind for decoding in sweep.decodings]
    assert kinds == ["autoregressive", "speculative"] + ["fsd-reducible"] * 6 + ["fsd"] * 6
    assert len(sweep.runs()) == 28
    assert size_line(sweep) == "14 settings × 2 seeds × 50 prompts = 1,400 generations"


def test_the_official_rule_has_a_divergence_of_its_own_and_no_off():
    sweep = build_sweep(replace(FORM, baselines=[], rules=["fsd-official"], divergences=[], thresholds="off, 0.4"))
    assert [decoding.label for decoding in sweep.decodings] == ["FSD official · ag ≤ 0.4 · γ 5"]


def test_every_rule_can_be_part_of_an_experiment():
    sweep = build_sweep(replace(FORM, baselines=PLAIN, rules=TUNED, several=SEVERAL, drafts=4, thresholds="0.1"))
    assert {decoding.acceptance.kind for decoding in sweep.decodings} == set(ACCEPTANCES)
    assert {decoding.topology.drafts for decoding in sweep.decodings if decoding.acceptance.kind in SEVERAL} == {2, 4}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"thresholds": "0.9"}, "beyond the range of the divergence 'js'"),
        ({"thresholds": "-0.1"}, "cannot be used"),
        ({"divergences": []}, "No divergence is chosen"),
        ({"rules": [], "baselines": []}, "Nothing is chosen"),
        ({"limit": None}, "number of prompts is empty"),
        ({"limit": 100_000}, "expected a limit"),
        ({"draft_length": 2.5}, "whole number"),
        ({"draft_length": 99}, "length"),
        ({"top_p": 0}, "Top-p is 0.0: expected more than 0.0."),
        ({"drafters": ["prompt-lookup"], "divergences": ["reverse-kl"]}, "copied token"),
        ({"drafters": []}, "No drafter is chosen"),
        ({"shapes": []}, "No shape is chosen"),
        ({"shapes": ["dynamic-tree"], "tree_tokens": 1}, "Tree tokens is 1: expected at least 2"),
        ({"shapes": ["dynamic-tree"], "tree_tokens": None}, "The size of the tree is empty"),
        ({"drafters": ["eagle"], "pair": "smollm2-1.7b"}, "this pair has none"),
        ({"seeds": ",".join(map(str, range(20))), "thresholds": "0:0.5:20"}, "at most 200"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_sentence(change, sentence):
    with pytest.raises(FsdError, match=sentence):
        build_sweep(replace(FORM, **change))


def test_every_drafter_meets_every_shape_that_a_rule_can_judge() -> None:
    sweep = build_sweep(
        replace(
            FORM,
            rules=["fsd"],
            several=["k-seq"],
            baselines=["speculative"],
            thresholds="0.1",
            drafters=["draft-model", "eagle"],
            shapes=["chain", "dynamic-tree"],
        )
    )
    shapes = [(d.acceptance.kind, d.drafter.kind, d.topology.kind) for d in sweep.decodings]
    assert len(shapes) == len(set(shapes)) == 2 * 2 + 2 + 2 * 2
    assert {kind for rule, _, kind in shapes if rule == "k-seq"} == {"multi-draft"}
