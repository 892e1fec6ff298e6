"""What a person who chooses a rule is told of it: what docs/results/ hold."""

from __future__ import annotations

from dashboard.ui.fields import about
from fsd_core.analysis.matching import MEASURED, behind
from fsd_core.config import RULES
from tools import rules_behind


def test_what_is_told_is_what_the_results_hold() -> None:
    assert MEASURED.read_text(encoding="utf-8") == rules_behind.text()


def test_a_rule_that_was_behind_says_by_how_much_and_what_was_better() -> None:
    accuracy, likelihood = (next(one for one in behind("fsd") if word in one) for word in ("accuracy", "nats"))
    assert "sampled at temperature 1" in accuracy
    assert "1.1 × fewer target passes than SD accuracy changes by −10 [−15, −5] points, with Top-n, delta" in accuracy
    assert "greedily" in likelihood
    assert "0.20 [0.13, 0.28] nats a token" in likelihood
    assert "−10 [−15, −5] points" in about("fsd", "js")


def test_most_rules_were_behind_nowhere() -> None:
    assert {kind for kind in RULES if behind(kind)} == {"fsd", "fsd-reducible", "mentored", "ensemble"}
    assert "Measured" not in about("lenience", "js")
