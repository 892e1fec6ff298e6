"""The controls of one setting of the playground, and their defaults for a pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from dashboard.ui.algorithms import about, choices, knob_range
from dashboard.ui.components import show
from dashboard.ui.option_fields import field, settings_of, visible_fields
from dashboard.ui.pair_defaults import is_default, pair_defaults
from dashboard.ui.question import Asked, Updates
from fsd_core.config import DecodingConfig
from fsd_core.config.decoding_config import JUDGING_OPTIONS
from fsd_core.config.options import METHOD_OPTIONS

CARD_OPTIONS = [
    name
    for name, option in METHOD_OPTIONS.items()
    if option.part in ("acceptance", "drafter", "topology") or name in JUDGING_OPTIONS
]
OF_DRAFT = [name for name in CARD_OPTIONS if METHOD_OPTIONS[name].part in ("drafter", "topology")]
OF_RULE = [name for name in CARD_OPTIONS if name != "acceptance" and name not in OF_DRAFT]
_DIALS = [*OF_RULE, *OF_DRAFT]
_SELECTORS = [name for name in CARD_OPTIONS if METHOD_OPTIONS[name].choices]
WIDE = {"divergence", "drafter", "topology", "length_by"}
DEFAULTS = ("speculative", "fsd-reducible", "autoregressive", "fsd")
"""the rule of each setting before anybody changes it"""
_LENGTH = {"draft_length": "exact_length"}
_PAIR_DEFAULTS = (_LENGTH, {"threshold": "threshold", **_LENGTH}, {}, _LENGTH)
"""for each setting, the fields whose default depends on the pair, with the name of the default in ``PairDefaults``"""


class SettingCard:
    """The controls of one setting. Those that the chosen algorithm does not read are hidden."""

    def __init__(self, number: int, kind: str, **initial: Any) -> None:
        """``initial`` are first values of fields that differ from the options' defaults."""
        self.title = f"Setting {number}"
        properties = control_properties(
            {name: METHOD_OPTIONS[name].default for name in CARD_OPTIONS} | {"acceptance": kind}
        )
        for name, value in initial.items():
            properties[name]["value"] = value
        with gr.Column(min_width=300, visible=number <= 2, elem_classes=["setting"]) as self.column:
            rule = gr.Dropdown(choices(METHOD_OPTIONS["acceptance"]), value=kind, label=self.title)
            self.about = show(properties["about"]["value"])
            self.fields = {"acceptance": rule}
            for names in (OF_RULE, OF_DRAFT):
                with gr.Row(elem_classes=["dials"]):
                    for name in names:
                        scale = 2 if name in WIDE else 1
                        self.fields[name] = field(METHOD_OPTIONS[name], scale=scale, **properties[name])

    @property
    def outputs(self) -> list[Any]:
        """Components that may change."""
        return [self.column, self.about, *self.fields.values()]

    def values(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the chosen values by option, from the components' ``values``."""
        return {name: values[part] for name, part in self.fields.items()}

    def selected(self, values: Mapping[Any, Any]) -> list[Any]:
        """Return the choices that decide which controls are displayed."""
        return [values[self.fields[name]] for name in _SELECTORS]

    def redraw(self, asked: Asked, values: Mapping[Any, Any]) -> Updates:
        """Return the controls that the chosen algorithm reads, with the range of its knob, if they differ."""
        if not asked.differs(self.title, self.selected(values)):
            return {}
        parts = {"about": self.about, **self.fields}
        properties = control_properties(self.values(values))
        return {parts[name]: gr.update(**options) for name, options in properties.items()}

    def restore(self, asked: Asked, method: DecodingConfig) -> None:
        """Fill in what requested ``method``. Controls that it does not read stay unchanged."""
        for name, value in settings_of(method).items():
            if name in self.fields:
                asked.fill(self.fields[name], value)


def default_cards(pair: str) -> list[SettingCard]:
    """Build a card for each setting, with the defaults of a pair."""
    defaults = pair_defaults(pair)
    return [
        SettingCard(i + 1, kind, **{name: getattr(defaults, value) for name, value in fields.items()})
        for i, (kind, fields) in enumerate(zip(DEFAULTS, _PAIR_DEFAULTS, strict=True))
    ]


def fill_defaults(cards: Sequence[SettingCard], asked: Asked, pair: str) -> None:
    """Fill in the defaults measured for a pair, in fields that nobody has changed."""
    defaults = pair_defaults(pair)
    for card, fields in zip(cards, _PAIR_DEFAULTS, strict=True):
        for name, value in fields.items():
            if is_default(value, asked[card.fields[name]]):
                asked.fill(card.fields[name], getattr(defaults, value))


def control_properties(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each control's properties for the chosen values, by option name. ``about`` is the explanation."""
    kind = values["acceptance"]
    divergence = values.get("divergence") or METHOD_OPTIONS["divergence"].default
    fields = visible_fields(values, _DIALS)
    options: dict[str, dict[str, Any]] = {name: {"visible": visible} for name, visible in fields.items()}
    for name in _DIALS:
        if METHOD_OPTIONS[name].is_knob and options[name]["visible"]:
            options[name]["info"] = knob_range(kind, METHOD_OPTIONS[name], divergence)
    return {"about": {"value": about(kind, divergence)}, **options}
