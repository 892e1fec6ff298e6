"""Several methods at once: rules, drafters, shapes and divergences with one another, at every value of a knob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fsd_core.config.building import Named, check_known, check_names, in_python, method, reads
from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.options import METHOD_OPTIONS, Option, by_name
from fsd_core.config.thresholds import OFF, parse_thresholds
from fsd_core.rules import RULES

LISTED = ("acceptance", "drafter", "topology", "divergence")
"""options with names for values, of which a sweep takes several"""
LENGTH_OPTIONS = ("draft_length",)
"""options with numbers for values, of which it takes several too"""


def methods(chosen: Mapping[str, Any], named: Named = in_python) -> list[DecodingConfig]:
    """Every rule with every drafter in every shape of every length with every divergence at every value of its knob,
    each once.

    ``chosen``: options by name, ``None`` for what was not given; those of ``LISTED`` and ``LENGTH_OPTIONS`` may be
    lists, and a knob is a list of numbers, with ``None`` for off, or a text such as ``0:0.6:7``. Of several rules,
    drafters and shapes, those that read an option are given it. A rule whose knob is not given has the values of its
    own grid. Raises ``InvalidSetting`` for an option that none of them reads, and as
    :func:`fsd_core.config.building.method` does.
    """
    given = {name: value for name, value in by_name(chosen).items() if value != []}
    check_names(given)
    for name in LISTED:
        for value in _listed(given.get(name, ())):
            check_known(METHOD_OPTIONS[name], value, named)
    forms = _forms(given)
    read = readable(given)
    shared = {
        name: _values(v) if _is_knob(name) else v for name, v in given.items() if name not in (*LISTED, *LENGTH_OPTIONS)
    }
    seen: list[dict[str, Any]] = []
    decodings: dict[DecodingConfig, None] = {}
    for form in forms:
        own = {n: value for n, value in (shared | form).items() if n not in read or _wanted(n, form)}
        if own not in seen:  # forms that differ in what nothing reads ask for the same
            seen.append(own)
            decodings |= {method(own | values, named): None for values in _knob_values(form, own, forms)}
    return list(decodings)


def readable(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that a sweep of such rules, drafters, shapes and divergences reads, by name."""
    forms = _forms(chosen)
    return {name: value for name, value in chosen.items() if any(_wanted(name, form) for form in forms)}


def _forms(chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of what was given of the options that take several values."""
    several = {
        name: _listed(chosen[name]) for name in (*LISTED, *LENGTH_OPTIONS) if chosen.get(name) not in (None, "", [], ())
    }
    return [dict(zip(several, values, strict=True)) for values in product(*several.values())]


def _knob_values(
    form: Mapping[str, Any], own: Mapping[str, Any], forms: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What the knobs of a form are set to, one setting after the other; once nothing where there are none."""
    kind = form.get("acceptance", METHOD_OPTIONS["acceptance"].default)
    knob, option = RULES[kind].knob, knob_of(kind)
    if knob is not None and option is not None and option.name not in own:
        own = {**own, option.name: knob.grid}
    names = [name for name in own if _is_knob(name)]
    turned = [
        {name: OFF if value is None else value for name, value in zip(names, values, strict=True)}
        for values in product(*(own[name] for name in names))
    ]
    if knob is not None and option is not None and not knob.is_off and _off_elsewhere(forms, knob.field):
        turned = [values for values in turned if values[option.name] != OFF]
    return turned


def _off_elsewhere(forms: Sequence[Mapping[str, Any]], field: str) -> bool:
    """Whether another rule of the sweep takes the ``off`` of that knob."""
    rules = (RULES[form.get("acceptance", METHOD_OPTIONS["acceptance"].default)] for form in forms)
    return any(rule.can_be_off() and rule.knob and rule.knob.field == field for rule in rules)


def knob_of(kind: str) -> Option | None:
    """The option that is a rule's knob."""
    knob = RULES[kind].knob
    if knob is None:
        return None
    return next(o for o in METHOD_OPTIONS.values() if o.field == knob.field and kind in o.owners)


def _is_knob(name: str) -> bool:
    return name in METHOD_OPTIONS and METHOD_OPTIONS[name].is_knob


def _wanted(name: str, form: Mapping[str, Any]) -> bool:
    return name not in METHOD_OPTIONS or reads(METHOD_OPTIONS[name], form)


def _listed(value: Any) -> list[Any]:
    return list(dict.fromkeys(value if isinstance(value, Sequence) and not isinstance(value, str) else [value]))


def _values(value: Any) -> tuple[float | None, ...]:
    if isinstance(value, str):
        return parse_thresholds(value)
    return tuple(value) if isinstance(value, Sequence) else (value,)


def experiment_name(decodings: Sequence[DecodingConfig], task: str) -> str:
    """The name of a sweep that has none, such as ``FSD reducible · js 0.05 to 0.6 on arithmetic``."""
    numbers = sorted({decoding.threshold for decoding in decodings if decoding.threshold is not None})
    words = [" to ".join(f"{number:g}" for number in dict.fromkeys((numbers[0], numbers[-1])))] if numbers else []
    words += ["off"] * any(
        decoding.threshold is None and decoding.acceptance.knob is not None for decoding in decodings
    )
    several = sorted({decoding.topology.length for decoding in decodings if decoding.topology is not None})
    lengths = " and ".join([", ".join(map(str, several[:-1])), str(several[-1])]) if len(several) > 1 else ""
    first, *others = dict.fromkeys(decoding.family(" and ".join(words), lengths) for decoding in decodings)
    more = f" and {len(others)} others" if len(others) > 1 else "".join(f" and {other}" for other in others)
    return f"{first}{more} on {task}"
