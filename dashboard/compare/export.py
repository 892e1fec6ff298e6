"""A comparison as files: CSV, HTML, LaTeX, Markdown, and single figures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from math import isfinite
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from dashboard.compare.compared_runs import (
    DEFAULT_MARGIN,
    MARKED,
    ComparedRuns,
    ComparisonRow,
    Margin,
    compare,
    usual_margin,
)
from dashboard.compare.comparison_html import (
    comparison_html,
    folded_costs,
    matched_html,
    p_values,
    sentence_html,
    settings_html,
    warnings_html,
)
from dashboard.tables.logs import download, harmless
from dashboard.tables.run_record import OPTION_TITLES, by_sampling, of_run, value_text
from dashboard.ui.api_call import answered
from dashboard.ui.page import STYLE_SHEETS
from dashboard.ui.templates import Html, document, downloads, joined, moment
from fsd_core.analysis.cells import Cell, delta_columns, only_model
from fsd_core.analysis.matching import (
    MatchedCell,
    MatchedComparison,
    MatchedTable,
    absence,
    beside_rows,
    caption,
    match,
    records,
    tables,
)
from fsd_core.config.model_names import called
from fsd_core.config.options import effective_settings
from fsd_core.engines.kinds import measured_on
from fsd_core.errors import DatabaseUnavailable, NotGiven, UnknownName
from fsd_core.metrics import MIXED_MARK, Metric, mixed_sentence, short_commit
from fsd_core.plots.printed import PRINT_FORMATS, on_white, plain_title, printed
from fsd_core.plots.style import EXPORT_CONFIG
from fsd_core.plots.trade_offs import MATCHED, comparison_figures, named_figure
from fsd_core.storage.records import origin_text, other_figures
from fsd_core.texts import count, p_value, slug
from fsd_core.theory import MOST_DRAFTS

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository


_KEYS = (
    "accuracy", "same_text", "seconds_per_answer", "acceptance_rate", "mean_acceptance_length", "target_passes",
)  # fmt: skip
"""metrics of the table, if the comparison has them"""
INTERVALS = (
    "Intervals are of 95 %; below a value stands its difference from, or ratio to, the baseline, on the prompts that "
    "both runs have done."
)
LINE_CHARACTERS = 78
"""characters of \\footnotesize in a line of the narrowest usual page: article, 10 pt, one column (345 pt)"""
_NAME_SHARE = 0.28
"""share of the line for the names of the settings"""
_SEPARATION = 2  # characters between two columns
_LONGEST_HEAD = 16  # characters of a title in a line
_LONGEST_UNIT = 9
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}", '"': "''", "≤": r"\ensuremath{\le}", "≥": r"\ensuremath{\ge}", "·": r"\ensuremath{\cdot}",
    "×": r"\ensuremath{\times}", "γ": r"\ensuremath{\gamma}", "α": r"\ensuremath{\alpha}", "τ": r"\ensuremath{\tau}",
    "−": r"\ensuremath{-}", "–": "--", "—": "---", "†": r"\dag{}", "’": "'", "‘": "`", "“": "``", "”": "''",
    "…": r"\dots{}", "≈": r"\ensuremath{\approx}",
}  # fmt: skip


class TableColumn(NamedTuple):
    """A column as plain text: the lines of its title, and those of each row's cell."""

    head: list[str]
    cells: list[list[str]]

    @property
    def width(self) -> int:
        """Characters of its longest line."""
        return max(map(len, [*self.head, *(line for cell in self.cells for line in cell)]), default=0)


def latex(comparison: ComparedRuns) -> str:
    """Return the comparison's tables. Below each value with its 95 % interval is the difference from the baseline."""
    columns = [TableColumn(["n"], [[f"{row.run.prompts_done:,}"] for row in comparison.rows])]
    tested = 0
    for cells in comparison.columns:
        metric = cells[0].metric
        if metric.key not in _KEYS:
            continue
        columns.append(TableColumn(_head(metric), [*map(cell_lines, cells)]))
        if metric.key == "accuracy":
            p_values = [*map(_p, cells)]
            tested = sum(p != "--" for p in p_values)
            columns += [TableColumn(["p"], [[p] for p in p_values])] if tested else []
    names = [row.name + (" (baseline)" if row.is_baseline else "") for row in comparison.rows]
    note = [f"{comparison.subject}.", INTERVALS]
    if tested:
        holm = f", corrected by Holm for {tested} comparisons" if tested > 1 else ""
        note.append(f"p: McNemar's exact test of the accuracy against the baseline's{holm}.")
    note += comparison.footnotes
    label = f"tab:fsd-{_digest(comparison)}"
    lines = ["% \\usepackage{booktabs}", *_table("Setting", names, columns, " ".join(note), label)]
    matched = match(comparison.runs, comparison.baseline, comparison.prompts)
    for number, table in enumerate(tables(matched), 1):
        lines += ["", *_matched_latex(table, matched, comparison, f"{label}-matched-{number}")]
    return "\n".join(lines) + "\n"


def _digest(comparison: ComparedRuns) -> str:
    """Return a short name of the runs and the baseline: the same comparison has the same label."""
    named = [run.id for run in comparison.runs] + [comparison.baseline.id if comparison.baseline else ""]
    return hashlib.sha256(",".join(named).encode()).hexdigest()[:8]


def _matched_latex(table: MatchedTable, matched: MatchedComparison, comparison: ComparedRuns, label: str) -> list[str]:
    """Return a table of rules at matched points."""
    columns = [
        TableColumn(wrap(title, _LONGEST_HEAD), [_latex_point(cells[i]) for _, cells in table.rows])
        for i, title in enumerate(table.columns)
    ]
    note = " ".join([f"{table.title}: {comparison.subject}.", *table.verdicts, caption(matched)])
    return _table("Rule", [name for name, _ in table.rows], columns, note, label)


def _table(first: str, names: Sequence[str], columns: Sequence[TableColumn], note: str, label: str) -> list[str]:
    """Return a table. Columns that do not fit beside one another come in further parts below, under the same names."""
    lines = [
        "\\begin{table}[tbp]", "\\centering", "\\footnotesize", "\\setlength{\\tabcolsep}{4pt}",
        f"\\caption{{{escaped(note)}}}", f"\\label{{{label}}}",
    ]  # fmt: skip
    for number, part in enumerate(parts(columns)):
        lines += ["\\par\\medskip"] * (number > 0)
        lines += [
            f"\\begin{{tabular}}{{@{{}}p{{{_NAME_SHARE}\\linewidth}}{'r' * len(part)}@{{}}}}",
            "\\toprule",
            *_head_rows(first, [column.head for column in part]),
            "\\midrule",
        ]
        for i, name in enumerate(names):
            below = zip_longest(*(column.cells[i] for column in part), fillvalue="")
            lines += [_row([name * (j == 0), *texts]) for j, texts in enumerate(below)]
        lines += ["\\bottomrule", "\\end{tabular}"]
    return [*lines, "\\end{table}"]


def parts(columns: Sequence[TableColumn]) -> list[list[TableColumn]]:
    """Divide columns into parts that each fit into a line beside the names."""
    room = LINE_CHARACTERS * (1 - _NAME_SHARE)
    divided: list[list[TableColumn]] = [[]]
    for column in columns:
        if divided[-1] and sum(other.width + _SEPARATION for other in [*divided[-1], column]) > room:
            divided.append([])
        divided[-1].append(column)
    return divided


def _head_rows(first: str, heads: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of the titles, which end on the same line."""
    most = max(map(len, heads), default=1)
    raised = [[""] * (most - len(head)) + list(head) for head in heads]
    return [_row([first * (i == most - 1), *(head[i] for head in raised)]) for i in range(most)]


def _head(metric: Metric) -> list[str]:
    unit = [f"({metric.unit})"] if metric.unit and len(metric.unit) <= _LONGEST_UNIT else []
    return wrap(metric.title, _LONGEST_HEAD) + unit


def _latex_point(cell: MatchedCell) -> list[str]:
    return [cell.value or "--", *([f"[{cell.ends}]"] if cell.value and cell.ends else [])]


def escaped(text: str) -> str:
    """Escape a text for LaTeX. A non-ASCII character without a command in ``_ESCAPES`` becomes a question mark."""
    plain = "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))
    return plain.encode("ascii", "replace").decode()


def _row(cells: Sequence[str]) -> str:
    row = " & ".join(map(escaped, cells)) + r" \\"
    return "{}" + row if row.startswith(("[", "*")) else row  # behind the end of a row they would be its option


def cell_lines(cell: Cell) -> list[str]:
    """Return a value with its interval, and below it the difference from the baseline."""
    if (text := cell.text) is None:
        return ["–"]
    value = text.value._replace(value=text.value.value + "†" * bool(cell.mixed)).with_ends(" [{}, {}]")
    if cell.delta is None:
        return [value]
    change = text.change.removesuffix(" pts") + "†" * bool(cell.delta_mixed)
    return [value, change + (f" [{text.ends.replace(' to ', ', ')}]" if text.ends else "")]


def _p(cell: Cell) -> str:
    """Return the p-value of an accuracy, corrected if several were tested, or a dash."""
    if cell.paired is None or cell.paired.sequential:
        return "--"
    p = cell.paired.p_value if cell.corrected_p is None else cell.corrected_p
    return p_value(p).removeprefix("p ").removeprefix("= ")


SHARED_SETTINGS = (
    "setting.pair", "task", "limit", "seed", "setting.decoding.sampling.temperature",
    "setting.decoding.max_new_tokens", "batch",
)  # fmt: skip
"""settings that are named above the table if all runs share them"""


def markdown(comparison: ComparedRuns, title: str, commands: Sequence[str] = ()) -> str:
    """Return the title, the shared settings and machines, the commands that made it, and a row per run.

    Each value is followed by its 95 % interval. Differences and ratios are against the row marked as baseline.
    """
    columns = comparison.columns
    lines = [f"## {_plain(title)}", "", f"{_setup(comparison)}", ""]
    if commands:
        lines += ["```", *commands, "```", ""]
    if comparison.recommendation:
        lines += [_plain(comparison.recommendation.sentence), ""]
    lines += [f"- {_plain(warning)}" for warning in comparison.warnings] + [""] * bool(comparison.warnings)
    names = [f"**{_plain(row.name)}** (baseline)" if row.is_baseline else _plain(row.name) for row in comparison.rows]
    lines += _lines(
        ["Run", *(f"{first.metric.title}, {first.metric.unit}" for first, *_ in columns)],
        ([name, *map(_cell, cells)] for name, *cells in zip(names, *columns, strict=True)),
    )
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
    lines += _matched_markdown(comparison)
    for row in comparison.rows:
        for bounds in of_run(row.run):
            lines += ["", *_bounds(row.name, bounds)]
    return "\n".join(lines) + "\n"


def _matched_markdown(comparison: ComparedRuns) -> list[str]:
    """Return the tables of rules at matched points, or nothing if no rule has a curve."""
    matched = match(comparison.runs, comparison.baseline, comparison.prompts)
    lines: list[str] = []
    for table in tables(matched):
        lines += ["", f"### {table.title}", "", *(f"- {_plain(verdict)}" for verdict in table.verdicts), ""]
        rows = ([_plain(name), *map(_markdown_point, cells)] for name, cells in table.rows)
        lines += _lines(["Rule", *map(_plain, table.columns)], rows)
    if lines:
        beside = (map(_plain, row) for row in beside_rows(matched))
        lines += ["", *_lines(["Beside the curves", "Times less", matched.quality.title], beside)]
        lines += ["", _plain(f"{caption(matched)} {absence(matched)}")]
    return lines


def _lines(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def _markdown_point(cell: MatchedCell) -> str:
    ends, knob = (f" ({cell.ends})" if cell.ends else ""), (f"; knob {cell.knob}" if cell.knob else "")
    return _plain(f"{cell.value or '–'}{ends}{knob}" + (f"; {cell.comparison}" if cell.comparison else ""))


def _bounds(name: str, bounds: Mapping[str, Any]) -> list[str]:
    """Return the optima and verifiers of a run by the number of drafts."""
    drafts = range(1, MOST_DRAFTS + 1)
    rows = [
        [label, *(f"{100 * by_drafts[n]['rate']:.1f}" if n in by_drafts else "–" for n in drafts)]
        for title, best, verifiers in by_sampling(bounds)
        for label, by_drafts in [(f"**{title}**", best), *verifiers]
    ]
    return [
        f"How often one of several drafts is kept, in percent: the optimum and the verifiers of each way to draft, at "
        f"{bounds['positions']} positions of {_plain(name)}, temperature {bounds['temperature']:g}.",
        "",
        *_lines(["Drafts", *map(str, drafts)], rows),
    ]


def _setup(comparison: ComparedRuns) -> str:
    """Return the settings that all runs share, and the machines."""
    flat = [effective_settings(run.config) for run in comparison.runs]
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


def _cell(cell: Cell) -> str:
    if (found := cell.text) is None:
        return "–"
    text = found.value._replace(value=found.value.value + MIXED_MARK * bool(cell.mixed)).with_ends(" ({} to {})")
    if cell.delta is not None:
        more = ", ".join(p_values(cell)) or found.ends
        text += f"; {found.change}" + MIXED_MARK * bool(cell.delta_mixed) + (f" ({more})" if more else "")
    return text


def _plain(text: str) -> str:
    """Escape a user's text, so that it is not read as Markdown or HTML."""
    return "".join(
        f"\\{character}" if character in "\\`*_|<>[]#" else character for character in " ".join(text.split())
    )


def table(comparison: ComparedRuns) -> pd.DataFrame:
    """Return one row per run: its id and name, its settings, every single-number metric, and the differences from the
    baseline."""
    return pd.DataFrame([record(row, comparison.margin) for row in comparison.rows])


def csv_text(comparison: ComparedRuns) -> str:
    """Return :func:`table` as CSV, with the comparison's warnings as its last column, if there are any. ``float``
    columns keep every digit."""
    frame = table(comparison)
    return _csv(frame.assign(warnings=" ".join(comparison.warnings)) if comparison.warnings else frame)


def matched_csv(comparison: ComparedRuns) -> str:
    """Return rules at matched points as CSV, one row for each rule at each point. All are of the baseline's pair."""
    frame = pd.DataFrame(records(match(comparison.runs, comparison.baseline, comparison.prompts)))
    return _csv(frame.assign(pair=comparison.baseline.pair if comparison.baseline else None))


def _csv(frame: pd.DataFrame) -> str:
    texts = frame.select_dtypes(include=["object", "str"]).columns
    frame[texts] = frame[texts].map(harmless)
    return frame.to_csv(index=False)


def html(comparison: ComparedRuns, title: str = "Comparison of runs") -> str:
    """Return the warnings, tables and figures as a standalone page that includes plotly.js."""
    compared = comparison.runs, comparison.baseline, comparison.prompts
    figures = _figures(comparison_figures(*compared), with_plotly=True)
    matched = match(*compared)
    curves = _figures([MATCHED[name](*compared) for name in _CURVES] if matched.compared else [])
    page = document(
        "compare/export.html",
        "page",
        STYLE_SHEETS + _PAGE_CSS,
        title=title,
        lead=f"FSD Lab, {moment(datetime.now(UTC))}",
        answer=sentence_html(comparison, link=False),
        warnings=warnings_html(comparison.warnings),
        metrics=joined([comparison_html(comparison), folded_costs(comparison.rows)]),
        matched=matched_html(matched),
        settings=settings_html(comparison, differences_only=False),
    )
    before, between, after = page.split(_MARKER)
    return f"{before}{figures}{between}{curves}{after}"


_MARKER = "<!--figures-->"  # in the template: Plotly's scripts must not be escaped, and escaped data cannot contain it
_CURVES = ("matched", "equal_accuracy")


def _figures(figures: Sequence[go.Figure], *, with_plotly: bool = False) -> str:
    return "".join(
        pio.to_html(figure, full_html=False, include_plotlyjs=with_plotly and index == 0, config=EXPORT_CONFIG)
        for index, figure in enumerate(figures)
    )


_PAGE_CSS = """
body { margin: 0; color: var(--fsd-ink); font: 15px/1.5 'IBM Plex Sans', system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 32px 20px; }
.fsd-lead { margin-bottom: 16px; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(460px, 100%), 1fr)); gap: 16px;
  margin-top: 24px; }
.figures > div { min-width: 0; background: var(--fsd-surface); border: 1px solid var(--fsd-line); border-radius: 6px; }
"""


def record(row: ComparisonRow, margin: float | None) -> dict[str, Any]:
    """Return a row of :func:`table`."""
    run = row.run
    record: dict[str, Any] = {
        "run": run.id,
        "name": row.name,
        "baseline": row.is_baseline,
        "status": run.status,
        "experiment": run.experiment_name or "",
        "prompts_done": run.prompts_done,
        "reading_versions": ", ".join(map(str, run.reading_versions)),
    }
    record |= effective_settings(run.config)
    record["task_version"] = run.task.partition("@")[2] or None
    record |= {key: value for key, value in (run.metrics or {}).items() if not isinstance(value, list | dict)}
    record |= {f"figure {name}": figure.value for name, figure in other_figures(run.metrics).items()}
    if run.measured_elsewhere:
        record["measured_elsewhere"] = origin_text(run)
    record["negative_log_likelihood_under"] = only_model(run) if run.metrics and not run.measured_elsewhere else None
    record |= {
        "margin": margin,
        "margin_share": None if margin is None else margin / 100,
        "verdict": row.verdict.sentence(margin) if row.verdict and margin is not None else None,
        "non_inferiority_p": row.verdict.p_value if row.verdict else None,
        "slower_because": ", ".join(row.slowdown.parts) if row.slowdown else None,
        "break_even_acceptance_length": row.slowdown.break_even if row.slowdown else None,
        "prompts_to_decide": row.verdict.prompts if row.verdict else None,
    }
    return record | delta_columns(row.cells)


FORMATS: dict[str, tuple[Callable[[ComparedRuns], str], str]] = {
    "csv": (csv_text, "text/csv"),
    "html": (html, "text/html"),
    "tex": (latex, "application/x-tex"),
    "matched.csv": (matched_csv, "text/csv"),
}
_TITLES = {"csv": "CSV", "html": "HTML", "tex": "LaTeX", "matched.csv": "matched points"}
NO_RUNS = "No run is named: expected ?runs= with ids between commas, and baseline= if it is not the first run."
UNKNOWN = "None of these runs is in this database: choose runs on the Compare page, and export them there."


def query_of(runs: Sequence[RunView], baseline: RunView | None, margin: float | None) -> str:
    """Return the query string of a comparison's address, or an empty string if nothing is compared."""
    if not runs or not baseline:
        return ""
    ids = ",".join(run.id for run in runs)
    margins = {} if margin in (None, usual_margin(runs)) else {"margin": f"{margin:g}"}
    return urlencode({"runs": ids, "baseline": baseline.id} | margins, safe=",")


def named_runs(text: str) -> list[str]:
    """Return the run ids in such a query."""
    return [part.strip() for part in text.split(",") if part.strip()]


def named_margin(text: str) -> Margin:
    """Return the margin in such a query, in points, or ``None`` if it is not a number."""
    if not text:
        return "usual"
    try:
        margin = float(text)
    except ValueError:
        return None
    return margin if isfinite(margin) else None


class NamedPrompt(NamedTuple):
    """One prompt as two runs answered it."""

    run_a: str
    run_b: str
    number: int
    """from 1"""

    @property
    def query(self) -> str:
        return urlencode({"a": self.run_a, "b": self.run_b, "prompt": self.number})


def named_prompt(query: Mapping[str, str]) -> NamedPrompt | None:
    """Return the prompt that an address names, or ``None`` if it names none or an invalid one."""
    number = query.get("prompt", "")
    if not (number.isascii() and number.isdigit() and len(number) < 10 and query.get("a") and query.get("b")):
        return None
    return NamedPrompt(query["a"], query["b"], int(number))


def links_html(comparison: ComparedRuns) -> Html:
    """Return a link for each format."""
    query = query_of(comparison.runs, comparison.baseline, comparison.margin)
    files = ((f"export/comparison.{name}?{query}", f"Export {_TITLES[name]}") for name in FORMATS)
    return downloads(files) if query else Html()


def export_routes(repository: Repository) -> APIRouter:
    """Return the routes ``GET /export/comparison.csv``, ``.html``, ``.tex`` and ``.matched.csv``.

    Their query names the runs and the baseline.
    """
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/comparison.{extension}")
    def export(extension: str, runs: str = "", baseline: str | None = None, margin: str = "") -> Response:
        write, media_type = FORMATS[extension]
        ids = named_runs(runs)
        if not ids:
            return PlainTextResponse(NO_RUNS, 400)
        try:
            comparison = compare(repository, ids, baseline, named_margin(margin))
        except DatabaseUnavailable as error:
            return PlainTextResponse(str(error), 503)
        if not comparison.runs:
            return PlainTextResponse(UNKNOWN, 404)
        return download(write(comparison), media_type, f"comparison.{extension}")

    return router


FRAME_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'unsafe-inline'",  # Plotly, which is in the page
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors *",
        "sandbox allow-scripts allow-downloads",
    )
)
"""Content-Security-Policy of the figure's address. Any site may frame it: nothing on it can be done for a visitor. It
loads nothing and has an origin of its own, so it reaches neither the app nor the site around it."""
_ONE_MARKER = (
    "<!--figure-->"  # in the template: Plotly's script must not be escaped, and escaped data cannot contain it
)
_STYLES = """
html, body { height: 100%; margin: 0; background: #fff; color: #1b1d21; font: 14px/1.45 system-ui, sans-serif; }
body { display: flex; flex-direction: column; }
.figure { flex: 1; position: relative; min-height: 240px; }
.figure > div { position: absolute; inset: 0; }
p { margin: 0; padding: 4px 16px 12px; color: #50545c; font-size: 12.5px; }
"""


class DrawnFigure(NamedTuple):
    """A figure, and what it is of."""

    figure: go.Figure
    subject: str
    file_name: str
    """without its end"""


def draw_figure(
    repository: Repository, name: str, runs: str, baseline: str | None, margin: str = "", cost: str = "target_passes"
) -> DrawnFigure:
    """Draw a figure as an address names it, with ids of runs between commas.

    Raises ``InvalidSetting`` for an unknown figure, ``UnknownName`` if none of the runs exists.
    """
    if not (ids := named_runs(runs)):
        raise NotGiven(NO_RUNS)
    comparison = compare(repository, ids, baseline, named_margin(margin))
    if not comparison.runs:
        raise UnknownName(UNKNOWN)
    points = DEFAULT_MARGIN if comparison.margin is None else comparison.margin
    compared = comparison.runs, comparison.baseline, comparison.prompts
    figure = named_figure(name, *compared, cost=cost, margin=points, marked=comparison.best)
    one = f" run {comparison.runs[0].id[:8]}" if len(comparison.runs) == 1 else ""
    file_name = slug(f"{plain_title(figure)}{one}", 100) or "figure"
    return DrawnFigure(figure, comparison.subject, file_name)


def figure_page(drawn: DrawnFigure) -> str:
    """Return a page of its own that needs no network: the figure on white, which tells its points when hovered."""
    title, subject = plain_title(drawn.figure), f"{drawn.subject}. FSD Lab."
    page = document("compare/figure.html", "page", _STYLES, title=title, subject=subject)
    script = pio.to_html(
        on_white(drawn.figure), full_html=False, include_plotlyjs=True, config=EXPORT_CONFIG, default_height="100%"
    )
    return page.replace(_ONE_MARKER, script, 1)


def figure_routes(repository: Repository) -> APIRouter:
    """Return the routes ``GET /export/figure.png``, ``.svg``, ``.pdf`` and ``.html``, and ``GET /embed/figure``."""
    router = APIRouter(include_in_schema=False)

    @router.get("/export/figure.{extension}")
    def export_figure(
        extension: str, figure: str = "", runs: str = "", baseline: str | None = None, margin: str = "",
        cost: str = "target_passes",
    ) -> Response:  # fmt: skip
        def file() -> Response:
            drawn = draw_figure(repository, figure, runs, baseline, margin, cost)
            named = {"Content-Disposition": f'attachment; filename="{drawn.file_name}.{extension}"'}
            if extension == "html":
                return HTMLResponse(figure_page(drawn), headers=named)
            return Response(printed(drawn.figure, extension), media_type=PRINT_FORMATS[extension], headers=named)

        return answered(file, 400)

    @router.get("/embed/figure")
    def embed_figure(
        figure: str = "", runs: str = "", baseline: str | None = None, margin: str = "", cost: str = "target_passes"
    ) -> Response:
        answer = answered(
            lambda: HTMLResponse(figure_page(draw_figure(repository, figure, runs, baseline, margin, cost))), 400
        )
        answer.headers["Content-Security-Policy"] = FRAME_POLICY
        return answer

    return router
