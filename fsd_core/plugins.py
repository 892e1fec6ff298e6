"""Registries of built-in things and those that other packages add by entry points of the group ``fsd_lab``.

An entry point names a subclass of ``fsd_core.rules.Rule``, ``fsd_core.config.DrafterSettings`` or
``fsd_core.config.TopologySettings``, a ``fsd_core.tasks.Task`` or a ``fsd_core.metrics.Metric``. Its own name has no
meaning. docs/extending.md shows a package.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from fsd_core.errors import InvalidSetting, UnknownChoice

GROUP = "fsd_lab"

logger = logging.getLogger(__name__)
Thing = TypeVar("Thing")


@cache
def _loaded() -> tuple[Any, ...]:
    """Return the objects that the entry points name, sorted by name. One that cannot be loaded is left out with a
    warning."""
    loaded = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            loaded.append(point.load())
        except Exception as error:  # whatever a foreign package raises
            logger.warning(
                "The plug-in '%s' of the package %s is left out: it cannot be loaded (%s: %s).",
                point.name, point.dist.name if point.dist else point.value, type(error).__name__, error,
            )  # fmt: skip
    return tuple(loaded)


class Registry(Mapping[str, Thing], Generic[Thing]):
    """Things by name, in the order in which they are offered: built-in ones, then those of other packages.

    Other packages are loaded on first access, so that they can import the module that holds the registry.
    """

    def __init__(
        self, built_in: Callable[[], Sequence[Thing]], name: Callable[[Thing], str], of: Callable[[Any], Thing | None]
    ) -> None:
        """``of`` returns what a package named as a thing of this registry, or ``None`` if it is something else."""
        self._built_in, self._name, self._of = built_in, name, of

    @cached_property
    def _things(self) -> dict[str, Thing]:
        things = {self._name(thing): thing for thing in self._built_in()}
        for foreign in _loaded():
            if (thing := self._of(foreign)) is not None:
                name = self._name(thing)
                if name in things and things[name] is not thing:
                    logger.warning("The plug-in '%s' is left out: there is one of that name already.", name)
                things.setdefault(name, thing)
        return things

    def where(self, keep: Callable[[Thing], bool]) -> Registry[Thing]:
        """Return a registry of the things for which ``keep`` is true."""
        return Registry(lambda: [thing for thing in self.values() if keep(thing)], self._name, lambda _: None)

    def __getitem__(self, name: str) -> Thing:
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def __repr__(self) -> str:
        return f"Registry({', '.join(self)})"


def classes_of(base: type[Thing]) -> Callable[[object], type[Thing] | None]:
    """Return the ``of`` of a ``Registry`` of classes: it accepts subclasses of ``base``."""
    return lambda thing: thing if isinstance(thing, type) and issubclass(thing, base) else None


def implementation(what: str, path: str) -> Any:
    """Import the class at ``package.module:Class``. Raises ``InvalidSetting``, whose sentence begins with ``what``."""
    try:
        return resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidSetting(
            f"{what} cannot be used: its code, {path}, cannot be imported ({error}). Install what it needs, or choose "
            "another one."
        ) from error


def not_installed(what: str, name: str) -> UnknownChoice:
    """Return the error for a name from a package that is not installed."""
    return UnknownChoice(
        f"There is no {what} {name[:60]!r} here: install the package that it belongs to, or choose another one."
    )
