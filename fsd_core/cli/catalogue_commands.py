"""Commands on what can be named: tasks, pairs and running engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.cli import common, output
from fsd_core.cli.output import download_bar
from fsd_core.config import DecodingConfig
from fsd_core.config.options import METHOD_OPTIONS, method
from fsd_core.config.run_config import IN_FLIGHT, MOST_ROWS
from fsd_core.errors import FsdError, NotApplicable, UnfitTask, UnknownChoice
from fsd_core.settings import get_settings
from fsd_core.texts import count
from fsd_core.worker import run_actions

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository
    from fsd_core.tasks.custom.reading import CheckedFile


_ID_LENGTH = 8
"""characters of an id that a table shows"""


def tasks() -> None:
    """List the tasks and their missing files. `task list` lists your own tasks."""
    from fsd_core.tasks import TASKS

    rows = []
    for task in TASKS.values():
        availability = f"needs {', '.join(task.files)} in {get_settings().data_folder}"
        if task.available:
            try:
                availability = count(task.size, "prompt")
                if task.repeats:
                    availability += f", without {len(task.repeats)} that repeat an earlier one"
            except FsdError as error:  # a file that differs from the published one
                availability = str(error)
        rows.append((task.name, task.title, availability))
    output.print_table(("Name", "Title", "Prompts"), rows, figures=False)


def list_runs(
    search: Annotated[str, typer.Option(help="Words of a setting, a task, a name, a note or a tag.")] = "",
    limit: Annotated[int, common.number_option("--limit", int, "Runs, the newest first; 1 to 1000.", 1, 1000)] = 30,
    archived: Annotated[bool, typer.Option("--archived", help="With archived runs.")] = False,
    json: common.Json = False,
) -> None:
    """List runs with the ids that other commands take."""
    from fsd_core.config.model_names import called

    repository = run_actions.open_repository(get_settings())
    runs = repository.runs(search=search, limit=limit, archived=None if archived else False)
    if json:
        for run in runs:
            named = {"run": run.id, "experiment": run.experiment_id, "name": run.experiment_name, "pair": run.pair}
            named |= {"note": run.note, "tags": list(run.tags), "archived": run.archived}
            done = {"prompts_done": run.prompts_done, "prompts": run.prompts_total, "begun": run.created_at.isoformat()}
            output.print_json(named | {"label": run.label, "task": run.task, "status": run.status} | done)
        return
    if not runs:
        hidden = " --archived lists archived ones." if not archived and repository.count_runs(archived=True) else ""
        output.say(("No run is here yet." if not search else f"No run has {search[:60]!r} in its name.") + hidden)
        return
    rows = [
        (
            run.id[:_ID_LENGTH], run.label, called(run.pair), run.task,
            f"{run.prompts_done:,} of {run.prompts_total:,}", run.status,
            f"{run.created_at:%Y-%m-%d %H:%M}", (run.experiment_id or "–")[:_ID_LENGTH],
        )
        for run in runs
    ]  # fmt: skip
    columns = ("Run", "Setting", "Pair", "Task", "Prompts", "Status", "Begun, UTC", "Experiment")
    output.print_table(columns, rows, figures=False)


def fetch(task: Annotated[str, typer.Argument(help="Task whose files are fetched.")]) -> None:
    """Fetch a task's files from the Hugging Face hub into the data folder."""
    from fsd_core.models.pair_check import size
    from fsd_core.tasks import download, get_task

    source, licence = download.origin(task)
    to_fetch = download.missing_bytes(get_task(task), get_settings().data_folder)
    print(f"{get_task(task).title}, licence {licence}, from {source}" + (f", {size(to_fetch)}" if to_fetch else ""))
    written = download.fetch(
        task, get_settings().data_folder,
        lambda what, done, total: output.say(f"Fetching {what}: file {done + 1} of {total}."),
    )  # fmt: skip
    print("\n".join(map(str, written)) if written else f"All files of {task} are there already.")


_OPTIONS: dict[str, Any] = common.TYPER_OPTIONS | {"no_args_is_help": False}
endpoints = typer.Typer(
    help="Running engines that are measured like settings: vLLM, SGLang, llama.cpp and others.",
    invoke_without_command=True, **_OPTIONS,
)  # fmt: skip

EndpointName = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="NAME", help="Measure this running engine in place of a rule; see `endpoints`."),
]
EndpointNames = Annotated[
    list[str] | None,
    typer.Option("--endpoint", metavar="NAME", help="Measure this running engine too; may be given several times."),
]
Loads = Annotated[
    str | None,
    typer.Option(
        "--parallel", metavar="NUMBERS",
        help="How many prompts an endpoint is asked at once, such as 8. A list such as 1,2,4 gives a run each. In a "
        "sweep it is the batch size of our own loop too.",
    ),
]  # fmt: skip
Rates = Annotated[
    str | None,
    typer.Option(
        "--request-rate", metavar="NUMBERS",
        help="Prompts that arrive at an endpoint in a second, such as 2, at random. A list such as 1,2,4 gives a run "
        f"each. --parallel is then how many may be open at once. [default of it: {IN_FLIGHT}]",
    ),
]  # fmt: skip
_WHO = "command line"


def served_decoding(repository: Repository, name: str, shared: Mapping[str, Any]) -> DecodingConfig:
    """Return the decoding of an endpoint, which has what a method and its baseline share. Asks the engine first.

    ``shared``: see ``DecodingConfig.shared``. Raises ``UnknownName``, ``InvalidSetting`` and ``EngineUnavailable``.
    """
    from fsd_core.actions.action import Ask
    from fsd_core.actions.endpoints import check_endpoint
    from fsd_core.worker.endpoints import endpoint_decodings

    (decoding,) = endpoint_decodings([repository.engine(name)], shared)
    check_endpoint(Ask(get_settings(), repository=repository, operator=True), name)
    return decoding


def shared_of(option_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the options say of prompts and sampling. Raises ``InvalidSetting`` for those of our own loop."""
    from fsd_core.worker.endpoints import check_shared

    given = [name for name in METHOD_OPTIONS if option_values.get(name) is not None]
    check_shared(given, common.flag)
    return method({name: option_values[name] for name in given}, common.flag).shared


def read_parallel(text: str | None) -> list[int]:
    """Return the numbers of a list such as ``1,2,4``; empty for ``None``. Raises ``FsdError``."""
    read = common.read_number("--parallel", int, 1, MOST_ROWS)
    return list(dict.fromkeys(read(part.strip()) for part in text.split(","))) if text is not None else []


def read_request_rates(text: str | None) -> list[float]:
    """Return the numbers of a list such as ``0.5,1,2``; empty for ``None``. Raises ``FsdError``."""
    read = common.read_number("--request-rate", float)
    return list(dict.fromkeys(read(part.strip()) for part in text.split(","))) if text is not None else []


pairs = typer.Typer(
    help="Model pairs: those of the program, and models of your own.", invoke_without_command=True, **_OPTIONS
)

PairName = Annotated[str, typer.Argument(help="Name of a pair, or path:FOLDER, or hub:TARGET+DRAFT.")]


@pairs.command("fetch")
def fetch_pair(name: PairName) -> None:
    """Fetch what is missing of a pair from the Hugging Face hub. Stop it with Ctrl-C; called again, it goes on."""
    from fsd_core.models import hub
    from fsd_core.models.model_pairs import get_pair
    from fsd_core.models.sources import missing_models

    spec = get_pair(common.recorded_pair(name) or name)
    if not missing_models(spec):
        print(f"Nothing of {name} is missing.")
        return
    with download_bar() as on_progress:
        hub.fetch_pair(spec, on_progress)
    print(f"{name} is here.")


task = typer.Typer(help="Tasks of your own, from files.", **common.TYPER_OPTIONS)

File = Annotated[
    Path, typer.Argument(help="A file of CSV, TSV, XLSX, Parquet, JSON or JSON Lines, also gzipped or zipped.")
]
Scorer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="number, choice, exact, contains, regex or none. [default: what the first line says, or what fits]",
    ),
]
PromptField = Annotated[
    str,
    typer.Option(metavar="FIELD", help="Field that holds the prompt or the conversation. [default: told by its name]"),
]
ReferenceField = Annotated[
    str, typer.Option(metavar="FIELD", help="Field that holds what is right. [default: told by its name]")
]
IdField = Annotated[str, typer.Option(metavar="FIELD", help="Field that holds the line's own name. [default: id]")]
ContextField = Annotated[
    str, typer.Option(metavar="FIELD", help="Field that belongs to the prompt. [default: told by its name]")
]
ChoicesField = Annotated[
    str, typer.Option(metavar="FIELD", help="Field of what is asked as lettered options. [default: told by its name]")
]
CategoryField = Annotated[
    str, typer.Option(metavar="FIELD", help="Field of the kind of prompt. [default: told by its name]")
]
AllTurns = Annotated[bool, typer.Option("--all-turns", help="Ask the user turns of conversations one after another.")]
GroupSimilar = Annotated[
    bool,
    typer.Option("--group-similar", help="Make near-duplicates groups: prompts that depend on each other count once."),
]


def _checked_file(file: Path, scorer: str | None, *fields: Any, all_turns: bool, group_similar: bool) -> CheckedFile:
    """Return the content of a file, whose ``fields`` are those of :class:`FieldNames`.

    Raises ``InvalidSetting`` after every problem was printed to standard error.
    """
    from fsd_core.calibration.request import margins_for
    from fsd_core.tasks.custom.reading import check, read_file
    from fsd_core.tasks.custom.rows import FieldNames
    from fsd_core.tasks.custom.scorers import SCORERS

    if scorer is not None and scorer not in SCORERS:
        raise UnknownChoice(f"--scorer {scorer[:40]!r} is not known: expected one of {', '.join(SCORERS)}.")
    names, remedy = FieldNames(*fields), "or use --group-similar"
    checked = check(read_file(file), scorer, names, all_turns=all_turns, group_similar=group_similar, remedy=remedy)
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
    from fsd_core.tasks.custom.custom_task import TaskFolder

    settings = get_settings()
    repository = run_actions.open_repository(settings)
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
    context_field: ContextField = "",
    choices_field: ChoicesField = "",
    category_field: CategoryField = "",
    all_turns: AllTurns = False,
    group_similar: GroupSimilar = False,
) -> None:
    """Report everything that is wrong with a file, line by line. Nothing is stored."""
    fields = prompt_field, reference_field, id_field, context_field, choices_field, category_field
    checked = _checked_file(file, scorer, *fields, all_turns=all_turns, group_similar=group_similar)
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
    context_field: ContextField = "",
    choices_field: ChoicesField = "",
    category_field: CategoryField = "",
    all_turns: AllTurns = False,
    group_similar: GroupSimilar = False,
) -> None:
    """Store a file as a task, or as the next version of one. Commands and pages then offer it."""
    from fsd_core.tasks.custom.custom_task import CustomTask, checked_name, keep, suggested_name

    name = checked_name(suggested_name(file.name) if name is None else name)
    fields = prompt_field, reference_field, id_field, context_field, choices_field, category_field
    checked = _checked_file(file, scorer, *fields, all_turns=all_turns, group_similar=group_similar)
    view = keep(_repository(), CustomTask.of(name, checked, title), _WHO)
    print(f"{view.full_name} has {count(view.prompts, 'prompt')}, scored by {view.scorer}. Measure with --task {name}.")


@task.command("list")
def list_tasks(
    versions: Annotated[bool, typer.Option("--versions", help="Every version, not only the latest.")] = False,
) -> None:
    """List your own tasks, the latest first."""
    from fsd_core.tasks.custom.custom_task import latest_custom_tasks

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
    from fsd_core.tasks.custom.custom_task import CustomTask, find_task

    match = find_task(name, _repository())
    if not isinstance(match, CustomTask):
        raise NotApplicable(f"'{name}' is a task of the program: `task show` prints the lines of your own.")
    print(match.content, end="")
