"""Commands for custom tasks: ``task check``, ``add``, ``list`` and ``show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.errors import NotApplicable, UnfitTask, UnknownChoice
from fsd_core.formatting import count
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.tasks.custom.reading import CheckedFile

task = typer.Typer(help="Tasks of your own, from files.", **options.TYPER_OPTIONS)

File = Annotated[Path, typer.Argument(help="A file of JSON Lines, JSON or Parquet; also gzipped.")]
Scorer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="number, choice, exact, contains, regex or none. [default: what the file's first line says]",
    ),
]
PromptField = Annotated[
    str,
    typer.Option(metavar="FIELD", help="Field that holds the prompt or the conversation. [default: prompt, messages]"),
]
ReferenceField = Annotated[
    str, typer.Option(metavar="FIELD", help="Field that holds what is right. [default: reference]")
]
IdField = Annotated[str, typer.Option(metavar="FIELD", help="Field that holds the line's own name. [default: id]")]
AllTurns = Annotated[bool, typer.Option("--all-turns", help="Ask the user turns of conversations one after another.")]
GroupSimilar = Annotated[
    bool,
    typer.Option("--group-similar", help="Make near-duplicates groups: prompts that depend on each other count once."),
]
_WHO = "command line"


def _checked(file: Path, scorer: str | None, *fields: str, all_turns: bool, group_similar: bool) -> CheckedFile:
    """Return the content of a file, whose ``fields`` hold prompt, reference and id.

    Raises ``InvalidSetting`` after every problem was printed to standard error.
    """
    from fsd_core.calibration.request import margins_for
    from fsd_core.tasks.custom.reading import check, read_file
    from fsd_core.tasks.custom.scorers import SCORERS
    from fsd_core.tasks.custom.shapes import FieldNames
    from fsd_core.tasks.custom.similar import grouped, noted

    if scorer is not None and scorer not in SCORERS:
        raise UnknownChoice(f"--scorer {scorer[:40]!r} is not known: expected one of {', '.join(SCORERS)}.")
    checked = check(read_file(file), scorer, FieldNames(*fields), all_turns=all_turns)
    checked = grouped(checked) if group_similar else noted(checked, "or use --group-similar")
    for problem in checked.problems:
        output.say(problem.sentence)
    if checked.unlisted:
        output.say(f"And {checked.unlisted:,} more.")
    for sentence in filter(None, (*checked.notes, margins_for(checked))):
        output.say(f"note: {sentence}")
    if checked.problems:
        raise UnfitTask(f"{file} has {checked.summary}: nothing can be measured on it yet.")
    return checked


def _repository() -> Repository:
    """Return the database, updated from the folder of tasks."""
    from fsd_core.tasks.custom.lookup import TaskFolder

    settings = get_settings()
    repository = local_runs.open_repository(settings)
    for sentence in TaskFolder(settings.tasks_folder).take_in(repository):
        output.say(f"warning: {sentence}")
    return repository


@task.command("check")
def check_task(
    file: File,
    scorer: Scorer = None,
    prompt_field: PromptField = "",
    reference_field: ReferenceField = "",
    id_field: IdField = "",
    all_turns: AllTurns = False,
    group_similar: GroupSimilar = False,
) -> None:
    """Report everything that is wrong with a file, line by line. Nothing is stored."""
    fields = prompt_field, reference_field, id_field
    checked = _checked(file, scorer, *fields, all_turns=all_turns, group_similar=group_similar)
    print(f"{file} has {count(checked.prompts, 'prompt')}, scored by {checked.scorer}.")


@task.command("add")
def add_task(
    file: File,
    name: Annotated[str | None, typer.Option(help="Name. [default: made of the file's]")] = None,
    scorer: Scorer = None,
    title: Annotated[str, typer.Option(help="Title for people.")] = "",
    prompt_field: PromptField = "",
    reference_field: ReferenceField = "",
    id_field: IdField = "",
    all_turns: AllTurns = False,
    group_similar: GroupSimilar = False,
) -> None:
    """Store a file as a task, or as the next version of one. Commands and pages then offer it."""
    from fsd_core.tasks.custom.custom_task import CustomTask
    from fsd_core.tasks.custom.lookup import checked_name, keep, suggested_name

    name = checked_name(suggested_name(file.name) if name is None else name)
    fields = prompt_field, reference_field, id_field
    checked = _checked(file, scorer, *fields, all_turns=all_turns, group_similar=group_similar)
    view = keep(_repository(), CustomTask.of(name, checked, title), _WHO)
    print(f"{view.full_name} has {count(view.prompts, 'prompt')}, scored by {view.scorer}. Measure with --task {name}.")


@task.command("list")
def list_tasks(
    versions: Annotated[bool, typer.Option("--versions", help="Every version, not only the latest.")] = False,
) -> None:
    """List your own tasks, the latest first."""
    from fsd_core.tasks.custom.lookup import latest_custom_tasks

    repository = _repository()
    views = repository.task_versions() if versions else [task.view for task in latest_custom_tasks(repository)]
    rows = [
        (view.full_name, view.title, f"{view.prompts:,}", view.scorer, view.added_by, f"{view.added_at:%Y-%m-%d %H:%M}")
        for view in views
    ]
    if rows:
        output.print_table(("Name", "Title", "Prompts", "Scorer", "Added by", "Added, UTC"), rows, figures=False)
    else:
        output.say("There is no task of your own yet: `task add FILE` makes the first one.")


@task.command("show")
def show_task(
    name: Annotated[str, typer.Argument(help="Name of a task of your own, such as support or support@0123456789ab.")],
) -> None:
    """Print the lines of a task. Their SHA-256 begins with its version."""
    from fsd_core.tasks.custom.custom_task import CustomTask
    from fsd_core.tasks.custom.lookup import find_task

    match = find_task(name, _repository())
    if not isinstance(match, CustomTask):
        raise NotApplicable(f"'{name}' is a task of the program: `task show` prints the lines of your own.")
    print(match.content, end="")
