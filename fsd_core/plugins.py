"""What there is of a kind: what ships, and what other packages bring by entry points of the group ``fsd_lab``.

An entry point names a subclass of ``fsd_core.rules.Rule``, a ``fsd_core.benchmarks.tasks.Task`` or a
``fsd_core.metrics.Metric``; its own name says nothing. docs/extending.md shows a package with one of each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

GROUP = "fsd_lab"

logger = logging.getLogger(__name__)
Thing = TypeVar("Thing")


@cache
def _loaded() -> tuple[Any, ...]:
    """What the entry points name, in the order of their names. One that cannot be loaded is left out, and told of."""
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
    """Things by name, in the order in which they are offered: those that ship, then those of other packages.

    Other packages are loaded when somebody first looks, so that they can import the module that holds the registry.
    """

    def __init__(
        self, built_in: Callable[[], Sequence[Thing]], name: Callable[[Thing], str], of: Callable[[Any], Thing | None]
    ) -> None:
        """``of``: what a package named, as a thing of this registry; ``None`` where it is something else."""
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
        """Those that ``keep`` holds of."""
        return Registry(lambda: [thing for thing in self.values() if keep(thing)], self._name, lambda _: None)

    def __getitem__(self, name: str) -> Thing:
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def __repr__(self) -> str:
        return f"Registry({', '.join(self)})"
