"""Results as HTML for a notebook: the tables and figures that the pages show, without scripts or addresses."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fsd_core.analysis.cells import Cell, cells, displayed_columns
from fsd_core.calibration.summary import FINALIST_COLUMNS, finalist_row
from fsd_core.metrics import MIXED_MARK
from fsd_core.storage.messages import EmittedToken
from fsd_core.texts import DASH, number_text

if TYPE_CHECKING:
    from fsd_core.library.measuring import Comparison
    from fsd_core.library.runs import Calibration
    from fsd_core.library.text_decoder import Completion

Lines = tuple[str, ...]
"""lines of a cell, from top to bottom"""


def comparison_view(comparison: Comparison) -> str:
    """Return the table of metrics with differences from the baseline, and accuracy against throughput."""
    from fsd_core.plots.printed import plain_title, printed

    by_run = cells(comparison.runs, comparison.baseline, comparison.prompts)
    columns = displayed_columns([by_run[run.id] for run in comparison.runs])
    metrics = [first.metric for first, *_ in columns]
    figure = comparison.figure()
    return _rendered(
        "comparison",
        ["Run", *(f"{metric.title}, {metric.unit}" if metric.unit else metric.title for metric in metrics)],
        [
            [
                (run.label, "baseline" if run.id == comparison.baseline.id else run.error or ""),
                *map(_lines, row),
            ]
            for run, *row in zip(comparison.runs, *columns, strict=True)
        ],
        plain_title(figure),
        base64.b64encode(printed(figure, "svg")).decode(),
    )


def _lines(cell: Cell) -> Lines:
    if (text := cell.text) is None:
        return (DASH,)
    value = text.value
    change = f"{text.change}{MIXED_MARK if cell.delta_mixed else ''}{f' ({text.ends})' if text.ends else ''}"
    lines = [
        f"{value.mark}{value.value}{MIXED_MARK if cell.mixed else ''}",
        f"{value.low} to {value.high}" if value.low else "",
        change if text.change else "",
        cell.comment,
    ]
    return tuple(filter(None, lines))


def calibration_view(calibration: Calibration) -> str:
    """Return how the calibration ended, and its finalists."""
    rows = [
        [(row.label, row.certainty), *((text,) for text in row[2:6]), (row.over_exact, row.interval)]
        for row in map(finalist_row, calibration.outcome.finalists)
    ]
    return _rendered("calibration", calibration.verdict, FINALIST_COLUMNS, rows)


def completion_view(completion: Completion, tokens: Sequence[EmittedToken]) -> str:
    """Return the text with its tokens marked by their kinds, and its figures."""
    accepted = completion.acceptance_rate
    figures = [
        f"{number_text(completion.tokens_per_second, 0)} tokens/s",
        "" if accepted is None else f"{accepted:.0%} of drafted tokens accepted",
        f"mean acceptance length {number_text(completion.mean_acceptance_length, 2)}",
    ]
    kinds = dict.fromkeys(token.kind for token in tokens)
    return _rendered("completion", completion.label, tokens, kinds, ", ".join(filter(None, figures)))


def _rendered(macro: str, *values: object) -> str:
    return str(getattr(_template().module, macro)(*values)).strip()


@cache
def _template():
    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("notebook_view.html")
