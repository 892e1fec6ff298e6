"""Tasks of one's own as HTML: what a file holds or what is wrong with it, and which there are. All text is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dashboard.tables.task_version import lines_link
from dashboard.ui.components import escape, notice
from dashboard.ui.quantities import moment
from fsd_core.formatting import count
from fsd_core.storage.records import TaskView
from fsd_core.tasks.custom.custom_task import transcript
from fsd_core.tasks.custom.reading import CheckedFile
from fsd_core.tasks.custom.scorers import get_scorer

_SHOWN = 5
"""prompts of a preview"""
_LONGEST = 400
"""characters of one"""
_LEAD = (
    "Your own traffic: a file with one JSON object a line. Each has prompt, or messages with role and content; "
    "reference where the scorer needs one; id if you like."
)
_EXAMPLE = (
    '{"scorer": "number", "title": "Invoices"}\n'
    '{"prompt": "A desk costs 120 and a lamp 35. What do both cost?", "reference": 155}\n'
    '{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 7 × 8?"}], '
    '"reference": 56}'
)


def lead_html() -> str:
    """What a file looks like."""
    return f'<p class="more-lead">{escape(_LEAD)}</p><pre class="own-example">{escape(_EXAMPLE)}</pre>'


def checked_html(checked: CheckedFile, name: str) -> str:
    """Everything that is wrong with a file, or its first prompts as they were read."""
    if checked.problems:
        lines = "".join(f"<li>{escape(problem.sentence)}</li>" for problem in checked.problems)
        more = f"<li>And {checked.unlisted:,} more.</li>" if checked.unlisted else ""
        told = f"The file has {checked.summary}, so it cannot be added yet."
        return f'{notice(told, "bad")}<ul class="own-problems">{lines}{more}</ul>'
    scorer = get_scorer(checked.scorer)
    told = f"{name}: {count(len(checked.lines), 'prompt')} in order. Scorer: {scorer.title}. {scorer.about}"
    shown = "".join(_line(line.asked, line.reference) for line in checked.lines[:_SHOWN])
    left = len(checked.lines) - _SHOWN
    more = f'<p class="more-lead">And {count(left, "more prompt")}.</p>' if left > 0 else ""
    return f'{notice(told)}<ol class="own-preview">{shown}</ol>{more}'


def _line(asked: str | Sequence[tuple[str, str]], reference: str | None) -> str:
    text = asked if isinstance(asked, str) else transcript(tuple(asked))
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    expected = "" if reference is None else f"<span>Reference: {escape(reference[:_LONGEST])}</span>"
    return f"<li><pre>{escape(text)}</pre>{expected}</li>"


def own_tasks_html(versions: Iterable[TaskView], refused: Iterable[str]) -> str:
    """A line for each task, of its latest version; above them what the folder holds that cannot be used."""
    views = list(versions)
    counts = Counter(view.name for view in views)
    latest = {view.name: view for view in reversed(views)}  # the latest come first
    lines = "".join(_task(latest[name], counts[name]) for name in counts)
    told = "".join(notice(sentence, "warn") for sentence in refused)
    return told + (f'<div class="more-tasks">{lines}</div>' if lines else "")


def _task(view: TaskView, versions: int) -> str:
    about = (
        f"{view.full_name} · {count(view.prompts, 'prompt')} · {get_scorer(view.scorer).title} · "
        f"{view.added_by}, {moment(view.added_at)}" + (f" · {versions} versions" if versions > 1 else "")
    )
    lines = lines_link(view.full_name, "Lines")
    return (
        f'<div class="more-task" data-own="{escape(view.full_name)}"><p><b>{escape(view.title or view.name)}</b>'
        f"<span>{escape(about)}</span></p>{lines}</div>"
    )
