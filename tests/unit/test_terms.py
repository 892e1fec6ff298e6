"""Hints of words: every heading of a number has one, none is longer than a hint may be, and they hold with the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.ui.components import Column, Tile, table, term, tiles
from dashboard.ui.templates import MEANINGS, explained
from fsd_core.config.options import OPTIONS
from fsd_core.metrics import METRICS

TERMS = (Path(__file__).parents[2] / "docs/terms.md").read_text(encoding="utf-8").casefold()


def test_every_metric_and_every_option_is_explained() -> None:
    for metric in METRICS.values():
        assert explained(metric.title)
        assert not metric.listed or explained(metric.listed)
    assert all(explained(option.title) for option in OPTIONS.values())


@pytest.mark.parametrize("word", MEANINGS)
def test_a_hint_is_one_sentence(word: str) -> None:
    assert 10 < len(MEANINGS[word]) <= 130
    assert not MEANINGS[word].endswith(".")


@pytest.mark.parametrize("word", ["Setting", "Experiment", "Run", "Use", "Outcome", "Evidence"])
def test_words_of_the_pages_are_in_the_docs(word: str) -> None:
    assert f"| {word.casefold()} |" in TERMS


def test_tables_and_tiles_carry_hints_and_show_no_markup() -> None:
    shown = table([Column("Accuracy", "num"), Column("<b>")], [["1", "2"]], "Table") + tiles([Tile("Runaways", "0 %")])
    assert shown.count('class="fsd-term"') == 2
    assert METRICS["accuracy"].explanation in shown
    assert "<b>" not in shown
    assert "${" not in term("x", "${alert(1)}")
