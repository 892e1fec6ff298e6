"""Tasks of one's own as HTML: what a file holds or what is wrong with it, and which there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dashboard.tables.task_version import lines_link
from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, render
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


def lead_html() -> Html:
    """What a file looks like."""
    return render("experiments/own_tasks.html", "lead", _LEAD, _EXAMPLE)


def choice_html() -> Html:
    """Where a file is chosen, and what can be done with it."""
    return render("experiments/own_tasks.html", "choice")


def checked_html(checked: CheckedFile, name: str) -> Html:
    """Everything that is wrong with a file, or its first prompts as they were read."""
    if checked.problems:
        more = f"And {checked.unlisted:,} more." if checked.unlisted else ""
        told = f"The file has {checked.summary}, so it cannot be added yet."
        return render("experiments/own_tasks.html", "problems", told, checked.problems, more)
    scorer = get_scorer(checked.scorer)
    told = f"{name}: {count(len(checked.lines), 'prompt')} in order. Scorer: {scorer.title}. {scorer.about}"
    shown = [_line(line.asked, line.reference) for line in checked.lines[:_SHOWN]]
    left = len(checked.lines) - _SHOWN
    more = f"And {count(left, 'more prompt')}." if left > 0 else ""
    return render("experiments/own_tasks.html", "preview", told, shown, more)


def _line(asked: str | Sequence[tuple[str, str]], reference: str | None) -> tuple[str, str | None]:
    """The text and the reference, each cut where it is long."""
    text = asked if isinstance(asked, str) else transcript(tuple(asked))
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return text, None if reference is None else reference[:_LONGEST]


def own_tasks_html(versions: Iterable[TaskView], refused: Iterable[str]) -> Html:
    """A line for each task, of its latest version; above them what the folder holds that cannot be used."""
    views = list(versions)
    counts = Counter(view.name for view in views)
    latest = {view.name: view for view in reversed(views)}  # the latest come first
    tasks = [
        (latest[name], _about(latest[name], counts[name]), lines_link(latest[name].full_name, "Lines"))
        for name in counts
    ]
    return render("experiments/own_tasks.html", "tasks", refused, tasks)


def _about(view: TaskView, versions: int) -> str:
    return (
        f"{view.full_name} · {count(view.prompts, 'prompt')} · {get_scorer(view.scorer).title} · "
        f"{view.added_by}, {moment(view.added_at)}" + (f" · {versions} versions" if versions > 1 else "")
    )
