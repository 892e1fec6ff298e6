"""The options of a run, each defined once, and the configurations that are built from them.

The options of a run, each defined once: its name, meaning, range, default and readers.

The table is built from the fields of the frozen values. The command line, the pages, ``generate`` and the library take
their arguments, labels and help from it. :func:`method` builds a decoding method from them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic.fields import FieldInfo

from fsd_core.config.decoding_config import (
    JUDGING_OPTIONS,
    DecodingConfig,
    SamplingConfig,
    TemplateConfig,
    chosen_shape,
    topologies_for,
)
from fsd_core.config.drafting import DRAFTERS, TOPOLOGIES, ChainTopology, DraftModelDrafter
from fsd_core.config.run_config import IN_FLIGHT, RunConfig, SettingConfig
from fsd_core.errors import (
    Contradiction,
    IncompatibleOptions,
    Malformed,
    NotApplicable,
    NotGiven,
    OutOfRange,
    UnknownChoice,
)
from fsd_core.frozen import Frozen, before_fields, built, kind_of
from fsd_core.rules import RULES, FuzzyReducible, ImportedSeries, MeasuredSeries, MissingRule, Rule

OFF = "off"
MOST_THRESHOLDS = 100
DIGITS = 6
"""decimal places of the values of a range, so that 0.15 is the same setting wherever it is typed"""


def parse_threshold(text: str) -> float | None:
    """Return a number, or ``None`` for ``off``: exact speculative decoding.

    Raises ``InvalidSetting`` for anything else. The rule checks whether its divergence can be that large.
    """
    if text.strip().lower() == OFF:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise Malformed(
            f"The threshold {text.strip()[:60]!r} is not a number: expected one such as 0.1, or '{OFF}' for exact SD."
        )
    return value


def parse_thresholds(text: str) -> tuple[float | None, ...]:
    """Return thresholds from a list such as ``0.05, 0.1, off``, ranges ``start:stop:count`` with both ends, or both.

    ``0,05; 0,1`` has decimal commas. Raises ``InvalidSetting`` for anything else.
    """
    thresholds: list[float | None] = []
    decimal_commas = ";" in text and "." not in text and re.search(r"\d,\d", text)
    if not decimal_commas and re.search(r"(^|[;,\s])0+,\s*0\d", text):
        raise Malformed(f"The thresholds {text.strip()[:60]!r} have decimal commas: expected 0.05, 0.1 or 0,05; 0,1.")
    if decimal_commas:
        text = text.replace(",", ".")
    for part in text.replace(";", ",").split(","):
        if word := part.strip():
            thresholds += _range(word) if ":" in word else [parse_threshold(word)]
    if not thresholds:
        raise NotGiven("The thresholds are empty: expected a list such as 0.05, 0.1, 0.2 or a range such as 0:0.6:7.")
    thresholds = list(dict.fromkeys(thresholds))
    if len(thresholds) > MOST_THRESHOLDS:
        raise OutOfRange(f"These are {len(thresholds)} thresholds: expected at most {MOST_THRESHOLDS}.")
    return tuple(thresholds)


def _range(word: str) -> list[float | None]:
    parts = [part.strip() for part in word.split(":")]
    try:
        start, stop, count = float(parts[0]), float(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        start, stop, count = math.nan, math.nan, 0
    if len(parts) != 3 or not (math.isfinite(start) and start < stop < math.inf and 2 <= count <= MOST_THRESHOLDS):
        raise Malformed(
            f"The range {word[:60]!r} cannot be used: expected start:stop:count with a stop above the start and a "
            f"count from 2 to {MOST_THRESHOLDS}, such as 0:0.6:7 for seven thresholds."
        )
    return [round(start + (stop - start) * i / (count - 1), DIGITS) for i in range(count)]


@dataclass(frozen=True)
class Option:
    """One option. ``low`` and ``high`` bound its range; ``None`` is unbounded."""

    name: str
    """name in Python, and with dashes on the command line"""
    key: str
    """dotted path of its value in a run's configuration"""
    label: str
    help: str
    type: type
    """bool, int, float or str"""
    default: Any
    choices: tuple[str, ...] = ()
    optional: bool = False
    """whether it can be ``off``"""
    low: float | None = None
    high: float | None = None
    unit: str = ""
    plural: str = ""
    """label for several values"""
    owners: tuple[str, ...] = ()
    """rules, drafters or topologies that have it; empty if all do"""
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """other options and the values that they must have for this one to be read"""
    aliases: tuple[str, ...] = ()
    """former names, which still work"""

    @property
    def part(self) -> str:
        """Its part: ``acceptance``, ``drafter``, ``topology``, ``sampling``, ``template``,
        ``decoding`` or ``run``."""
        path = self.key.split(".")
        return "run" if path[:2] != ["setting", "decoding"] else path[2] if len(path) > 3 else "decoding"

    @property
    def field(self) -> str:
        """Name of the field in its part."""
        return self.key.rpartition(".")[2]

    @property
    def is_knob(self) -> bool:
        """Whether it is a knob of rules. A sweep takes several values of it."""
        return self.part == "acceptance" and any(
            rule.knob is not None and rule.knob.field == self.field for rule in RULES.values()
        )

    @property
    def title(self) -> str:
        """Label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _described(name: str, key: str, info: FieldInfo, **more: Any) -> Option:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    arguments = get_args(info.annotation)
    literal = get_origin(info.annotation) is Literal
    kind = str if literal else next((a for a in arguments if a is not NoneType), info.annotation)
    bounds = {
        end: getattr(constraint, end)
        for constraint in info.metadata
        for end in ("ge", "gt", "le", "lt")
        if hasattr(constraint, end)
    }
    label = info.title or name.replace("_", " ").capitalize()
    values: dict[str, Any] = {
        "label": label, "help": info.description or label, "type": kind, "default": info.default,
        "choices": arguments if literal else (), "optional": NoneType in arguments,
        "low": bounds.get("ge", bounds.get("gt")), "high": bounds.get("le", bounds.get("lt")),
        "unit": extra.get("unit", ""), "plural": extra.get("plural", ""), "needs": extra.get("needs", {}),
        "aliases": tuple(aliases) if isinstance(aliases := extra.get("aliases"), list) else (),
    }  # fmt: skip
    return Option(name, key, **values | more)


def _of_parts(prefix: str, parts: Mapping[str, type[Frozen]]) -> Iterator[Option]:
    """Yield the options of the fields of several kinds of a part; kinds that share a field share its option."""
    options: dict[str, Option] = {}
    for kind, model in parts.items():
        for field_name, info in model.model_fields.items():
            if field_name == "kind":
                continue
            extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
            name = str(extra.get("name") or field_name)
            new = _described(name, f"{prefix}.{field_name}", info, owners=(kind,))
            if name in options and options[name].type is not new.type:  # same name, different meaning
                name = f"{kind}_{field_name}".replace("-", "_")
                new = _described(name, f"{prefix}.{field_name}", info, owners=(kind,))
            if name in options:
                old = options[name]
                widest = max((end for end in (old.high, new.high) if end is not None), default=None)
                lowest = min((end for end in (old.low, new.low) if end is not None), default=None)
                new = replace(old, owners=(*old.owners, kind), high=widest, low=lowest)
            options[name] = new
    yield from options.values()


_METHOD = "setting.decoding"


def _topologies_to_choose() -> tuple[str, ...]:
    """Return the topologies of every rule that judges more than one."""
    several = (shapes for rule in RULES.values() if len(shapes := topologies_for(rule)) > 1)
    return tuple(dict.fromkeys(shape for shapes in several for shape in shapes))


def _table() -> Iterator[Option]:
    yield _described("pair", "setting.pair", SettingConfig.model_fields["pair"])
    yield Option(
        "acceptance", f"{_METHOD}.acceptance.kind", "Rule", "Acceptance rule: which drafted tokens are kept", str,
        FuzzyReducible().kind, tuple(RULES), plural="Rules",
    )  # fmt: skip
    yield from _of_parts(f"{_METHOD}.acceptance", RULES)
    yield Option(
        "drafter", f"{_METHOD}.drafter.kind", "Drafter", "What proposes tokens", str,
        DraftModelDrafter().kind, tuple(DRAFTERS), plural="Drafters",
    )  # fmt: skip
    yield from _of_parts(f"{_METHOD}.drafter", DRAFTERS)
    yield Option(
        "topology", f"{_METHOD}.topology.kind", "Topology", "Structure of the draft", str,
        ChainTopology().kind, _topologies_to_choose(),
        plural="Topologies", aliases=("shape",),
    )  # fmt: skip
    yield from _of_parts(f"{_METHOD}.topology", TOPOLOGIES)
    for name, info in SamplingConfig.model_fields.items():
        yield _described(name, f"{_METHOD}.sampling.{name}", info)
    for name in (*JUDGING_OPTIONS, "max_new_tokens"):
        yield _described(name, f"{_METHOD}.{name}", DecodingConfig.model_fields[name])
    for name, info in TemplateConfig.model_fields.items():
        yield _described(f"template_{name}", f"{_METHOD}.template.{name}", info)
    for name in ("task", "limit", "seed", "dtype", "device", "batch"):
        yield _described(name, name, RunConfig.model_fields[name])


def _named_once(options: Iterator[Option]) -> dict[str, Option]:
    """Return the options by name; a name that another part has taken is prefixed with its first owner."""
    named: dict[str, Option] = {}
    for option in options:
        name = option.name
        if name in named:
            name = f"{option.owners[0] if option.owners else option.part}_{name}".replace("-", "_")
        named[name] = replace(option, name=name)
    return named


OPTIONS: dict[str, Option] = _named_once(_table())
"""by name, in display order"""
METHOD_OPTIONS = {name: option for name, option in OPTIONS.items() if option.part != "run"}
"""options of a decoding method"""
SHARED_OPTIONS = tuple(
    name
    for name, option in METHOD_OPTIONS.items()
    if option.part in ("sampling", "template") or name == "max_new_tokens"
)
"""those that a method and its baseline have alike (``DecodingConfig.shared``)"""
BY_KEY = {option.key: option for option in OPTIONS.values()}
"""by dotted path in a run's configuration"""
ALIASES = {alias: name for name, option in OPTIONS.items() for alias in option.aliases}
"""former names of options with their current names"""


def by_name(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, by current name; ``None`` is one that was not given.

    Raises ``InvalidSetting`` for an option that was given under two of its names.
    """
    given: dict[str, Any] = {}
    for typed, value in options.items():
        name = ALIASES.get(typed, typed)
        if value is None:
            continue
        if name in given:
            raise Contradiction(f"The option '{name}' was given twice, once by an older name: give it once.")
        given[name] = value
    return given


def option_of(part: str, field_name: str) -> Option | None:
    """Return the option that sets a field of a part; ``None`` if no option does."""
    return next((o for o in OPTIONS.values() if (o.part, o.field) == (part, field_name)), None)


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
        if option.name == "topology" and len(topologies_for(rule)) < 2:
            return "rule", kind, [k for k, other in RULES.items() if len(topologies_for(other)) > 1]
        if option.owners and not {*option.owners} & {*topologies_for(rule)}:
            return "rule", kind, [k for k, other in RULES.items() if {*option.owners} & {*topologies_for(other)}]
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


_RULE = "setting.decoding.acceptance"
_CAN_BE_OFF = {option.field for option in OPTIONS.values() if option.is_knob and option.optional}


def effective_settings(config: RunConfig) -> dict[str, Any]:
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


def effective_options(config: RunConfig) -> dict[str, Any]:
    """Return the method options that a run has read, by their names in the library and on the command line."""
    values = effective_settings(config)
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


LISTED = ("acceptance", "drafter", "topology", "length_by", "divergence")
"""options with named values; a sweep takes several of each"""
LENGTH_OPTIONS = ("draft_length",)
"""options with numeric values; a sweep takes several of each"""


def methods(options: Mapping[str, Any], named: Named = in_python) -> list[DecodingConfig]:
    """Return all combinations of rules, drafters, topologies, lengths, divergences and knob values, each once.

    ``options``: by name, ``None`` if not given. Those of ``LISTED`` and ``LENGTH_OPTIONS`` may be lists. A knob
    is a list of numbers, with ``None`` for off, or a text such as ``0:0.6:7``. Each option goes only to the rules,
    drafters and topologies that read it. A rule whose knob is not given uses its own grid. Raises ``InvalidSetting``
    for an option that none of them reads, and like :func:`method`.
    """
    given = {name: value for name, value in by_name(options).items() if value != []}
    check_names(given)
    for name in LISTED:
        for value in _listed(given.get(name, ())):
            check_known(METHOD_OPTIONS[name], value, named)
    combinations = _combinations(given)
    read = readable(given)
    shared = {
        name: _values(v) if _is_knob(name) else v for name, v in given.items() if name not in (*LISTED, *LENGTH_OPTIONS)
    }
    seen: list[dict[str, Any]] = []
    decodings: dict[DecodingConfig, None] = {}
    for combination in combinations:
        single = {n: value for n, value in (shared | combination).items() if n not in read or _is_read(n, combination)}
        if single not in seen:  # combinations that differ only in unread options
            seen.append(single)
            decodings |= {
                method(single | values, named): None for values in _knob_values(combination, single, combinations)
            }
    return list(decodings)


def readable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a sweep of these rules, drafters, topologies and divergences reads, by name."""
    combinations = _combinations(options)
    return {
        name: value
        for name, value in options.items()
        if any(_is_read(name, combination) for combination in combinations)
    }


def _combinations(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the values given for options that take several."""
    several = {
        name: _listed(options[name])
        for name in (*LISTED, *LENGTH_OPTIONS)
        if options.get(name) not in (None, "", [], ())
    }
    return [dict(zip(several, values, strict=True)) for values in product(*several.values())]


def _knob_values(
    combination: Mapping[str, Any], options: Mapping[str, Any], combinations: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the knob values of a combination, one setting after the other; one empty setting without knobs."""
    kind = combination.get("acceptance", METHOD_OPTIONS["acceptance"].default)
    knob, option = RULES[kind].knob, knob_of(kind)
    if knob is not None and option is not None and option.name not in options:
        options = {**options, option.name: knob.grid}
    names = [name for name in options if _is_knob(name)]
    knob_values = [
        {name: OFF if value is None else value for name, value in zip(names, values, strict=True)}
        for values in product(*(options[name] for name in names))
    ]
    if knob is not None and option is not None and not knob.is_off and _off_elsewhere(combinations, knob.field):
        knob_values = [values for values in knob_values if values[option.name] != OFF]
    return knob_values


def _off_elsewhere(combinations: Sequence[Mapping[str, Any]], field: str) -> bool:
    """Return whether another rule of the sweep takes the ``off`` of that knob."""
    rules = (RULES[combination.get("acceptance", METHOD_OPTIONS["acceptance"].default)] for combination in combinations)
    return any(rule.can_be_off() and rule.knob and rule.knob.field == field for rule in rules)


def knob_of(kind: str) -> Option | None:
    """Return the option that is a rule's knob; ``None`` if it has none."""
    knob = RULES[kind].knob
    if knob is None:
        return None
    return next(o for o in METHOD_OPTIONS.values() if o.field == knob.field and kind in o.owners)


def _is_knob(name: str) -> bool:
    return name in METHOD_OPTIONS and METHOD_OPTIONS[name].is_knob


def _is_read(name: str, combination: Mapping[str, Any]) -> bool:
    return name not in METHOD_OPTIONS or reads(METHOD_OPTIONS[name], combination)


def _listed(value: Any) -> list[Any]:
    return list(dict.fromkeys(value if isinstance(value, Sequence) and not isinstance(value, str) else [value]))


def _values(value: Any) -> tuple[float | None, ...]:
    if isinstance(value, str):
        return parse_thresholds(value)
    return tuple(value) if isinstance(value, Sequence) else (value,)


def loads_of(batches: Sequence[int], rates: Sequence[float] = ()) -> dict[str, Any]:
    """Return the fields of an experiment with these batch sizes: a single one is kept as it always was.

    With ``rates``, at which prompts arrive at engines, it is how many may be open at once, and 1 stands for the usual.
    """
    if rates and len(batches) == 1:
        return {"batch": IN_FLIGHT if batches[0] == 1 else batches[0], "rates": tuple(rates)}
    if rates:
        return {"batches": tuple(batches), "rates": tuple(rates)}  # refused in a sentence
    return {"batches": tuple(batches)} if len(batches) > 1 else {"batch": batches[0]}


def experiment_name(decodings: Sequence[DecodingConfig], task: str) -> str:
    """Return the default name of a sweep, such as ``FSD reducible · js 0.05 to 0.6 on arithmetic``."""
    numbers = sorted({decoding.threshold for decoding in decodings if decoding.threshold is not None})
    thresholds = [" to ".join(f"{number:g}" for number in dict.fromkeys((numbers[0], numbers[-1])))] if numbers else []
    thresholds += ["off"] * any(
        decoding.threshold is None and decoding.acceptance.knob is not None for decoding in decodings
    )
    draft_lengths = sorted({decoding.topology.length for decoding in decodings if decoding.topology is not None})
    lengths = (
        " and ".join([", ".join(map(str, draft_lengths[:-1])), str(draft_lengths[-1])])
        if len(draft_lengths) > 1
        else ""
    )
    first, *more_families = dict.fromkeys(decoding.family(" and ".join(thresholds), lengths) for decoding in decodings)
    more = (
        f" and {len(more_families)} others"
        if len(more_families) > 1
        else "".join(f" and {family}" for family in more_families)
    )
    return f"{first}{more} on {task}"
