"""What other packages bring: rules, tasks and metrics, found by their entry points of the group ``fsd_lab``.

An entry point names a class derived from ``fsd_core.rules.Rule``, a ``fsd_core.benchmarks.tasks.Task`` or a
``fsd_core.metrics.Metric``; its own name says nothing. docs/extending.md shows a package with one of each.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

GROUP = "fsd_lab"

logger = logging.getLogger(__name__)
Kind = TypeVar("Kind")


@cache
def _loaded() -> tuple[tuple[str, Any], ...]:
    """Every entry point's name and what it names. One that cannot be loaded is left out with a warning."""
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            found.append((point.name, point.load()))
        except Exception as error:  # whatever a foreign package raises
            package = point.dist.name if point.dist else point.value
            logger.warning(
                "The plug-in '%s' of the package %s is left out, since it cannot be loaded (%s: %s).",
                point.name, package, type(error).__name__, error,
            )  # fmt: skip
    return tuple(found)


def installed(kind: type[Kind]) -> tuple[Any, ...]:
    """What installed packages bring of a kind: subclasses of it, or instances of it, in the order of their names."""
    return tuple(
        thing
        for _, thing in _loaded()
        if isinstance(thing, kind) or (isinstance(thing, type) and issubclass(thing, kind))
    )
