from __future__ import annotations

import pytest

from fsd_core.evaluation.versus import FIDELITY_KEYS, ComparedText, fidelity
from fsd_core.statistics.intervals import wilson

TARGETS = {
    0: ComparedText([1, 2, 3], 3.0),
    1: ComparedText([4, 5], 1.0),
    2: ComparedText([6], 0.5),
    3: ComparedText([7, 8, 9, 1], 2.5),
}


def test_a_lossless_method_is_the_target() -> None:
    found = fidelity(TARGETS, TARGETS, greedy=True)
    assert (found["same_text"], found["agreed_tokens"]) == (1.0, None)
    assert (found["excess_nll"], found["excess_nll_low"], found["excess_nll_high"]) == (0.0, None, None)


def test_texts_that_stray_are_counted_with_where_and_how_far() -> None:
    ours = {
        0: ComparedText([1, 2, 9], 6.0),
        1: TARGETS[1],
        2: ComparedText([6, 6, 6], 1.5),
        3: ComparedText([1], 3.0),
        9: ComparedText([1], 99.0),
    }
    found = fidelity(ours, TARGETS, greedy=True)
    assert found["same_text"] == 0.25
    assert (found["same_text_low"], found["same_text_high"]) == wilson(1, 4)
    assert found["agreed_tokens"] == 1  # of 2, 1 (the target had ended) and 0
    assert found["excess_nll"] == pytest.approx(11.5 / 9 - 7.0 / 10)  # prompt 9 is not shared
    assert found["excess_nll_low"] < found["excess_nll"] < found["excess_nll_high"]


def test_when_sampling_two_exact_methods_differ_as_well() -> None:
    found = fidelity(TARGETS, TARGETS, greedy=False)
    assert found["same_text"] is None
    assert found["excess_nll"] == 0.0


@pytest.mark.parametrize("ours", [{}, {7: ComparedText([1], 1.0)}, {0: ComparedText([], 0.0)}])
def test_what_cannot_be_told_is_none(ours: dict[int, ComparedText]) -> None:
    found = fidelity(ours, TARGETS, greedy=False)
    assert set(found) == set(FIDELITY_KEYS)
    assert found["excess_nll"] is None
