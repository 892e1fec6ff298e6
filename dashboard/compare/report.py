"""A comparison as Markdown for a repository or a review: the Compare page's table as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dashboard.compare.compared_runs import MARKED, ComparedRuns
from dashboard.compare.comparison_html import p_values
from dashboard.tables.measured_bounds import by_sampling, of_run
from dashboard.tables.run_settings import OPTION_TITLES, value_text
from fsd_core.analysis.cell_text import delta_text, displayed_columns
from fsd_core.analysis.cells import Cell
from fsd_core.analysis.matched_tables import MatchedCell, absence, beside_rows, caption, tables
from fsd_core.analysis.matching import match
from fsd_core.conditions import MIXED_MARK, mixed_sentence, short_commit
from fsd_core.config.flat import settings_read
from fsd_core.config.model_names import called
from fsd_core.engines.engine_summary import measured_on
from fsd_core.formatting import count, decimals
from fsd_core.metrics import Metric, compared
from fsd_core.plots.acceptance_by_drafts import MOST_DRAFTS

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

SHARED_SETTINGS = (
    "setting.pair", "task", "limit", "seed", "setting.decoding.sampling.temperature",
    "setting.decoding.max_new_tokens", "batch",
)  # fmt: skip
"""settings that are named above the table if all runs share them"""


def markdown(comparison: ComparedRuns, title: str, commands: Sequence[str] = ()) -> str:
    """Return the title, the shared settings and machines, the commands that made it, and a row per run.

    Each value is followed by its 95 % interval. Differences and ratios are against the row marked as baseline.
    """
    indices = displayed_columns([row.cells for row in comparison.rows])
    columns = [compared()[i] for i in indices]
    lines = [f"## {_plain(title)}", "", f"{_setup(comparison)}", ""]
    if commands:
        lines += ["```", *commands, "```", ""]
    if comparison.recommendation:
        lines += [_plain(comparison.recommendation.sentence), ""]
    lines += [f"- {_plain(warning)}" for warning in comparison.warnings] + [""] * bool(comparison.warnings)
    lines += ["| Run | " + " | ".join(f"{metric.title}, {metric.unit}" for metric in columns) + " |"]
    lines += ["|---" * (len(columns) + 1) + "|"]
    for row in comparison.rows:
        name = f"**{_plain(row.name)}** (baseline)" if row.is_baseline else _plain(row.name)
        cells = (_cell(row.cells[i], compared()[i]) for i in indices)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if comparison.times:
        lines += ["", _plain(comparison.times)]
    if comparison.marked:
        lines += ["", MARKED, ""]
        lines += [
            f"- {_plain(row.name)}: {mixed_sentence(row.run.speed_mixed)}"
            for row in comparison.rows
            if row.run.metrics and row.run.speed_mixed
        ]
    if comparison.margin is not None and any(row.verdict for row in comparison.rows):
        margin = count(comparison.margin, "point")
        lines += ["", f"Accuracy against the baseline, within {margin}, one-sided at 5 %:", ""]
        lines += [
            f"- {_plain(row.name)}: {row.verdict.sentence(comparison.margin)}" for row in comparison.rows if row.verdict
        ]
    if slower := [row for row in comparison.rows if row.slowdown]:
        lines += ["", "Slower than the baseline:", ""]
        lines += [f"- {_plain(row.name)}: {_plain(row.slowdown.sentence())}" for row in slower if row.slowdown]
    lines += _matched(comparison)
    for row in comparison.rows:
        for bounds in of_run(row.run):
            lines += ["", *_bounds(row.name, bounds)]
    return "\n".join(lines) + "\n"


def _matched(comparison: ComparedRuns) -> list[str]:
    """Return the tables of rules at matched points, or nothing if no rule has a curve."""
    matched = match(comparison.runs, comparison.baseline, comparison.prompts)
    lines: list[str] = []
    for table in tables(matched):
        lines += ["", f"### {table.title}", "", *(f"- {_plain(verdict)}" for verdict in table.verdicts), ""]
        lines += [f"| Rule | {' | '.join(map(_plain, table.columns))} |", "|---" * (len(table.columns) + 1) + "|"]
        lines += [f"| {_plain(name)} | {' | '.join(map(_point, cells))} |" for name, cells in table.rows]
    if lines:
        lines += ["", f"| Beside the curves | Times less | {matched.quality.title} |", "|---|---|---|"]
        lines += [f"| {' | '.join(map(_plain, row))} |" for row in beside_rows(matched)]
        lines += ["", _plain(f"{caption(matched)} {absence(matched)}")]
    return lines


def _point(cell: MatchedCell) -> str:
    ends, knob = (f" ({cell.ends})" if cell.ends else ""), (f"; knob {cell.knob}" if cell.knob else "")
    return _plain(f"{cell.value or '–'}{ends}{knob}" + (f"; {cell.comparison}" if cell.comparison else ""))


def _bounds(name: str, bounds: Mapping[str, Any]) -> list[str]:
    """Return the optima and verifiers of a run by the number of drafts."""
    drafts = range(1, MOST_DRAFTS + 1)
    lines = [
        f"How often one of several drafts is kept, in percent: the optimum and the verifiers of each way to draft, at "
        f"{bounds['positions']} positions of {_plain(name)}, temperature {bounds['temperature']:g}.",
        "",
        f"| Drafts | {' | '.join(map(str, drafts))} |",
        "|---" * (MOST_DRAFTS + 1) + "|",
    ]
    for title, best, verifiers in by_sampling(bounds):
        for label, by_drafts in [(f"**{title}**", best), *verifiers]:
            cells = (f"{100 * by_drafts[n]['rate']:.1f}" if n in by_drafts else "–" for n in drafts)
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def _setup(comparison: ComparedRuns) -> str:
    """Return the settings that all runs share, and the machines."""
    flat = [settings_read(run.config) for run in comparison.runs]
    same_keys = [
        key
        for key in SHARED_SETTINGS
        if key in flat[0] and len({value_text(settings.get(key)) for settings in flat}) == 1
    ]
    shared = [f"{OPTION_TITLES[key].lower()} {called(value_text(flat[0][key]))}" for key in same_keys]
    machines = {text for run in comparison.runs for text in _machines(run)}
    return _plain("; ".join([*shared, *sorted(machines)])) + "."


def _machines(run: RunView) -> list[str]:
    """Return the engine that measured a run with its load, or each machine of our own loop."""
    if engine := measured_on(run):
        return [engine]
    return [
        ", ".join(str(facts[key]) for key in ("cpu", "gpu", "device", "dtype") if facts.get(key))
        + f", {facts.get('threads', '?')} CPU threads, commit {short_commit(facts.get('git_revision') or 'unknown')}"
        for facts in [session.conditions for session in run.measurement_sessions] or [run.provenance]
        if facts
    ]


def _cell(cell: Cell, metric: Metric) -> str:
    if cell.estimate is None:
        return "–"
    digits = decimals(*cell.estimate)
    formatted = metric.written(*cell.estimate)
    text = formatted._replace(value=formatted.value + MIXED_MARK * bool(cell.mixed)).with_ends(" ({} to {})")
    if cell.delta is not None:
        change, ends = delta_text(cell.delta, metric, digits)
        more = ", ".join(p_values(cell)) or ends
        text += f"; {change}" + MIXED_MARK * bool(cell.delta_mixed) + (f" ({more})" if more else "")
    return text


def _plain(text: str) -> str:
    """Escape a user's text, so that it is not read as Markdown or HTML."""
    return "".join(
        f"\\{character}" if character in "\\`*_|<>[]#" else character for character in " ".join(text.split())
    )
