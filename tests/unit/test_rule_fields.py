"""The fields of rules: each rule stands in one, with what it costs, and fields and parts say the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gradio as gr

from dashboard.experiments.experiment_form import METHOD_GROUPS, RULE_FIELDS, by_field, by_part, rule_fields
from dashboard.ui.fields import cost
from fsd_core.config import RULES
from tests.tools.built import built


def test_each_rule_stands_in_one_field_with_others_that_ask_the_same() -> None:
    assert Counter(kind for field in RULE_FIELDS.values() for kind in field.kinds) == Counter([*RULES])
    for part, kinds in METHOD_GROUPS:
        assert {kind for field in RULE_FIELDS.values() if field.part == part for kind in field.kinds} == {*kinds}
    assert {"fsd", "fsd-official"} <= {*RULE_FIELDS["by divergence"].kinds}
    assert {"typical", "margin"} <= {*RULE_FIELDS["by likelihood"].kinds}
    assert {"ensemble", "mentored"} <= {*RULE_FIELDS["by mixture"].kinds}


def test_each_choice_says_what_the_rule_costs_and_does() -> None:
    def build() -> dict[str, Any]:
        with gr.Blocks(analytics_enabled=False):
            return rule_fields({"by divergence": ["fsd"]})

    fields = built(build)
    assert fields["by divergence"].value == ["fsd"]
    for field in fields.values():
        for text, kind in field.choices:
            title, line = text.split("\n")
            assert title == RULES[kind].title
            assert line.startswith(f"{cost(kind).capitalize()}. ")
            assert line.endswith(RULES[kind].explanation)


def test_values_by_field_and_by_part_are_the_same_choice() -> None:
    parts = {"baselines": ["speculative"], "tuned": ["fsd", "typical"], "several": ["rrs"], "threshold": "0.1"}
    fields = by_field(parts)
    assert fields["by divergence"] == ["fsd"]
    assert fields["by likelihood"] == ["typical"]
    assert fields["by mixture"] == []
    assert by_part(fields) == parts
    assert by_field({"threshold": "0.2"}) == {"threshold": "0.2"}, "what a link does not name stays as it is"
