"""A run's settings as one level of names, without those that nothing in it reads."""

from __future__ import annotations

from typing import Any

from fsd_core.config.building import reads
from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.options import BY_KEY, METHOD_OPTIONS, OPTIONS
from fsd_core.config.run_config import RunConfig
from fsd_core.frozen import before_fields
from fsd_core.rules import ImportedSeries, MeasuredSeries, MissingRule

_RULE = "setting.decoding.acceptance"
_CAN_BE_OFF = {option.field for option in OPTIONS.values() if option.is_knob and option.optional}


def settings_read(config: RunConfig) -> dict[str, Any]:
    """Return a run's settings by dotted name, without those that nothing reads: they make no difference."""
    flat = flatten(config.as_json())
    flat.pop("setting.identity", None)  # it says nothing to people
    rule = config.setting.decoding.acceptance
    if isinstance(rule, MeasuredSeries | ImportedSeries):
        read = ("setting.pair", "task", "limit", *(f"{_RULE}.{name}" for name in ("kind", "family", "name")))
        return {key: flat[key] for key in read} | {f"{_RULE}.{name}": value for name, value in rule.values}
    if isinstance(rule, MissingRule) or rule.by_endpoint:
        return flat
    for name in before_fields(type(rule)):
        flat[f"{_RULE}.{name}"] = getattr(rule, name)
    selected = {option.name: flat[key] for key, option in BY_KEY.items() if option.choices and key in flat}
    unread = [key for key, option in BY_KEY.items() if option.needs and not reads(option, selected)]
    return {key: value for key, value in flat.items() if key not in unread}


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level with dotted names.

    ``None`` becomes ``off`` for a knob that can be off; other fields without a value are left out.
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif value is not None or key in _CAN_BE_OFF:
            flat[prefix + key] = "off" if value is None else value
    return flat


def options_read(config: RunConfig) -> dict[str, Any]:
    """Return the method options that a run has read, by their names in the library and on the command line."""
    values = settings_read(config)
    keys = {name: METHOD_OPTIONS[name].key for name in options_of(config.setting.decoding)}
    return {name: values[key] for name, key in keys.items() if key in values}


def options_of(decoding: DecodingConfig) -> dict[str, Any]:
    """Return the options that the parts of a decoding method have, with their values, by name."""
    parts: dict[str, Any] = {
        "acceptance": decoding.acceptance, "drafter": decoding.drafter, "topology": decoding.topology,
        "sampling": decoding.sampling, "template": decoding.template, "decoding": decoding,
    }  # fmt: skip
    return {
        name: getattr(part, option.field)
        for name, option in METHOD_OPTIONS.items()
        if hasattr(part := parts[option.part], option.field) and (not option.owners or part.kind in option.owners)
    }
