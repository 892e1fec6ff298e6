"""Commands for model pairs: ``pairs``, ``pairs add``, ``show``, ``check`` and ``remove``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.errors import InvalidSetting
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs

if TYPE_CHECKING:
    from fsd_core.models.pair_check import PairCheck

_OPTIONS: dict[str, Any] = options.TYPER_OPTIONS | {"no_args_is_help": False}
pairs = typer.Typer(
    help="Model pairs: those of the program, and models of your own.", invoke_without_command=True, **_OPTIONS
)

Name = Annotated[str, typer.Argument(help="Name of a pair, or path:FOLDER, or hub:TARGET+DRAFT.")]
Target = Annotated[str, typer.Option(metavar="MODEL", help="OWNER/NAME[@REVISION] of the hub, or a folder.")]
Model = Annotated[str, typer.Option(metavar="MODEL", help="As the target; may be left out.")]
Adapter = Annotated[str, typer.Option(metavar="FOLDER", help="LoRA, merged into the model on loading.")]
Template = Annotated[
    str,
    typer.Option(
        metavar="JSON",
        help='Arguments of the chat template, such as {"enable_thinking": false}. A setting\'s come first.',
    ),
]
_WHO = "command line"


@pairs.callback()
def list_pairs(context: typer.Context) -> None:
    """List the model pairs, your own first."""
    if context.invoked_subcommand is not None:
        return
    from fsd_core.models.model_pairs import MODEL_PAIRS

    settings = get_settings()
    own = local_runs.open_repository(settings).own_pairs() if local_runs.has_database(settings) else []
    rows = [(pair.name, "", "everyday", f"{pair.models}, by {pair.added_by}") for pair in own]
    rows += [(pair.name, pair.title, ", ".join(pair.tasks), pair.description) for pair in MODEL_PAIRS.values()]
    output.print_table(("Name", "Title", "Tasks", "What it is"), rows, figures=False)


@pairs.command("add")
def add_pair(
    name: Annotated[str, typer.Argument(help="Its name, such as support-7b.")],
    target: Target,
    draft: Model = "",
    head: Model = "",
    adapter: Adapter = "",
    draft_adapter: Adapter = "",
    template_arguments: Template = "",
) -> None:
    """Name models of your own. They are checked first; nothing is loaded. `--pair NAME` then takes them."""
    from fsd_core.config.model_names import name_of_models
    from fsd_core.worker.pair_names import checked_pair_name

    name = checked_pair_name(name)
    models = name_of_models(
        {"target": target, "draft": draft, "head": head, "adapter": adapter, "draft-adapter": draft_adapter}
        | {"template": template_arguments}
    )
    checked = _checked(models)
    if checked.problems:
        raise InvalidSetting(f"'{name}' cannot be used. {checked.problems[0]}")
    local_runs.open_repository(get_settings()).add_pair(name, models, _WHO)
    print(f"{name} is {checked.badge}. Measure with --pair {name}.")


@pairs.command("show")
def show_pair(name: Name) -> None:
    """Report what a pair is made of, where its models are, and whether this machine can hold them."""
    models = _recorded(name)
    print(models)
    checked = _checked(models)
    print(f"{name} {'' if checked.problems else 'is '}{checked.badge}.")


@pairs.command("remove")
def remove_pair(name: Name) -> None:
    """Forget a name of yours. What was measured stays."""
    local_runs.open_repository(get_settings()).remove_pair(name)
    print(f"{name} is forgotten. Its runs stay.")


def _recorded(name: str) -> str:
    return options.recorded_pair(name) or name


def _checked(models: str) -> PairCheck:
    """Return what was found of a pair, after it was told on standard error."""
    from fsd_core.models.model_pairs import get_pair
    from fsd_core.models.pair_check import check_pair

    checked = check_pair(get_pair(models), psutil.virtual_memory().total)
    for sentence in (*checked.facts, *checked.notes, *checked.problems):
        output.say(sentence)
    return checked
