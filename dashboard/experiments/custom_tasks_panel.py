"""Tasks on the Experiments page: files that are dropped, and benchmarks that are fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr
from fastapi import APIRouter, Response

from dashboard.tables.run_record import lines_link
from dashboard.ui.api_call import answered
from dashboard.ui.components import button, notice, show
from dashboard.ui.fields import UPLOAD, uploaded
from dashboard.ui.templates import Html, joined, moment, render, script
from dashboard.ui.view import Act, Asked, Updates, Values, View, count_in
from fsd_core.calibration.request import margins_for
from fsd_core.errors import DataDamaged, FsdError
from fsd_core.models.pair_check import size
from fsd_core.settings import get_settings
from fsd_core.storage.messages import FetchJob
from fsd_core.storage.records import UNENDED, TaskView
from fsd_core.tasks import TASKS, Task
from fsd_core.tasks.custom.custom_task import (
    SUFFIXES,
    CustomTask,
    TaskFolder,
    checked_name,
    form_hint,
    formless,
    keep,
    latest_custom_tasks,
    suggested_name,
    transcript,
)
from fsd_core.tasks.custom.reading import CheckedFile, check
from fsd_core.tasks.custom.rows import FIELDS, USUAL_FIELDS, FieldNames, TaskLine
from fsd_core.tasks.custom.scorers import SCORERS, get_scorer
from fsd_core.tasks.download import fetchable, missing_bytes, origin
from fsd_core.texts import count

if TYPE_CHECKING:
    from dashboard.experiments.experiment_form import ExperimentForm
    from dashboard.experiments.find_panel import FindPanel, Start
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import JobRow, WorkerRow


_PART = "experiments/custom_tasks.html"
_PREVIEWED = 5
"""prompts in a preview"""
_LONGEST = 400
"""characters of a prompt in a preview"""
_SCORER_TITLES = [(scorer.name, scorer.title) for scorer in SCORERS.values()]
_TITLES = {own: own.capitalize() for own in FIELDS} | {"": "Left out"}
"""what a field may be taken for"""
_OWN_LEAD = (
    "Your own traffic: a file with one JSON object a line. Each has prompt, or messages with role and content; "
    "reference where the scorer needs one; id if you like; turns for what the user says next. CSV, TSV, XLSX, Parquet "
    "and JSON, plain, gzipped or zipped, are read too, and what their fields hold is told by their names."
)
_ACCEPTED = ",".join((*SUFFIXES, ".txt", ".xlsm"))
_NOTHING_SCORES = (
    "Nothing says what is right, so texts are held against the target's own. To have them scored, take a field for the "
    "reference, and a scorer if another than the one that fits."
)
_EXAMPLE = (
    '{"scorer": "number", "title": "Invoices"}\n'
    '{"prompt": "A desk costs 120 and a lamp 35. What do both cost?", "reference": 155}\n'
    '{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 7 × 8?"}], '
    '"reference": 56}'
)


def _chosen_fields(act: Act) -> FieldNames:
    """Return the fields of a file by what a person says that they hold, or the usual ones if nobody says anything."""
    said = act.data.get("fields") if isinstance(act.data, dict) else None
    if not isinstance(said, dict) or not said:
        return USUAL_FIELDS
    fields: dict[str, Any] = dict.fromkeys(FIELDS) | {"prompt": ""}
    return USUAL_FIELDS._replace(**fields | {own: str(name) for name, own in said.items() if own in FIELDS})


def checked_html(
    checked: CheckedFile, name: str, place: str, scorer: str | None = None, start: Start | None = None
) -> Html:
    """Return all problems of the file in the field ``place``, or its first prompts, and what fields are taken for.

    ``scorer`` is the one that somebody chose, and ``None`` where the page has another field for it.
    """
    scorers = [] if scorer is None else [("", "As the file says, or as fits"), *_SCORER_TITLES]
    fields = (place, checked.fields, _TITLES, scorers, scorer)
    if checked.problems:
        more = f"And {checked.unlisted:,} more." if checked.unlisted else ""
        summary = f"The file has {checked.summary}, so it cannot be added yet."
        return render(_PART, "problems", summary, checked.problems, more, checked.notes, fields)
    reads = get_scorer(checked.scorer)
    summary = f"{name}: {count(checked.prompts, 'prompt')} in order. Scorer: {reads.title}. {reads.about}"
    lines = [_task_line(line) for line in checked.lines[:_PREVIEWED]]
    remaining = sum(line.prompts for line in checked.lines[_PREVIEWED:])
    more = f"And {count(remaining, 'more prompt')}." if remaining > 0 else ""
    begins = start and (place, *start)
    return render(_PART, "preview", summary, lines, more, checked.notes, fields, begins)


def _name_of(act: Act) -> str:
    return suggested_name(PurePath(act["file"][:300]).name)


def _task_line(line: TaskLine) -> tuple[str, str | None]:
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
    return render(_PART, "tasks", refused, tasks)


def _about(view: TaskView, versions: int) -> str:
    return (
        f"{view.full_name} · {count(view.prompts, 'prompt')} · {get_scorer(view.scorer).title} · "
        f"{view.added_by}, {moment(view.added_at)}" + (f" · {versions} versions" if versions > 1 else "")
    )


def task_routes(repository: Repository) -> APIRouter:
    """Return the route ``GET /export/task.jsonl``. ``task=`` names a version, such as ``support@0123456789abcdef``."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/task.jsonl")
    def task_file(task: str = "") -> Response:
        def answer() -> Response:
            name, _, version = task.partition("@")
            content = repository.task_content(name, version)
            # The name of a stored task has only letters, digits and hyphens.
            headers = {"Content-Disposition": f'attachment; filename="{name}-{version}.jsonl"'}
            return Response(content, media_type="application/jsonl", headers=headers)

        return answered(answer, 503)

    return router


_PRIORITY = 5
REPORTED_FOR = timedelta(minutes=10)
"""how long the page reports a fetched task"""
_MORE_LEAD = (
    "Benchmarks of the field, from the Hugging Face hub into this installation's data folder. The worker fetches them; "
    "then they are in the list of tasks."
)
MANUAL_TASKS_NOTE = (
    "The files of {} come from their authors: python -m fsd_core tasks says which are wanted, and where."
)


class Fetch(NamedTuple):
    """A task that can be fetched or was fetched, and the last job that tried."""

    task: Task
    job: JobRow | None


def fetches(repository: Repository) -> list[Fetch]:
    """Return the missing tasks and those fetched recently, in the order of all tasks."""
    latest = _latest(repository.latest_jobs(FetchJob.kind))
    fresh = {
        name for name, job in latest.items() if job.finished_at and datetime.now(UTC) - job.finished_at < REPORTED_FOR
    }
    return [
        Fetch(task, latest.get(name))
        for name, task in TASKS.items()
        if fetchable(task) or (name in fresh and task.hub and task.available)
    ]


def request(repository: Repository, name: str) -> None:
    """Let the worker fetch a task, unless a job does so already. Raises ``UnknownName``."""
    origin(name[:40])  # rejects an unknown name, which may be long
    last = _latest(repository.latest_jobs(FetchJob.kind)).get(name)
    if last is None or last.status not in UNENDED:
        repository.enqueue(FetchJob(name), _PRIORITY)


def _latest(jobs: Iterable[JobRow]) -> Mapping[str, JobRow]:
    """Return the newest job of each task, given jobs newest first. Unreadable jobs are skipped."""
    newest: dict[str, JobRow] = {}
    for job in jobs:
        try:
            newest.setdefault(FetchJob.read(job.payload).task, job)
        except DataDamaged:
            continue
    return newest


def more_tasks_html(fetches: Iterable[Fetch], worker: WorkerRow | None) -> Html:
    """Return a line for each task: what it is, its source, and how far it is fetched."""
    lines = [_fetch_line(fetch, worker) for fetch in fetches]
    manual = [task.title for task in TASKS.values() if not task.has_files and not task.hub]
    note = MANUAL_TASKS_NOTE.format(_listed(manual)) if manual else ""
    return render("experiments/more_tasks.html", "tasks", _MORE_LEAD, lines, note)


def _listed(titles: list[str]) -> str:
    """Join titles in a phrase. The parts of Spec-Bench are listed once, under its name."""
    *first, last = dict.fromkeys(title.partition(",")[0] for title in titles)
    return f"{', '.join(first)} and {last}" if first else last


def _fetch_line(fetch: Fetch, worker: WorkerRow | None) -> Html:
    task, job = fetch
    source, licence = origin(task.name)
    waiting = job is not None and job.status in UNENDED
    about = f"{task.published:,} prompts, licence {licence}" if task.published else f"Licence {licence}"
    download = missing_bytes(task, get_settings().data_folder)
    about += f", {size(download)}" if download else ""
    action = Html() if task.has_files else button("fetch", "task", task.name, "Fetch", disabled=waiting)
    return render("experiments/more_tasks.html", "task", task, about, source, action, _state(task, job, worker))


def _state(task: Task, job: JobRow | None, worker: WorkerRow | None) -> Html:
    if task.has_files:
        return notice(f"{task.title} is in the list of tasks.")
    if job is None or job.status == "finished":
        return Html()
    if job.status in UNENDED:
        activity = worker.activity if worker is not None and worker.alive else None
        if activity is None:
            return notice("Waiting: nothing fetches now. The head of this page says what is missing.")
        fetching = job.status == "running" and activity.startswith("Fetching")
        return notice(f"{activity}." if fetching else "The worker will begin shortly.")
    return notice(job.error or "It was stopped.", "warn")


CHOSEN_BY_ADDING = ("task", "limit")
"""fields of the experiment that a task sets when it is added"""
AS_THE_FILE_SAYS = ""
_EXPECTED = "one of CSV, TSV, XLSX, Parquet, JSON or JSON Lines"
_LARGER = "`fsd-lab task add` and the folder of tasks take"


class CustomTasksPanel:
    """The panel's components as attributes, and what a person does with it."""

    def __init__(
        self, repository: Repository, settings: Settings, form: ExperimentForm, finder: FindPanel,
        measure: Callable[[Values], str], forget: Callable[[], None],
    ) -> None:  # fmt: skip
        """``form`` gets a task that was added, and ``forget`` is called then. ``finder`` and ``measure``, which returns
        a sentence, begin a calibration and an experiment on a dropped file."""
        self.repository, self.folder = repository, TaskFolder(settings.tasks_folder)
        self.form, self.finder, self._measure, self._forget = form, finder, measure, forget
        with form.beside_task:
            self.drop_field = show(render(_PART, "drop_field", _ACCEPTED), js_on_load=UPLOAD, elem_id="own-drop")
        with form.below_task:
            self.form_hint = show()
            self.formless = gr.Textbox("0", visible="hidden")  # prompts of the checked file
            self.drop_answer = show(elem_id="drop-answer")
        with gr.Accordion("Your own tasks", open=False):
            show(render(_PART, "lead", _OWN_LEAD, _EXAMPLE))
            with gr.Row():
                self.identifier = gr.Textbox(
                    label="Identifier", info="Small letters, digits, hyphens. Empty: as the file's.", max_length=40,
                    min_width=160,
                )  # fmt: skip
                named = [(title, name) for name, title in _SCORER_TITLES]
                scorers = [("As the file says, or as fits", AS_THE_FILE_SAYS), *named]
                self.scorer = gr.Dropdown(
                    scorers, value=AS_THE_FILE_SAYS, label="Scorer", info="Of every line.", min_width=160
                )
                self.title = gr.Textbox(label="Shown as", info="For people.", max_length=120, min_width=160)
                self.group_similar = gr.Checkbox(
                    label="Group near-duplicates", info="A group counts once in intervals and promises.", min_width=160
                )
            self.file_field = show(render(_PART, "file_field", _ACCEPTED), js_on_load=UPLOAD, elem_id="own-file")
            self.answer = show(elem_id="own-answer")
            self.list = show(elem_id="own-tasks")

    def listen(self, view: View) -> None:
        """Attach the event."""
        fields = [self.identifier, self.scorer, self.title, self.group_similar]
        fields += [self.form.fields[name] for name in CHOSEN_BY_ADDING]
        view.by_script(self.file_field.click, fields, script("experiments/send_file.js", NAME="custom task"))
        view.act("custom task", self.check_or_add, self.answer)
        view.by_script(self.drop_field.click, self._asked, script("experiments/send_dropped.js", NAME="dropped file"))
        view.act("dropped file", self.check_or_use, self.drop_answer)

    @property
    def _asked(self) -> list[Any]:
        """The fields that say what is begun on a dropped file."""
        return [*self.form.fields.values(), *self.finder.fields]

    def redraw(self, asked: Asked, listed: Html) -> Updates:
        """Return the list of tasks, and whether the chosen pair knows the form of the file, as far as they differ."""
        hint = form_hint(asked.current(self.form.fields["pair"]), count_in(asked.current(self.formless)))
        updates: Updates = {self.list: listed} if asked.differs("custom tasks", listed) else {}
        return updates | ({self.form_hint: notice(hint, "warn") if hint else ""} if asked.differs("form", hint) else {})

    def check_or_add(self, act: Act, asked: Asked) -> Updates:
        """Check the uploaded file, or add it and choose it in the form."""
        data, grouped = uploaded(act, _EXPECTED, _LARGER), bool(act["group_similar"])
        remedy = "or tick “Group near-duplicates”"
        checked = check(data, act["scorer"] or None, _chosen_fields(act), group_similar=grouped, remedy=remedy)
        name, before = act["identifier"].strip(), {name: act[name] for name in CHOSEN_BY_ADDING}
        if act["action"] != "add" or checked.problems:
            return {self.answer: self._told(act, asked, checked, "own-file", name)}
        return {self.answer: notice(self._added(act, asked, checked, before, name, act["title"])[1])}

    def check_or_use(self, act: Act, asked: Asked) -> Updates:
        """Show the dropped file as it would be asked, or add it so, choose it in the form, and begin what the button
        says."""
        remedy = "or add the file under “Your own tasks” with “Group near-duplicates” ticked"
        data, scorer = uploaded(act, _EXPECTED, _LARGER), act["scorer"]
        checked = check(data, scorer or None, _chosen_fields(act), remedy=remedy)
        sent = act.data.get("values") if isinstance(act.data, dict) else None
        values = Values.read(self._asked, sent, act.key)
        if act["action"] not in ("add", "find", "measure") or checked.problems:
            start = self.finder.start_on(checked, values)
            return {self.drop_answer: self._told(act, asked, checked, "own-drop", "", scorer, start)}
        before = {name: f"{values[self.form.fields[name]]}" for name in CHOSEN_BY_ADDING}
        stored, told = self._added(act, asked, checked, before)
        values[self.form.fields["task"]] = stored.full_name
        try:
            if act["action"] == "find":
                told += f" {self.finder.begin_on(values, asked, act['margin'])}"
            elif act["action"] == "measure":
                values[self.form.fields["limit"]] = min(values[self.form.fields["limit"]] or 1, stored.prompts)
                told += f" {self._measure(values)}"
        except FsdError as error:
            return {self.drop_answer: joined([notice(told), notice(str(error), "bad")])}
        return {self.drop_answer: notice(told)}

    def _told(
        self, act: Act, asked: Asked, checked: CheckedFile, place: str, name: str,
        scorer: str | None = None, start: Start | None = None,
    ) -> Html:  # fmt: skip
        """Return the content of the file in the field ``place``, or its problems."""
        asked.unused.add(act.key)
        asked.fill(self.formless, str(formless(line.model_input for line in checked.lines)))
        notes = [margins_for(checked), _NOTHING_SCORES if scorer is not None and checked.scorer == "none" else ""]
        told = replace(checked, notes=(*checked.notes, *filter(None, notes)))
        return checked_html(told, name or _name_of(act), place, scorer, start)

    def _added(
        self, act: Act, asked: Asked, checked: CheckedFile, before: Mapping[str, str], name: str = "", title: str = ""
    ) -> tuple[TaskView, str]:
        """Add the file, choose it in the form, and return it with a sentence. ``before``: as ``choose_task`` takes
        it."""
        task = CustomTask.of(checked_name(name or _name_of(act)), checked, title.strip())
        asked.fill(self.formless, "0")
        stored = keep(self.repository, task, asked.person.name)
        self._forget()
        self.form.choose_task(asked, stored.full_name, before)
        return stored, f"{stored.full_name} is in the list of tasks, with {count(stored.prompts, 'prompt')}."

    def tasks(self) -> tuple[list[CustomTask], Html]:
        """Return the latest versions and their list as HTML, after importing changes in the folder."""
        refused = self.folder.take_in(self.repository)
        return latest_custom_tasks(self.repository), custom_tasks_html(self.repository.task_versions(), refused)
