"""The buttons that save a comparison as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.comparison import Comparison, compare
from dashboard.components import QUIET, tells_errors
from dashboard.export import write_csv, write_html

if TYPE_CHECKING:
    from fsd_core.tracking.database.repository import Repository

# The file is written when it is asked for; the browser then follows the hidden button's link.
FOLLOW = "() => setTimeout(() => document.querySelector('#{0}').closest('a, button').click(), 50)"


class Exports:
    """Two buttons side by side, in the row of the caller."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.buttons = [gr.Button(f"Export {name}", size="md", min_width=140) for name in ("CSV", "HTML")]

    def follow(self, chosen: list[Any]) -> None:
        """Makes the buttons work, outside the row. ``chosen``: the ids of the runs, and that of the baseline."""
        for button, name, write in zip(self.buttons, ("csv", "html"), (write_csv, write_html), strict=True):
            file = gr.DownloadButton(name, visible="hidden", elem_id=f"compare-{name}-file")
            event = button.click(tells_errors(1)(self._export(write)), chosen, file, **QUIET)
            event.then(None, js=FOLLOW.format(file.elem_id))

    def _export(self, write: Callable[[Comparison], Path]) -> Callable[[list[str], str | None], str]:
        def export(ids: list[str], baseline: str | None) -> str:
            return str(write(compare(self.repository, ids, baseline)))

        return export
