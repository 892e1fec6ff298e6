"""Several methods at once: all combinations of rules, drafters, topologies and divergences, at every knob value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fsd_core.config.building import Named, check_known, check_names, in_python, method, reads
from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.options import METHOD_OPTIONS, Option, by_name
from fsd_core.config.run_config import IN_FLIGHT
from fsd_core.config.thresholds import OFF, parse_thresholds
from fsd_core.rules import RULES

LISTED = ("acceptance", "drafter", "topology", "length_by", "divergence")
"""options with named values; a sweep takes several of each"""
LENGTH_OPTIONS = ("draft_length",)
"""options with numeric values; a sweep takes several of each"""


def methods(options: Mapping[str, Any], named: Named = in_python) -> list[DecodingConfig]:
    """Return all combinations of rules, drafters, topologies, lengths, divergences and knob values, each once.

    ``options``: by name, ``None`` if not given. Those of ``LISTED`` and ``LENGTH_OPTIONS`` may be lists. A knob
    is a list of numbers, with ``None`` for off, or a text such as ``0:0.6:7``. Each option goes only to the rules,
    drafters and topologies that read it. A rule whose knob is not given uses its own grid. Raises ``InvalidSetting``
    for an option that none of them reads, and like :func:`fsd_core.config.building.method`.
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
