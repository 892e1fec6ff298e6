"""The options of a run, each once: its name, its meaning, its range, its default and what reads it.

The table is made from the fields of the frozen values themselves. The command line, the pages, ``generate`` and the
library take their arguments, labels and help from it, and :func:`method` builds what they ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fsd_core.config.decoding_config import DecodingConfig, SamplingConfig, shapes_of
from fsd_core.config.drafting import DRAFTERS, TOPOLOGIES, ChainTopology, DraftModelDrafter
from fsd_core.config.run_config import RunConfig, SettingConfig
from fsd_core.errors import InvalidSetting
from fsd_core.frozen import Frozen
from fsd_core.rules import RULES, FuzzyReducible


@dataclass(frozen=True)
class Option:
    """One choice. ``low`` and ``high`` are the ends of its range; ``None`` where it has none."""

    name: str
    """on the command line (with dashes) and in Python"""
    key: str
    """where its value stands in a run's configuration, with dots"""
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
    """its label where several values are given"""
    owners: tuple[str, ...] = ()
    """the rules, drafters or shapes that have it; none where everything has"""
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """other options of which it needs one of the values named, else nothing reads it"""
    aliases: tuple[str, ...] = ()
    """names that it had before, which go on working"""

    @property
    def part(self) -> str:
        """``acceptance``, ``drafter``, ``topology``, ``sampling``, ``decoding`` or ``run``: what it belongs to."""
        path = self.key.split(".")
        return "run" if path[:2] != ["setting", "decoding"] else path[2] if len(path) > 3 else "decoding"

    @property
    def field(self) -> str:
        """the name of the field in its part"""
        return self.key.rpartition(".")[2]

    @property
    def is_knob(self) -> bool:
        """Whether it is a knob of rules. A sweep takes several values of it."""
        return self.part == "acceptance" and any(
            rule.knob is not None and rule.knob.field == self.field for rule in RULES.values()
        )

    @property
    def title(self) -> str:
        """Its label with its unit."""
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
    """The options of the fields of several kinds of a part; one that several kinds share is one option."""
    options: dict[str, Option] = {}
    for kind, model in parts.items():
        for field_name, info in model.model_fields.items():
            if field_name == "kind":
                continue
            extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
            name = str(extra.get("name") or field_name)
            new = _described(name, f"{prefix}.{field_name}", info, owners=(kind,))
            if name in options and options[name].type is not new.type:  # another thing of the same name
                name = f"{kind}_{field_name}".replace("-", "_")
                new = _described(name, f"{prefix}.{field_name}", info, owners=(kind,))
            if name in options:
                old = options[name]
                widest = max((end for end in (old.high, new.high) if end is not None), default=None)
                new = replace(old, owners=(*old.owners, kind), high=widest)
            options[name] = new
    yield from options.values()


_METHOD = "setting.decoding"


def _topologies_to_choose() -> tuple[str, ...]:
    """Those that a rule judges which judges another as well."""
    several = (shapes for rule in RULES.values() if len(shapes := shapes_of(rule)) > 1)
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
    yield _described("strict_first", f"{_METHOD}.strict_first", DecodingConfig.model_fields["strict_first"])
    yield _described("max_new_tokens", f"{_METHOD}.max_new_tokens", DecodingConfig.model_fields["max_new_tokens"])
    for name in ("task", "limit", "seed", "dtype", "device", "batch"):
        yield _described(name, name, RunConfig.model_fields[name])


def _named_once(options: Iterator[Option]) -> dict[str, Option]:
    """By name; one whose name is taken by another part is called by its first owner as well."""
    named: dict[str, Option] = {}
    for option in options:
        name = option.name
        if name in named:
            name = f"{option.owners[0] if option.owners else option.part}_{name}".replace("-", "_")
        named[name] = replace(option, name=name)
    return named


OPTIONS: dict[str, Option] = _named_once(_table())
"""by name, in the order in which they are offered"""
METHOD_OPTIONS = {name: option for name, option in OPTIONS.items() if option.part != "run"}
"""those that make a decoding method"""
BY_KEY = {option.key: option for option in OPTIONS.values()}
"""by where they stand in a run's configuration, with dots"""
ALIASES = {alias: name for name, option in OPTIONS.items() for alias in option.aliases}
"""names that options had before, with those that they have now"""


def by_name(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, by their present names; ``None`` is one that was not given.

    Raises ``InvalidSetting`` for one that was given by two of its names.
    """
    given: dict[str, Any] = {}
    for typed, value in chosen.items():
        name = ALIASES.get(typed, typed)
        if value is None:
            continue
        if name in given:
            raise InvalidSetting(f"The option '{name}' was given twice, once by an older name: give it once.")
        given[name] = value
    return given


def option_of(part: str, field_name: str) -> Option | None:
    """The option that sets a field of a part; ``None`` for what nobody chooses."""
    return next((o for o in OPTIONS.values() if (o.part, o.field) == (part, field_name)), None)
