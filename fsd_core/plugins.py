"""Registries of built-in things and those that other packages add by entry points of the group ``fsd_lab``.

An entry point names a subclass of ``fsd_core.rules.Rule``, ``fsd_core.config.DrafterSettings`` or
``fsd_core.config.TopologySettings``, a ``fsd_core.tasks.Task``, a ``fsd_core.metrics.Metric`` or a whole feature
(:class:`Plugin`). Its own name has no meaning. docs/extending.md shows a package.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from fsd_core.errors import InvalidSetting, Misconfigured, UnknownChoice

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


ALL = "all"


@dataclass(frozen=True)
class Plugin:
    """A feature beside the core. Each door is named as ``package.module:name``, and imported where it is needed."""

    name: str
    commands: str = ""
    """a function that adds its commands to the application of the command line"""
    actions: str = ""
    """a module of actions (:mod:`fsd_core.actions.action`)"""
    tasks: str = ""
    """a sequence of ``fsd_core.tasks.Task``"""
    page: str = ""
    """a ``dashboard.ui.page.Page``"""
    sections: Mapping[str, str] = field(default_factory=dict)
    """classes of folded parts of pages (``dashboard.ui.view.Part``), by the page's path. Each is made of the repository
    and what is called after a change, and has ``listen(view, fields, query)``: ``query`` returns that of the page's
    address, of the values of ``fields`` at a click."""
    links: Mapping[str, str] = field(default_factory=dict)
    """functions of a person, by a page's path: the (address, text) of files that the end of the page links to"""
    note: str = ""
    """a function of the settings: a sentence for the top of every page, or an empty text"""
    routes: str = ""
    """a function of the repository and the settings, which returns a ``fastapi.APIRouter``"""
    service: str = ""
    """a function of the settings, called before anything starts. It returns a function of the repository, which returns
    a context manager: what runs beside the web application."""


@cache
def plugins() -> tuple[Plugin, ...]:
    """Return the features in use: those of this installation that ``FSD_PLUGINS`` names, and those of other packages.

    Raises ``InvalidSetting`` for a name that there is not.
    """
    try:
        own: tuple[Plugin, ...] = import_module("fsd_plugins").PLUGINS
    except ModuleNotFoundError:
        own = ()
    known = {it.name: it for it in (*own, *(it for it in _loaded() if isinstance(it, Plugin)))}
    chosen = os.environ.get("FSD_PLUGINS", ALL).strip() or ALL
    if chosen in (ALL, "none"):
        return tuple(known.values()) if chosen == ALL else ()
    names = [name.strip() for name in chosen.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise Misconfigured(
            f"FSD_PLUGINS names {unknown[0][:40]!r}: expected {ALL}, none, or some of {', '.join(known)}, with commas."
        )
    return tuple(known[name] for name in names)


def parts(door: str, page: str | None = None) -> list[Any]:
    """Return what the features in use have for a door, which is the name of a field of :class:`Plugin`, and where that
    is by page, for the page of this path."""
    paths = (getattr(plugin, door) if page is None else getattr(plugin, door).get(page) for plugin in plugins())
    return [resolve_name(path) for path in paths if path]


@cache
def folders() -> tuple[Path, ...]:
    """Return the folders of the features in use, each with its style sheets, scripts and templates."""
    paths = (path for it in plugins() for path in (it.page, *it.sections.values()) if path)
    packages = dict.fromkeys(path.partition(":")[0].rpartition(".")[0] for path in paths)
    specs = [find_spec(package) for package in packages]
    return tuple(dict.fromkeys(Path(str(spec.origin)).parent for spec in specs if spec is not None))


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
