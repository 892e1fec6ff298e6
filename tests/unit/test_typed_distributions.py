"""What the theory page reads, computes and draws."""

from __future__ import annotations

import pytest

from fsd_core.errors import InvalidSetting
from fsd_core.plots import acceptance
from fsd_core.theory import optimal_acceptance
from fsd_plugins.theory import page as theory
from fsd_plugins.theory.page import coupling, curves, read_pair, read_weights, token_names

P, Q = [0.45, 0.30, 0.15, 0.10], [0.20, 0.40, 0.10, 0.30]


def test_numbers_of_any_scale_are_read_as_shares() -> None:
    assert read_weights("1, 3", "p") == [0.25, 0.75]
    assert read_weights(" 2;2 \n 4 ", "p") == [0.25, 0.25, 0.5]


@pytest.mark.parametrize(
    ("target", "draft", "told"),
    [
        ("", "1", "There are 0 numbers in the target's distribution"),
        ("1, a, 2", "1", "“a” in the target's distribution is not a number"),
        ("1 -1", "1 1", "at least 0"),
        ("0 0", "1 1", "not all of them 0"),
        ("1 inf", "1 1", "expected finite numbers"),
        ("nan 1", "1 1", "are not a distribution"),
        ("1 1", "1 1 1", "has 2 tokens and the draft 3"),
        ("1 " * 201, "1", "expected 1 to 200"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(target: str, draft: str, told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        read_pair(target, draft)


def test_the_curves_are_those_of_the_theory() -> None:
    found = curves(P, Q)
    for sampling, rates in found.optima.items():
        assert rates == [optimal_acceptance(P, Q, n, sampling) for n in range(1, 9)]
    assert list(found.verifiers["spec-hub"][2]) == [2]
    assert found.verifiers["spec-hub"][2][2] == pytest.approx(found.optima["greedy"][1])
    figure = acceptance.draw_acceptance_by_drafts(found.optima, found.verifiers)
    assert {trace.name for trace in figure.data} >= {"Optimum, with replacement", "K-SEQ", "SpecHub (2 drafts)", "NSS"}
    first = figure.data[0]
    assert list(first.y) == pytest.approx([100 * rate for rate in found.optima["with_replacement"]])


@pytest.mark.parametrize("sampling", ["with_replacement", "without_replacement", "greedy"])
def test_the_picture_of_the_coupling_adds_up(sampling: str) -> None:
    pairs = coupling(P, Q, 2, sampling)
    assert pairs is not None
    figure = theory.draw_coupling(token_names(4), pairs)
    accepted, others = ([[cell or 0 for cell in row] for row in trace.z] for trace in figure.data)
    assert sum(map(sum, accepted)) == pytest.approx(optimal_acceptance(P, Q, 2, sampling))
    written = [sum(a) + sum(b) for a, b in zip(accepted, others, strict=True)]
    assert written == pytest.approx(P)
    assert len(set(figure.data[0].x)) == len(figure.data[0].x)


def test_a_picture_that_would_be_too_large_is_not_drawn() -> None:
    many = [1 / 30] * 30
    assert coupling(many, many, 2, "with_replacement") is None
    assert coupling(many, many, 8, "greedy") is not None
    assert token_names(30)[-1] == "30"
