"""The fields of the pages: all that the tables of options and of rules have, and what they ask for."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import gradio as gr
import pytest

from dashboard.experiments import experiment_form
from dashboard.experiments.experiment_form import METHOD_GROUPS, RULE_FIELDS, by_field, by_part, rule_fields
from dashboard.playground.playground_page import CARD_OPTIONS, DEFAULTS, control_properties
from dashboard.ui.fields import (
    BEAM_RULES,
    PLAIN_RULES,
    RULE_CHOICES,
    SEVERAL,
    TUNED,
    about,
    cost,
    decoding_of,
    knob_range,
    settings_of,
)
from fsd_core.config import RULES, VERIFIERS, DecodingConfig
from fsd_core.config.decoding_config import JUDGING_OPTIONS
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.errors import IncompatibleOptions, InvalidSetting
from tests.tools.built import built

USUAL = {name: METHOD_OPTIONS[name].default for name in CARD_OPTIONS}


def card(kind: str, **given: Any) -> dict[str, Any]:
    """What a setting's fields hold, those that its rule does not read included."""
    return {**USUAL, "acceptance": kind, **given}


def test_every_rule_is_offered_by_every_page() -> None:
    assert {*PLAIN_RULES, *TUNED, *SEVERAL, *BEAM_RULES} == set(RULES)
    assert [kind for _, kind in RULE_CHOICES] == [*RULES]
    assert len({title for title, _ in RULE_CHOICES}) == len(RULES)
    assert set(DEFAULTS) <= set(RULES)
    offered = {*experiment_form.DEPENDENT, *experiment_form.SELECTORS, "acceptance", "draft_length"}
    elsewhere = ("sampling", "template", "decoding")
    assert {n for n, o in METHOD_OPTIONS.items() if o.part not in elsewhere} <= offered | {*CARD_OPTIONS}


def test_untouched_fields_ask_for_the_usual_method() -> None:
    assert decoding_of(USUAL) == DecodingConfig()


@pytest.mark.parametrize("kind", TUNED)
def test_each_tuned_rule_says_whether_it_can_be_off(kind: str) -> None:
    knob = RULES[kind].knob
    assert knob is not None
    off = kind not in ("fsd-official", "typical", "top-n-delta", "margin")
    usual = RULES[kind].model_fields[knob.field].default
    assert decoding_of(card(kind, **{knob.field: None})).threshold == (knob.strict if off else usual)
    assert ("turns leniency off" in about(kind, "js")) == off


@pytest.mark.parametrize("kind", RULES)
def test_the_fields_make_the_method_that_they_name_and_show_it_again(kind: str) -> None:
    drafter = "prompt-lookup" if kind == "speculative" else "draft-model"
    sampled = {"temperature": 0.7} if kind in BEAM_RULES else {}
    given = card(kind, divergence="tv", threshold=0.3, drafter=drafter, draft_length=4, drafts=6, **sampled)
    method = decoding_of(given)
    assert method.acceptance.kind == kind
    several = {**dict.fromkeys(VERIFIERS, 6), "spec-hub": 2, "dsbd": 6}
    assert getattr(method.topology, "drafts", None) == several.get(kind)
    knob = RULES[kind].knob
    usual = None if knob is None else RULES[kind].model_fields[knob.field].default
    assert method.threshold == (0.3 if kind.startswith("fsd") else usual)
    assert method.divergence == {"fsd-official": "ag"}.get(kind, "tv" if kind.startswith("fsd") else None)
    assert decoding_of({**USUAL, **settings_of(method)}) == method


@pytest.mark.parametrize("kind", BEAM_RULES)
def test_beams_ask_for_a_temperature(kind: str) -> None:
    with pytest.raises(IncompatibleOptions, match=f"choose a temperature above 0 for '{kind}'"):
        decoding_of(card(kind))


@pytest.mark.parametrize("kind", [kind for kind in RULES if kind not in BEAM_RULES])
def test_a_tree_is_for_rules_of_single_drafts(kind: str) -> None:
    given = card(kind, threshold=0.3, drafter="eagle", draft_length=4, topology="dynamic-tree", tree_tokens=17)
    method, visible = decoding_of(given), control_properties(given)
    assert visible["tree_tokens"]["visible"] == visible["tree_top_k"]["visible"] == _is_tree(method)
    if RULES[kind].baseline:
        assert (method.drafter, method.topology) == (None, None)
    else:
        assert method.topology is not None
        assert (method.topology.kind, method.topology.length) == (RULES[kind].shapes[-1], 4)
        assert getattr(method.topology, "total_tokens", 17) == 17


def _is_tree(method: DecodingConfig) -> bool:
    return method.topology is not None and method.topology.kind == "dynamic-tree"


def test_fields_that_nothing_reads_are_hidden() -> None:
    def hidden(**given: Any) -> set[str]:
        shown = control_properties({**USUAL, **given})
        return {name for name, options in shown.items() if not options.get("visible", True)}

    shown = {"divergence", "threshold", "guard", "drafter", "topology", "draft_length", "length_by", *JUDGING_OPTIONS}
    assert hidden() == {*CARD_OPTIONS} - shown - {"acceptance"}
    shown = {"kl_budget", "drafter", "draft_length", "length_by", *JUDGING_OPTIONS}
    assert hidden(acceptance="mentored") == {*CARD_OPTIONS} - shown - {"acceptance"}
    assert "strict_first" in hidden(acceptance="block")
    assert hidden(acceptance="autoregressive") == {*CARD_OPTIONS} - {"acceptance"}
    assert "divergence_top_k" not in hidden(divergence="top-k-js")
    assert "max_ngram" not in hidden(drafter="prompt-lookup")
    assert {"least_probability"} == hidden() - hidden(length_by="chain")
    assert {"draft_cost"} == hidden() - hidden(length_by="acceptance")
    assert "drafts" in hidden(acceptance="spec-hub")
    assert "drafts" not in hidden(acceptance="k-seq")
    assert "guard" in hidden(acceptance="fsd")
    assert "judge_bonus" not in hidden(acceptance="fsd")
    assert "judge_bonus" in hidden(acceptance="fsd", topology="dynamic-tree")  # there the bonus is the target's
    assert "sample_target" not in hidden(acceptance="fsd-official")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"threshold": 0.8}, "beyond the range of the divergence 'js'"),
        ({"draft_length": None}, "Draft length γ is empty: expected a whole number."),
        ({"draft_length": 2.5}, "Draft length γ is 2.5: expected a whole number."),
        ({"topology": "dynamic-tree", "tree_tokens": 1}, "Tree tokens is 1: expected at least 2."),
        ({"drafter": "nobody"}, "Drafter 'nobody' is not known: expected one of draft-model"),
    ],
)
def test_what_cannot_be_is_told_in_the_words_of_the_page(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        decoding_of(card("fsd", **given))


def test_a_knob_tells_its_range_and_the_published_divergence_its_caveat() -> None:
    threshold = METHOD_OPTIONS["threshold"]
    assert knob_range("fsd", threshold, "js") == f"0 to {math.log(2):.3g} nats"
    assert knob_range("fsd", threshold, "tv") == "0 to 1"
    assert knob_range("fsd", threshold, "top-k-kl") == "0 or more nats"
    assert knob_range("fsd-official", threshold, "tv") == "0 or more nats"
    assert "was computed as ag" in about("fsd-reducible", "js")
    assert "was computed as ag" not in about("fsd-reducible", "tv")


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
