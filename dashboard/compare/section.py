"""A folded part of Compare, which is drawn once somebody opens it.

A new one is a subclass of :class:`Section` in a module of its own, and a line in ``SECTIONS`` of
:mod:`dashboard.compare.compare_page`. It names itself, makes its components in :meth:`Section.build`, and returns what
differs of them from :meth:`Section.draw`, which is called only while it is open, with what is compared at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import gradio as gr

from dashboard.compare.export_links import query_of
from dashboard.ui.fold import Fold
from dashboard.ui.question import Asked, Updates, digest
from dashboard.ui.view import View

if TYPE_CHECKING:
    from dashboard.compare.compared_runs import ComparedRuns, RunProgress
    from dashboard.compare.export_links import NamedPrompt
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView


class Comparing(NamedTuple):
    """The current comparison of the page."""

    runs: Sequence[RunView]
    baseline: RunView
    margin: float | None
    stages: Mapping[str, RunProgress]
    prompt: NamedPrompt | None
    """that the address names, if both of its runs are compared"""
    comparison: Callable[[], ComparedRuns]
    """computes it, once for an answer"""

    @property
    def pinned(self) -> list[object]:
        """Which runs are compared with which baseline."""
        return [[run.id for run in self.runs], self.baseline.id]

    @property
    def begun(self) -> dict[str, RunProgress]:
        """How far the runs are that have done a prompt."""
        return {id: stage for id, stage in self.stages.items() if stage.prompts_done}

    @property
    def query(self) -> str:
        """Query of the comparison's address, without a prompt."""
        return query_of(self.runs, self.baseline, self.margin)


class Section:
    """The section's components as attributes."""

    name: ClassVar[str]
    """in ``fold-NAME``, the id of its element"""
    title: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    """names under which :meth:`draw` asks what differs of ``drawn``"""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.fold = Fold(self.name, self.title)
        with self.fold.part:
            self.build()

    @property
    def fields(self) -> Sequence[Any]:
        """Components that :meth:`draw` reads; a choice in one of them asks."""
        return ()

    @property
    def forms(self) -> Sequence[Any]:
        """Further components that :meth:`draw` or an act of the section reads."""
        return ()

    @property
    def outputs(self) -> Sequence[Any]:
        """Components that :meth:`draw` and the acts change."""
        return self.drawn

    @property
    def drawn(self) -> Sequence[Any]:
        """Figures and HTML of the comparison. They are emptied once a folded section holds another comparison's."""
        return ()

    def build(self) -> None:
        """Make the components."""
        raise NotImplementedError

    def listen(self, view: View, link: gr.Textbox) -> None:
        """Attach further events. ``link`` holds the address of the comparison."""

    def at_first(self, asked: Asked, now: Comparing) -> bool:
        """Return whether it is open before anybody has opened or closed it: where a link says ``open=NAME``."""
        return self.name in asked.address.get("open", "").split(",")

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the updates of the section."""
        raise NotImplementedError

    def query(self, asked: Asked, now: Comparing) -> str:
        """Return its part of the page's address, after :meth:`draw`, such as ``a=…&b=…&prompt=8``."""
        return ""

    def redraw(self, asked: Asked, now: Comparing) -> Updates:
        """Return what differs of an open section, and of a folded one nothing, except that it forgets what it showed of
        another comparison: who opens it must not see that."""
        memory, compared = f"drawn {self.name}", digest(now.pinned, now.margin, now.stages)
        is_open = self.fold.is_open(asked, at_first=self.at_first(asked, now))
        updates: Updates = {}
        if asked.opening and is_open:
            updates[self.fold.part] = gr.Accordion(open=True)
        if is_open:
            asked.shown[memory] = compared
            return updates | self.draw(asked, now)
        if asked.shown.get(memory, compared) != compared:
            for part in (memory, *self.parts):
                asked.shown.pop(part, None)
            return {part: "" if isinstance(part, gr.HTML) else None for part in self.drawn}
        return updates
