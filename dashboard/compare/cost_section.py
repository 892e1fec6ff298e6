"""Costs of runs at a chosen price per hour: a folded part of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import gradio as gr

from dashboard.compare.cost_html import at_price, cost_table
from dashboard.compare.section import Comparing, Section
from dashboard.ui.components import empty_state, notice, show
from dashboard.ui.view import Asked, Updates

_HIGHEST = 1e9
_NO_PRICE = "The price per hour cannot be used: expected a number above 0, or nothing."


class CostSection(Section):
    """Cost per million tokens and per solved task, with energy and memory where they were measured."""

    name = "cost"
    title = "Cost and energy"
    parts = ("cost",)

    def build(self) -> None:
        """Make the field and the table."""
        self.price = gr.Number(
            None, label="Price per hour", min_width=200, scale=0,
            info="Of the machine, in any currency. Empty: what each run was measured at.",
        )  # fmt: skip
        self.table = show()

    @property
    def fields(self) -> Sequence[Any]:
        return [self.price]

    @property
    def drawn(self) -> Sequence[Any]:
        return [self.table]

    def at_first(self, asked: Asked, now: Comparing) -> bool:
        return super().at_first(asked, now) or _named_price(asked.address.get("price", "")) is not None

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the table, if it differs."""
        if asked.opening:
            asked.fill(self.price, _named_price(asked.address.get("price", "")))
        price = asked.current(self.price)
        if not asked.differs("cost", now.pinned, now.stages, price):
            return {}
        if price is not None and not _is_price(price):
            return {self.table: notice(_NO_PRICE, "warn")}
        comparison = now.comparison()
        rows = comparison.rows if price is None else at_price(comparison.rows, comparison.prompts, price)
        table = cost_table(rows) or empty_state("No price is known", "Type what an hour of the machine costs.")
        return {self.table: table}

    def query(self, asked: Asked, now: Comparing) -> str:
        price = asked.current(self.price)
        return f"price={price:g}" if price is not None and _is_price(price) else ""


def _named_price(text: str) -> float | None:
    """Return the price in an address, or ``None`` for what is none."""
    try:
        price = float(text)
    except ValueError:
        return None
    return price if _is_price(price) else None


def _is_price(price: float) -> bool:
    return isfinite(price) and 0 < price <= _HIGHEST
