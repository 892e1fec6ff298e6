"""The choice of whose setting *Find the setting* looks for: our own loop's, or that of a running engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import gradio as gr

from dashboard.ui.question import Asked, Updates, Values
from fsd_core.worker.endpoint_names import engine_to_calibrate

if TYPE_CHECKING:
    from fsd_core.rules import Served
    from fsd_core.storage.database.repository import Repository

_OWN = ("Our own loop, with the pair's models", "")


class CalibratedEngine:
    """A field that is shown while somebody has named an engine that can be told its rule."""

    def __init__(self) -> None:
        self.field = gr.Dropdown(
            [_OWN], value="", label="Setting of", visible=False,
            info="A running engine is told the algorithms and thresholds above. Its drafts are its own.",
        )  # fmt: skip

    def redraw(self, asked: Asked, names: Sequence[str]) -> Updates:
        """Return the engines that can be chosen, if they differ. One that is gone is no longer chosen."""
        if asked[self.field] not in ("", *names):
            asked.fill(self.field, "")
        if not asked.differs("engines to calibrate", names):
            return {}
        return {self.field: gr.Dropdown([_OWN, *((name, name) for name in names)], visible=bool(names))}

    def chosen(self, values: Values, repository: Repository) -> Served | None:
        """Return the engine; ``None`` for our own loop. Raises ``UnknownName`` and ``InvalidSetting``."""
        return engine_to_calibrate(repository, values[self.field])
