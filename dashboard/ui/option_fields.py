"""Form fields made from the table of options, and the values that a person sets in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import gradio as gr

from dashboard.ui.algorithms import choices
from fsd_core.config import RULES, DecodingConfig
from fsd_core.config.building import method, reads
from fsd_core.config.flat import options_of
from fsd_core.config.options import METHOD_OPTIONS, Option
from fsd_core.config.thresholds import OFF
from fsd_core.errors import Malformed, NotGiven

ARGUMENTS = '{"enable_thinking": false}'
"""an example of template arguments"""


def field(option: Option, **more: Any) -> Any:
    """Return the component for one value of an option. ``more`` adds to or overrides its properties."""
    properties: dict[str, Any] = {"value": option.default, "label": option.title, "min_width": 110} | more
    if option.choices:
        return gr.Dropdown(choices(option), **properties)
    if option.type is bool:
        return gr.Checkbox(**properties)
    if option.type is str:
        return gr.Textbox(**properties)
    # Without a precision, which would silently round what was typed: `number` rejects fractions instead.
    return gr.Number(step=_step(option), **properties)


def multiselect_field(option: Option, **more: Any) -> gr.Dropdown:
    """Return the component for several of an option's choices, with the default selected."""
    properties: dict[str, Any] = {"label": option.plural or option.label, "min_width": 160} | more
    return gr.Dropdown(choices(option), value=[option.default], multiselect=True, **properties)


def _step(option: Option) -> float:
    return 1 if option.type is int else 0.01 if option.is_knob else 0.05


def label(option: Option, value: Any = None) -> str:
    """Return the label of an option on a page."""
    return option.label


def decoding_of(values: Mapping[str, Any]) -> DecodingConfig:
    """Return the decoding method of a setting's fields, given by option name. Fields that nothing reads are ignored.

    An empty knob is off. Raises ``InvalidSetting`` with one sentence, also for any other empty field.
    """
    options, rule = _read(values), RULES[values["acceptance"]]
    for name, value in options.items():
        option = METHOD_OPTIONS[name]
        if rule.knob is not None and option.field == rule.knob.field and value is None:
            options[name] = OFF if rule.can_be_off() else None
        elif not option.choices:
            options[name] = number(option, value)
    return method(options, label)


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the chosen ones read."""
    visible = visible_fields(values, values)
    return {name: value for name, value in values.items() if visible[name]}


def number(option: Option, value: Any) -> Any:
    """Return a field's value in its option's type. Raises ``InvalidSetting`` for an empty field or a fraction of a
    whole."""
    if option.type not in (int, float):
        return value
    if value is None or not math.isfinite(value):
        raise NotGiven(f"{option.label} is empty: expected a {_kind(option)}.")
    if option.type is int and value != int(value):
        raise Malformed(f"{option.label} is {value:g}: expected a whole number.")
    return option.type(value)


def _kind(option: Option) -> str:
    return "whole number" if option.type is int else "number"


def visible_fields(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, bool]:
    """Return for each name whether its field leaves something to choose, given the choices in the others."""
    choices = {name: value for name, value in values.items() if METHOD_OPTIONS[name].choices}
    return {name: reads(METHOD_OPTIONS[name], choices) for name in names}


def settings_of(decoding: DecodingConfig) -> dict[str, Any]:
    """Return the options of a decoding method with their values, by name, except those that it does not read."""
    return _read(options_of(decoding))
