"""Custom tasks as HTML: what a file holds or what is wrong with it, and the list of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dashboard.tables.task_version import lines_link
from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, render
from fsd_core.formatting import count
from fsd_core.storage.records import TaskView
from fsd_core.tasks.custom.custom_task import transcript
from fsd_core.tasks.custom.lines import TaskLine
from fsd_core.tasks.custom.reading import CheckedFile
from fsd_core.tasks.custom.scorers import get_scorer

_PREVIEWED = 5
"""prompts in a preview"""
_LONGEST = 400
"""characters of a prompt in a preview"""
_LEAD = (
    "Your own traffic: a file with one JSON object a line. Each has prompt, or messages with role and content; "
    "reference where the scorer needs one; id if you like; turns for what the user says next. A list in JSON, Parquet, "
    "chats of ShareGPT, batches for an OpenAI server and files of gzip are read too."
)
_EXAMPLE = (
    '{"scorer": "number", "title": "Invoices"}\n'
    '{"prompt": "A desk costs 120 and a lamp 35. What do both cost?", "reference": 155}\n'
    '{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 7 × 8?"}], '
    '"reference": 56}'
)


def lead_html() -> Html:
    """Return the description of the file format."""
    return render("experiments/custom_tasks.html", "lead", _LEAD, _EXAMPLE)


def file_field_html() -> Html:
    """Return the file field and its buttons."""
    return render("experiments/custom_tasks.html", "file_field")


def drop_field_html() -> Html:
    """Return the field onto which a file is dropped, and the button that takes it, which is there with a file."""
    return render("experiments/custom_tasks.html", "drop_field")


def checked_html(checked: CheckedFile, name: str) -> Html:
    """Return all problems of a file, or its first prompts as parsed."""
    if checked.problems:
        more = f"And {checked.unlisted:,} more." if checked.unlisted else ""
        summary = f"The file has {checked.summary}, so it cannot be added yet."
        return render("experiments/custom_tasks.html", "problems", summary, checked.problems, more, checked.notes)
    scorer = get_scorer(checked.scorer)
    summary = f"{name}: {count(checked.prompts, 'prompt')} in order. Scorer: {scorer.title}. {scorer.about}"
    lines = [_line(line) for line in checked.lines[:_PREVIEWED]]
    remaining = sum(line.prompts for line in checked.lines[_PREVIEWED:])
    more = f"And {count(remaining, 'more prompt')}." if remaining > 0 else ""
    return render("experiments/custom_tasks.html", "preview", summary, lines, more, checked.notes)


def _line(line: TaskLine) -> tuple[str, str | None]:
    """Return the text and the reference, each truncated if it is long."""
    asked, reference = line.model_input, line.reference
    if line.turns and isinstance(asked, str):
        asked = (("user", asked),)
    text = asked if isinstance(asked, str) else transcript((*asked, *(("user", turn) for turn in line.turns)))
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return text, None if reference is None else reference[:_LONGEST]


def custom_tasks_html(versions: Iterable[TaskView], refused: Iterable[str]) -> Html:
    """Return a line for each task's latest version, below the files in the folder that cannot be used."""
    views = list(versions)
    counts = Counter(view.name for view in views)
    latest = {view.name: view for view in reversed(views)}  # views are sorted latest first
    tasks = [
        (latest[name], _about(latest[name], counts[name]), lines_link(latest[name].full_name, "Lines"))
        for name in counts
    ]
    return render("experiments/custom_tasks.html", "tasks", refused, tasks)


def _about(view: TaskView, versions: int) -> str:
    return (
        f"{view.full_name} · {count(view.prompts, 'prompt')} · {get_scorer(view.scorer).title} · "
        f"{view.added_by}, {moment(view.added_at)}" + (f" · {versions} versions" if versions > 1 else "")
    )
