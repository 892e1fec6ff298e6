"""HTML from templates, in which every value is escaped: quantities, terms and links."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from jinja2 import Environment, FunctionLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.options import OPTIONS
from fsd_core.metrics import METRICS
from fsd_core.models.model_pairs import pair_title
from fsd_core.plugins import folders
from fsd_core.texts import DASH, count, written

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView


def quantity(value: float | None, low: float | None = None, high: float | None = None, unit: str = "") -> str:
    """Return ``value`` rounded to what its interval supports, such as ``1,204 tok/s``, or a dash for no value."""
    if value is None or not math.isfinite(value):
        return DASH
    return written(value, low, high).value + (f" {unit}" if unit else "")


def interval(low: float | None, high: float | None, scale: float = 1.0) -> str:
    """Return the ends of a 95 % interval, such as ``88 to 94``, or an empty string without one.

    Each end is multiplied by ``scale``, which is 100 for a share.
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    ends = written(scale * (low + high) / 2, scale * low, scale * high, points=scale == 100.0)
    return f"{ends.low} to {ends.high}"


def durations(low: float | None, high: float | None) -> str:
    """Return the ends of a 95 % interval in seconds, such as ``108 to 116 ms``, or an empty string without one."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    (least, unit), most = duration(low).split(" ", 1), duration(high)
    same = most.split(" ", 1)[1] == unit in ("ms", "s")
    return f"{least} to {most}" if same else f"{least} {unit} to {most}"


def duration(seconds: float | None) -> str:
    """Return seconds as ``84 ms``, ``3.1 s``, ``4 min 05 s`` or ``2 h 10 min``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remainder:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def texts_done(experiment: ExperimentView) -> str:
    """Return how many texts of an experiment are written: ``1,600 of 1,600 texts (16 runs × 100 prompts)``."""
    if isinstance(experiment.config, CalibrationConfig):  # the total is unknown
        return f"{count(experiment.prompts_done, 'text')} written"
    text = f"{experiment.prompts_done:,} of {count(experiment.prompts_total, 'text')}"
    each = {run.prompts_total for run in experiment.runs}
    if len(experiment.runs) < 2 or len(each) > 1:
        return text
    return f"{text} ({count(len(experiment.runs), 'run')} × {count(each.pop(), 'prompt')})"


def moment(when: datetime | None) -> str:
    """Return a moment as ``2026-11-21 04:16 UTC``, or a dash for none."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if when else DASH


def ago(when: datetime, now: datetime | None = None) -> str:
    """Return the time since a moment: ``just now``, ``5 min ago``, ``3 h ago``, ``2 days ago``, or its date after a
    month."""
    seconds = ((now or datetime.now(UTC)) - when).total_seconds()
    if seconds < 45:
        return "just now"
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min ago"
    if seconds < 86_400:
        return f"{round(seconds / 3600)} h ago"
    days = round(seconds / 86_400)
    return f"{days} day{'' if days == 1 else 's'} ago" if days <= 30 else f"{when.astimezone(UTC):%Y-%m-%d}"


_DASHBOARD = Path(__file__).parent.parent
# Besides HTML's own special characters, those that begin an expression in a browser-side template.
_TEMPLATE_CHARACTERS = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;"})


_COMMAND = re.compile("&#96;((?:fsd-lab|python|mlflow) .+?)&#96;")
"""an escaped command between backticks, as sentences name them; other text is data and stays as it is"""


class Html(str):
    """HTML in which every text from data has been escaped.

    Joined to other text it becomes a plain ``str`` again, which a template escapes.
    """

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def escape(text: object) -> Html:
    """Return ``text`` escaped for an element or a quoted attribute. What is HTML already stays."""
    if isinstance(text, Html):
        return text
    if isinstance(text, Markup):  # the output of a macro
        return Html(text)
    return Html(html.escape(str(text), quote=True).translate(_TEMPLATE_CHARACTERS))


def joined(parts: Iterable[object]) -> Html:
    """Join parts, and escape each unless it is HTML already."""
    return Html("".join(map(escape, parts)))


def render(file: str, macro: str, *values: object, **named: object) -> Html:
    """Return the output of a file's macro. ``file`` is ``room/name.html``, in ``dashboard/room/templates``."""
    output = str(getattr(_PAGES.get_template(file).module, macro)(*values, **named))
    # Seldom needed, because values are escaped already, and translating a long text takes milliseconds.
    return Html(
        output.translate(_TEMPLATE_CHARACTERS) if any(chr(c) in output for c in _TEMPLATE_CHARACTERS) else output
    )


def frozen_html(body: str) -> Html:
    """Return HTML in which every text has been escaped elsewhere, for a page."""
    return Html(body.translate(_TEMPLATE_CHARACTERS))


def document(file: str, macro: str, styles: str, **named: object) -> str:
    """Return a page of its own, with style sheets in its head."""
    return render(file, macro, **named).replace("</head>", f"<style>{styles}</style></head>", 1)


def _room_of(file: str) -> Path:
    """Return the path of a file ``room/…``, of a page or of a feature beside the core."""
    rooms = (_DASHBOARD, *(folder.parent for folder in folders()))
    return next((path for folder in rooms if (path := folder / file).is_file()), _DASHBOARD / file)


def script(file: str, **values: object) -> str:
    """Return the script ``room/name.js``, with each ``$NAME$`` of ``values`` replaced by its value as JSON."""
    text = _room_of(file).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"${name}$", json.dumps(value))
    return text


class _Lines(Extension):
    """Joins lines without their indentation: with a space between words, without one beside a tag."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        lines = [line.strip() for line in source.splitlines()]
        return re.sub(r"(?<=[>}])\n|\n(?=[<{]|$)", "", "\n".join(lines)).replace("\n", " ")


def _source(name: str) -> tuple[str, str, Callable[[], bool]]:
    room, _, file = name.partition("/")
    path = _room_of(f"{room}/templates/{file}")
    return path.read_text(encoding="utf-8"), str(path), lambda: True


def _attributes(values: Mapping[str, object]) -> Html:
    """Return the attributes of an element, each after a space, without those whose value is ``None``."""
    return Html("".join(f' {name}="{escape(value)}"' for name, value in values.items() if value is not None))


def _commands(text: object) -> Html:
    """Return a sentence in which commands between backticks are code. What is HTML already stays."""
    escaped = escape(text)
    return escaped if isinstance(text, Html | Markup) else Html(_COMMAND.sub(r"<code>\1</code>", escaped))


def _environment() -> Environment:
    pages = Environment(
        loader=FunctionLoader(_source),
        undefined=StrictUndefined,
        extensions=[_Lines],
        finalize=escape,
        autoescape=True,
        auto_reload=False,
    )
    own: dict[str, Any] = {"ago": ago, "duration": duration, "count": count, "DASH": DASH, "attributes": _attributes}
    pages.globals |= own
    pages.filters |= {"commands": _commands, "moment": moment, "ago": ago, "pair_title": pair_title}
    return pages


_PAGES = _environment()

# What neither the metrics nor the options explain. docs/terms.md says more, and a test compares the two.
MEANINGS = {
    "Setting": "A pair and a way to decode: drafter, topology, rule and threshold, sampling, longest text",
    "Experiment": "Several runs on the same prompts, queued as one job",
    "Run": "One setting on the prompts of one task, with one seed",
    "Use": "What a setting is wanted for, and what it must keep",
    "Evidence": "Runs of the setting, each beside a baseline on the same prompts",
    "Under review": "Proposals of which nothing is decided yet",
    "Approved": "The setting that the use's alias names; programs fetch it",
    "Approved for": "Uses whose alias “approved” names the setting",
    "Outcome": "Correct, wrong, truncated (cut off before the answer), failed (an error) or unscored (no reference)",
    "Expected": "The reference answer of the task",
    "Machine": "What the run was measured on; speeds of different machines cannot be compared",
    "× target": "Times as fast as the target alone of the same experiment, by time per answer",
    "× fastest SD": "Times as fast as the fastest exact SD of the same experiment, by time per answer",
    "Lenient tokens": "Accepted only because the rule forgives their divergence: the strict test rejects them",
    "Time per solved task": "Seconds of decoding per prompt solved",
    "Points": "Accuracy less the target's on the fresh prompts, in points",
    "Points, at least": "The fewest points against the target that the fresh prompts leave, with 95 % confidence",
    "× as fast as SD": "Exact SD's time per answer over the finalist's, on the fresh prompts",
    "One draft": "How often exact speculative decoding keeps the drafted token: the sum of min(p, q)",
    "With replacement": "The best that any verifier reaches where each draft is drawn from q anew",
    "Without replacement": "The best that any verifier reaches where no two drafts are the same",
    "Greedy, the last sampled": "The best that any verifier reaches where all drafts but the last are the likeliest",
    "Times as fast": "The baseline's time per answer over the setting's, on the prompts that both have done",
}  # fmt: skip


def explained(word: str) -> str:
    """Return the meaning of a term, or an empty string if it has no explanation."""
    return _explanations().get(word.casefold(), "")


@cache
def _explanations() -> dict[str, str]:
    options = {name: option.help for option in OPTIONS.values() for name in (option.title, option.label, option.plural)}
    metrics = {name: metric.explanation for metric in METRICS.values() for name in (metric.title, metric.listed)}
    return {name.casefold(): about for name, about in (options | metrics | MEANINGS).items() if name}


def copy_link(text: str = "Copy link", query: Mapping[str, str] | None = None) -> Html:
    """Return a quiet button that copies the page's address with ``query`` added to its own query (``sharing.js``).

    It is the application's own address, also on a Hugging Face Space. The page around a Space passes on its query only
    at the first load and never a path. The application's own address is public and keeps both.
    """
    return render("ui/links.html", "copy_link", text, json.dumps(dict(query)) if query else None)


def downloads(files: Iterable[tuple[str, str]], style: str = "") -> Html:
    """Return a row of links to files, given as (address, text).

    They are downloads, because navigation would end the page's connections.
    """
    return render("ui/links.html", "downloads", files, style)


def addressed(figure: go.Figure, name: str, query: str) -> go.Figure:
    """Note in a figure the query by which the server draws it again, for a file or a frame. Return the figure.

    ``name`` is one of ``gallery.FIGURE_NAMES``, and ``query`` names its runs.
    """
    return figure.update_layout(meta={"address": f"figure={name}&{query}"})
