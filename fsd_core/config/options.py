"""The options of a run, each defined once: its name, meaning, range, default and readers.

The table is built from the fields of the frozen values. The command line, the pages, ``generate`` and the library take
their arguments, labels and help from it. :func:`fsd_core.config.building.method` builds a decoding method from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fsd_core.config.decoding_config import JUDGING_OPTIONS, DecodingConfig, SamplingConfig, shapes_of
from fsd_core.config.drafting import DRAFTERS, TOPOLOGIES, ChainTopology, DraftModelDrafter
from fsd_core.config.run_config import RunConfig, SettingConfig
from fsd_core.config.template_config import TemplateConfig
from fsd_core.errors import Contradiction
from fsd_core.frozen import Frozen
from fsd_core.rules import RULES, FuzzyReducible


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
