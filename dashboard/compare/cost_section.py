"""Costs of runs at a chosen price per hour: a folded part of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

from dashboard.compare.cost_html import at_price, cost_table
from dashboard.compare.section import Comparing, Section
from dashboard.ui.components import empty_state, notice, show
from dashboard.ui.optional_number import optional_number, read
from dashboard.ui.question import Asked, Updates
from fsd_core.errors import InvalidSetting, OutOfRange

_TITLE, _HIGHEST = "Price per hour", 1e9
_NO_PRICE = "The price per hour cannot be used: expected a number above 0, or nothing."


class CostSection(Section):
    """Cost per million tokens and per solved task, with energy and memory where they were measured."""

    name = "cost"
    title = "Cost and energy"
    parts = ("cost",)

    def build(self) -> None:
        """Make the field and the table."""
        info = "Of the machine, in any currency. Empty: what each run was measured at."
        self.price = optional_number(_TITLE, info)
        self.table = show()

    @property
    def fields(self) -> Sequence[Any]:
        return [self.price]

    @property
    def drawn(self) -> Sequence[Any]:
        return [self.table]

    def at_first(self, asked: Asked, now: Comparing) -> bool:
        return super().at_first(asked, now) or bool(_named_price(asked))

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the table, if it differs."""
        if asked.opening:
            asked.fill(self.price, _named_price(asked))
        if not asked.differs("cost", now.pinned, now.stages, asked.current(self.price)):
            return {}
        try:
            price = _price(asked.current(self.price))
        except InvalidSetting as error:
            return {self.table: notice(str(error), "warn")}
        comparison = now.comparison()
        rows = comparison.rows if price is None else at_price(comparison.rows, comparison.prompts, price)
        table = cost_table(rows) or empty_state("No price is known", "Type what an hour of the machine costs.")
        return {self.table: table}

    def query(self, asked: Asked, now: Comparing) -> str:
        with suppress(InvalidSetting):
            price = _price(asked.current(self.price))
            return "" if price is None else f"price={price:g}"
        return ""


def _named_price(asked: Asked) -> str:
    """Return the price in the address, or an empty text for what is none."""
    with suppress(InvalidSetting):
        price = _price(asked.address.get("price", ""))
        return "" if price is None else f"{price:g}"
    return ""


def _price(text: str | None) -> float | None:
    """Return the price that a text names, or ``None`` for nothing. Raises ``InvalidSetting`` for anything else."""
    price = read(text, _TITLE)
    if price is not None and not (isfinite(price) and 0 < price <= _HIGHEST):
        raise OutOfRange(_NO_PRICE)
    return price
