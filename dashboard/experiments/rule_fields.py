"""Fields in which the rules of an experiment are chosen, grouped by what the rules ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gradio as gr

from dashboard.experiments.sweep_form import METHOD_GROUPS
from dashboard.ui.algorithms import BEAM_RULES, BY_DIVERGENCE, BY_LIKELIHOOD, BY_MIXTURE, PLAIN_RULES, SEVERAL, cost
from dashboard.ui.components import show
from dashboard.ui.templates import render, script
from fsd_core.config import RULES


class RuleField(NamedTuple):
    """A field of rules that ask the same."""

    part: str
    """of ``METHOD_GROUPS``, whose rules are in one field or in several"""
    label: str
    kinds: tuple[str, ...]


RULE_FIELDS = {
    "baselines": RuleField("baselines", "Baselines", PLAIN_RULES),
    "by divergence": RuleField("tuned", "Divergence: how far the two models differ", BY_DIVERGENCE),
    "by likelihood": RuleField("tuned", "Likelihood: what the target thinks of the token", BY_LIKELIHOOD),
    "by mixture": RuleField("tuned", "Mixtures: something between the two models", BY_MIXTURE),
    "several": RuleField("several", "Several drafts at once, for sampling", SEVERAL),
    "beam rules": RuleField("several", "Beams, for sampling", BEAM_RULES),
}
"""fields by name"""


def rule_fields(chosen: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the fields, made in the caller's context, by name. ``chosen``: rules by the name of their field.

    They are folded to the chosen rules until a person unfolds them.
    """
    with gr.Column(elem_id="rules"):
        fields: dict[str, Any] = {
            name: gr.CheckboxGroup(
                [(_choice(kind), kind) for kind in field.kinds], value=chosen.get(name, []), label=field.label
            )
            for name, field in RULE_FIELDS.items()
        }
        more = render("experiments/form.html", "all_rules", f"All {len(RULES)} rules")
        show(more, js_on_load=script("experiments/all_rules.js"))
    return fields


def _choice(kind: str) -> str:
    """Return a rule's title, and in a second line what it costs and does. The style sheet folds that line."""
    return f"{RULES[kind].title}\n{cost(kind).capitalize()}. {RULES[kind].explanation}"


def by_part(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of the form by name, with the chosen rules by the parts of ``METHOD_GROUPS``."""
    parts = {
        part: [kind for name, field in RULE_FIELDS.items() if field.part == part for kind in values[name] or ()]
        for part, _ in METHOD_GROUPS
    }
    return {name: value for name, value in values.items() if name not in RULE_FIELDS} | parts


def by_field(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the form's fields: the reverse of :func:`by_part`."""
    fields = {
        name: [kind for kind in field.kinds if kind in values[field.part]]
        for name, field in RULE_FIELDS.items()
        if field.part in values
    }
    return {name: value for name, value in values.items() if name not in dict(METHOD_GROUPS)} | fields
