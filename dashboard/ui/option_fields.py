"""Fields of forms, made from the table of options; and what a person has set in them."""

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
from fsd_core.errors import InvalidSetting


def field(option: Option, **more: Any) -> Any:
    """The component for one value of an option; ``more`` is what this page says of it besides."""
    usual = {"value": option.default, "label": option.title, "min_width": 110} | more
    if option.choices:
        return gr.Dropdown(choices(option), **usual)
    if option.type is bool:
        return gr.Checkbox(**usual)
    # Without a precision, which would round what was typed and say nothing: `number` refuses part of a whole.
    return gr.Number(step=_step(option), **usual)


def several(option: Option, **more: Any) -> gr.Dropdown:
    """The component for several of an option's choices, the usual one chosen."""
    usual = {"label": option.plural or option.label, "min_width": 160} | more
    return gr.Dropdown(choices(option), value=[option.default], multiselect=True, **usual)


def _step(option: Option) -> float:
    return 1 if option.type is int else 0.01 if option.is_knob else 0.05


def label(option: Option, value: Any = None) -> str:
    """What a page calls an option."""
    return option.label


def chosen(values: Mapping[str, Any]) -> DecodingConfig:
    """The decoding method of a setting's fields, by the options' names; fields that nothing reads are left aside.

    An empty knob is off. Raises ``InvalidSetting`` with one sentence, also for another field that is empty.
    """
    given, rule = _read(values), RULES[values["acceptance"]]
    for name, value in given.items():
        option = METHOD_OPTIONS[name]
        if rule.knob is not None and option.field == rule.knob.field and value is None:
            given[name] = OFF if rule.can_be_off() else None
        elif not option.choices:
            given[name] = number(option, value)
    return method(given, label)


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that something of what is chosen in them reads."""
    visible = visible_fields(values, values)
    return {name: value for name, value in values.items() if visible[name]}


def number(option: Option, value: Any) -> Any:
    """A field's value as its option takes it. Raises ``InvalidSetting`` for an empty field and for part of a whole."""
    if option.type not in (int, float):
        return value
    if value is None or not math.isfinite(value):
        raise InvalidSetting(f"{option.label} is empty: expected a {_kind(option)}.")
    if option.type is int and value != int(value):
        raise InvalidSetting(f"{option.label} is {value:g}: expected a whole number.")
    return option.type(value)


def _kind(option: Option) -> str:
    return "whole number" if option.type is int else "number"


def visible_fields(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, bool]:
    """Which of the fields of these names leave something to choose, for what has been chosen in the others."""
    choices = {name: value for name, value in values.items() if METHOD_OPTIONS[name].choices}
    return {name: reads(METHOD_OPTIONS[name], choices) for name in names}


def settings_of(decoding: DecodingConfig) -> dict[str, Any]:
    """The options of a decoding method with their values, by name; those that it does not read are left out."""
    return _read(options_of(decoding))
