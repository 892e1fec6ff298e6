"""Builds decoding methods from options. Errors name the options as the user typed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fsd_core.config.decoding_config import JUDGING_OPTIONS, DecodingConfig, SamplingConfig, chosen_shape, shapes_of
from fsd_core.config.drafting import DRAFTERS, TOPOLOGIES
from fsd_core.config.options import METHOD_OPTIONS, OPTIONS, Option, by_name, option_of
from fsd_core.config.template_config import TemplateConfig
from fsd_core.config.thresholds import parse_threshold
from fsd_core.errors import IncompatibleOptions, NotApplicable, UnknownChoice
from fsd_core.frozen import Frozen, built, kind_of
from fsd_core.rules import RULES, Rule

Value = TypeVar("Value", bound=Frozen)
Named = Callable[[Option, Any], str]
"""returns the name under which a user gave an option and its value"""


def in_python(option: Option, value: Any) -> str:
    """Return the option's name in Python, such as ``tree_tokens``."""
    return option.name


def method(options: Mapping[str, Any], named: Named = in_python) -> DecodingConfig:
    """Return the decoding method that the options describe. ``None`` is an option that was not given.

    ``named``: returns a user's name for an option, for error messages. Raises ``InvalidSetting`` for a value out of
    range, for an unknown option, and for one that the chosen rule, divergence, drafter or topology does not read.
    """
    given = by_name(options)
    check_names(given)
    for name, value in given.items():
        check_known(METHOD_OPTIONS[name], value, named)
    for name, value in given.items():
        if unread := _unread(METHOD_OPTIONS[name], given):
            part_name, kind, readers = unread
            alternatives = f"choose from {', '.join(readers)}" if len(readers) > 1 else f"choose {readers[0]}"
            option = named(METHOD_OPTIONS[name], value)
            raise NotApplicable(
                f"{option} does not apply to the {part_name} '{kind}': leave it out, or {alternatives}."
            )

    def fields(part: str) -> dict[str, Any]:
        return {METHOD_OPTIONS[n].field: v for n, v in given.items() if METHOD_OPTIONS[n].part == part}

    rule = _rule(given)
    values: dict[str, Any] = {"acceptance": checked(rule, named, **_parse_knob(rule, fields("acceptance")))}
    if not rule.baseline:
        values["drafter"] = checked(DRAFTERS[_value_of(given, "drafter")], named, **_without_kind(fields("drafter")))
        shape = TOPOLOGIES[chosen_shape(rule, given.get("topology")) or ""]
        fixed = {} if rule.drafts is None else {"drafts": rule.drafts}
        values["topology"] = checked(shape, named, **fixed | _without_kind(fields("topology")))
    values["sampling"] = checked(SamplingConfig, named, **fields("sampling"))
    values["template"] = checked(TemplateConfig, named, **fields("template"))
    return checked(DecodingConfig, named, **values | fields("decoding"))


def checked(model: type[Value], named: Named, **values: Any) -> Value:
    """Build the value. Raises ``InvalidSetting`` with one sentence that names the option at fault."""

    def option_name(path: Sequence[int | str]) -> str:
        kinds: dict[str, type[Frozen]] = {**RULES, **DRAFTERS, **TOPOLOGIES}
        owner = next((kind for kind, settings in kinds.items() if settings is model), None)
        parts = {SamplingConfig: "sampling", TemplateConfig: "template", DecodingConfig: "decoding"}
        field = [str(part) for part in path if isinstance(part, str)][-1]
        owned = (o for o in OPTIONS.values() if o.field == field and owner in o.owners)
        part = parts.get(model, "run")
        option = next(owned, None) or option_of(part, field) or option_of(part, field.removesuffix("s"))
        return named(option, values.get(field)) if option else field

    return built(model, option_name, values)


def check_names(given: Mapping[str, Any]) -> None:
    """Raise ``InvalidSetting`` for an unknown option."""
    for name in given:
        if name not in METHOD_OPTIONS:
            raise UnknownChoice(f"There is no option '{name}': expected one of {', '.join(METHOD_OPTIONS)}.")


def check_known(option: Option, value: Any, named: Named = in_python) -> None:
    """Raise ``InvalidSetting`` for an unknown choice."""
    if option.choices and value not in option.choices:
        expected = ", ".join(option.choices)
        raise UnknownChoice(f"{named(option, value)} {str(value)[:60]!r} is not known: expected one of {expected}.")


def reads(option: Option, options: Mapping[str, Any]) -> bool:
    """Return whether ``option`` has an effect with these options. ``options``: by name, ``None`` for a default."""
    given = by_name(options)
    fixed = option.name == "drafts" and _rule(given).drafts is not None
    return not fixed and _unread(option, given) is None


def _unread(option: Option, given: Mapping[str, Any]) -> tuple[str, str, list[str]] | None:
    """Return why nothing reads an option: the part, its chosen kind and the kinds that read it; else ``None``."""
    rule = _rule(given)
    kind = _value_of(given, "acceptance")
    if option.name in JUDGING_OPTIONS and (rule.lossless or rule.writes_beams):
        return "rule", kind, [k for k, r in RULES.items() if not (r.lossless or r.baseline or r.writes_beams)]
    if option.part in ("drafter", "topology") and rule.baseline:
        return "rule", kind, [k for k, other in RULES.items() if not other.baseline]
    if option.part == "acceptance" and option.owners and kind not in option.owners:
        return "rule", kind, list(option.owners)
    if option.part == "drafter" and option.owners and _value_of(given, "drafter") not in option.owners:
        return "drafter", _value_of(given, "drafter"), list(option.owners)
    if option.part == "topology":
        if option.name == "topology" and len(shapes_of(rule)) < 2:
            return "rule", kind, [k for k, other in RULES.items() if len(shapes_of(other)) > 1]
        if option.owners and not {*option.owners} & {*shapes_of(rule)}:
            return "rule", kind, [k for k, other in RULES.items() if {*option.owners} & {*shapes_of(other)}]
        shape = chosen_shape(rule, given.get("topology")) or ""
        if option.owners and shape not in option.owners:
            return "shape", shape, list(option.owners)
    for other, values in option.needs.items():
        if _value_of(given, other) not in values:
            return OPTIONS[other].label.lower(), _value_of(given, other), list(values)
    return None


def _rule(given: Mapping[str, Any]) -> type[Rule]:
    return RULES[_value_of(given, "acceptance")]


def _value_of(given: Mapping[str, Any], name: str) -> Any:
    return given.get(name, OPTIONS[name].default)


def _without_kind(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without the kind, which the class implies."""
    return {name: value for name, value in fields.items() if name != "kind"}


def _parse_knob(rule: type[Rule], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the rule's fields with a textual knob value parsed. Raises ``InvalidSetting``."""
    fields = _without_kind(fields)
    if rule.knob and isinstance(text := fields.get(rule.knob.field), str):
        value = parse_threshold(text)
        if value is None and not rule.knob.is_off:
            raise IncompatibleOptions(
                f"The rule '{kind_of(rule)}' cannot be off: give a {rule.knob.field.replace('_', ' ')}, or choose "
                "'speculative'."
            )
        fields[rule.knob.field] = rule.knob.strict if value is None else value
    return fields
