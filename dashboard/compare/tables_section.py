"""The tables of a comparison: all figures of the runs, and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from dashboard.compare.comparison_html import comparison_html, settings_html, worst_prompts_html
from dashboard.compare.section import Comparing, Section
from dashboard.ui.components import KEEP_PLACE, show
from dashboard.ui.question import Asked, Updates
from dashboard.ui.templates import joined


class AllFigures(Section):
    """Every metric of every run, with its interval and its difference from the baseline."""

    name = "all-figures"
    title = "All figures"
    parts = ("all figures",)

    def build(self) -> None:
        """Make the table."""
        self.table = show(js_on_load=KEEP_PLACE)

    @property
    def drawn(self) -> Sequence[Any]:
        return [self.table]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the table, if it differs."""
        if not asked.differs("all figures", now.pinned, now.margin, now.stages):
            return {}
        comparison = now.comparison()
        return {self.table: joined([comparison_html(comparison), worst_prompts_html(comparison)])}


class SettingsSection(Section):
    """The settings of the runs, by default those in which they differ."""

    name = "settings"
    title = "Settings"
    parts = ("settings",)

    def build(self) -> None:
        """Make the box and the table."""
        self.differences_only = gr.Checkbox(True, label="Differences only", container=False)
        self.settings = show()

    @property
    def fields(self) -> Sequence[Any]:
        return [self.differences_only]

    @property
    def drawn(self) -> Sequence[Any]:
        return [self.settings]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the table, if it differs."""
        if not asked.differs("settings", now.pinned, asked[self.differences_only]):
            return {}
        return {self.settings: settings_html(now.comparison(), asked[self.differences_only])}
