"""Cells of a comparison as text: which columns it has, and how a difference reads."""

from __future__ import annotations

from collections.abc import Sequence

from fsd_core.analysis.cells import Cell
from fsd_core.formatting import ROUGH_MARK, decimals, number
from fsd_core.metrics import FIDELITY, Metric, compared
from fsd_core.statistics.intervals import Estimate

_ROUNDING = 1e-9
"""smaller differences are none"""


def displayed_columns(rows: Sequence[Sequence[Cell]]) -> list[int]:
    """Return the indices of metrics that any run has. Fidelity is left out if any run has an accuracy."""
    filled = [i for i in range(len(compared())) if any(cells[i].estimate for cells in rows)]
    scored = not filled or any(compared()[i].key == "accuracy" for i in filled)
    return [i for i in filled or range(len(compared())) if not (scored and compared()[i].key in FIDELITY)]


def delta_text(delta: Estimate, metric: Metric, digits: int) -> tuple[str, str]:
    """Return a difference such as ``−4 pts``, a ratio such as ``1.8×`` or ``1.8× as fast``, and its interval, such as
    ``−10 to +2``, if any. Without the interval that the metric has it is marked as rough, unless both sides are equal.

    A difference without an interval has the digits of the values themselves.
    """
    if metric.as_ratio or delta.low is not None:
        digits = decimals(*delta)
    if metric.as_ratio:
        text = f"{number(delta.value, max(digits, 1))}×{' as fast' * metric.as_speedup}"
        ends = (number(end, max(digits, 1)) for end in delta[1:] if end is not None)
    else:
        text = number(delta.value, digits, signed=True) + (" pts" if metric.unit == "%" else "")
        ends = (number(end, digits, signed=True) for end in delta[1:] if end is not None)
    rough = metric.is_rough(delta.value, delta.low) and abs(delta.value - metric.as_ratio) > _ROUNDING
    return ROUGH_MARK * rough + text, " to ".join(ends)
