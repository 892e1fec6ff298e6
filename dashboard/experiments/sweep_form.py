"""Conversion of the experiment form's fields to a :class:`SweepConfig`, or to a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from dashboard.ui.algorithms import BEAM_RULES, PLAIN_RULES, SEVERAL, TUNED
from dashboard.ui.option_fields import label, number
from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.config.building import Named, checked, method
from fsd_core.config.options import METHOD_OPTIONS, OPTIONS, SHARED_OPTIONS, Option
from fsd_core.config.sweeps import LENGTH_OPTIONS, LISTED, loads_of, methods, readable
from fsd_core.errors import Malformed, NotGiven, OutOfRange, UnknownName
from fsd_core.models.model_pairs import check_drafter
from fsd_core.tasks import Task, get_task
from fsd_core.worker.endpoint_names import endpoint_decodings

if TYPE_CHECKING:
    from fsd_core.storage.records import ServedEngine

MOST_SEEDS = 20
_MOST_RUNS = 200
METHOD_GROUPS = (("baselines", PLAIN_RULES), ("several", (*SEVERAL, *BEAM_RULES)), ("tuned", TUNED))
"""the fields in which rules are chosen"""


def no_engine(name: str) -> NoReturn:
    """Raise ``UnknownName``: nobody has named an endpoint."""
    raise UnknownName(f"There is no endpoint '{name[:40]}': add it first.")


def rules_of(values: Mapping[str, Any]) -> list[str]:
    """Return the chosen rules, baselines first."""
    return [kind for part, kinds in METHOD_GROUPS for kind in kinds if kind in values[part]]


def build_sweep(
    values: Mapping[str, Any],
    find_task: Callable[[str], Task] = get_task,
    find_engine: Callable[[str], ServedEngine] = no_engine,
) -> SweepConfig:
    """Return the experiment that the form asks for. Raises ``InvalidSetting`` with one sentence.

    ``values`` are those of the fields by name: options, ``METHOD_GROUPS``, ``endpoints``, ``seeds`` and ``name``.
    ``None`` is an emptied number field. ``find_task`` returns the task of a name, ``find_engine`` an endpoint.
    """
    rules, engines = rules_of(values), [find_engine(name) for name in values.get("endpoints") or ()]
    if not rules and not engines:
        raise NotGiven("Nothing is chosen yet: choose at least one baseline, one algorithm or one endpoint.")
    limit = number(OPTIONS["limit"], values["limit"])
    task = find_task(values["task"])
    task.check_limit(limit, f"“{label(OPTIONS['limit'])}”")
    decodings = methods(method_options(values, rules), option_label) if rules else []
    for decoding in decodings:
        check_drafter(values["pair"], decoding)
    if engines:
        decodings += endpoint_decodings(engines, _shared(values))
    batches = whole_numbers(f"{values['batch']}", "batch sizes", "1, 2, 4")
    return sweep_of(
        decodings, option_label, name=values["name"], pair=values["pair"], task=task.name, limit=limit,
        seeds=parse_seeds(values["seeds"]), **loads_of(batches, read_rates(values.get("rates") or "")),
    )  # fmt: skip


def read_rates(text: str) -> tuple[float, ...]:
    """Return the numbers of a list of request rates such as ``0.5, 1, 2``. Raises ``InvalidSetting``."""
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",") if part.strip()))
    except ValueError:
        raise Malformed(
            f"The request rates {text[:60]!r} cannot be read: expected numbers, such as 0.5, 1, 2."
        ) from None


def _shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's settings of prompts and sampling."""
    names = [name for name in SHARED_OPTIONS if name in values]
    return method({name: _one(METHOD_OPTIONS[name], values[name]) for name in names}, option_label).shared


def _one(option: Option, value: Any) -> Any:
    return value if option.choices else number(option, value)


def method_options(values: Mapping[str, Any], rules: Sequence[str]) -> dict[str, Any]:
    """Return the method options that the form chooses with these rules, by name. Raises ``InvalidSetting``."""
    options = readable({**{name: values[name] for name in METHOD_OPTIONS if name in values}, "acceptance": list(rules)})
    for name, value in options.items():
        option = METHOD_OPTIONS[name]
        if name in LENGTH_OPTIONS:
            options[name] = list(whole_numbers(value, option.plural or option.label, f"{option.default}, 16"))
            continue
        if name in LISTED and not value:
            raise NotGiven(f"No {option.label.lower()} is chosen: choose at least one.")
        options[name] = value if option.is_knob or option.choices else number(option, value)
    return options


def sweep_of(
    decodings: Iterable[DecodingConfig], named: Named, *, name: str, seeds: Iterable[int], **run: Any
) -> SweepConfig:
    """Return the experiment of these methods. ``named`` gives the name of an option in sentences.

    Raises ``InvalidSetting`` for invalid values and for too many runs.
    """
    sweep = checked(SweepConfig, named, name=name.strip()[:120], seeds=tuple(seeds), decodings=tuple(decodings), **run)
    check_size(len(sweep.runs()), "runs", "thresholds or seeds")
    return sweep


def check_size(count: int, what: str, fewer: str) -> None:
    """Raise ``InvalidSetting`` for more runs or settings than one experiment may have."""
    if count > _MOST_RUNS:
        raise OutOfRange(f"These are {count} {what}: expected at most {_MOST_RUNS}. Choose fewer {fewer}.")


def option_label(option: Option, value: Any = None) -> str:
    """Return the form's label of a method option."""
    return option.plural if option.is_knob and option.plural else label(option)


def size_line(sweep: SweepConfig) -> str:
    """Return how much work an experiment is, such as ``7 settings × 1 seed × 50 prompts = 350 generations``."""
    settings, seeds, loads = len(sweep.decodings), len(set(sweep.seeds)), len({*sweep.batches} or {*sweep.rates}) or 1
    parts = [_count(settings, "setting"), _count(seeds, "seed"), _count(sweep.limit, "prompt")]
    if loads > 1:
        parts.insert(1, _count(loads, "load"))
    return f"{' × '.join(parts)} = {_count(settings * loads * seeds * sweep.limit, 'generation')}"


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of a list such as ``0, 1, 2``. Raises ``InvalidSetting`` for anything else."""
    seeds = whole_numbers(text, "seeds", "0, 1, 2")
    if len(seeds) > MOST_SEEDS:
        raise OutOfRange(f"These are {len(seeds)} seeds: expected at most {MOST_SEEDS}.")
    return seeds


def whole_numbers(text: str, what: str, example: str) -> tuple[int, ...]:
    """Return the distinct numbers of a list such as ``0, 1, 2``. Raises ``InvalidSetting``, which calls them
    ``what``."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(_is_whole(part) and int(part) < 2**31 for part in parts):
        raise Malformed(
            f"The {what.lower()} {text[:60]!r} cannot be read: expected whole numbers of at least 0, such as {example}."
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
