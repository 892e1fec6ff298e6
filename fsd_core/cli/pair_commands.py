"""Commands for model pairs: ``pairs``, ``pairs add``, ``show``, ``fetch`` and ``remove``, ``search`` and ``drafts``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.cli.bars import download_bar
from fsd_core.errors import UnfitModel
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs

if TYPE_CHECKING:
    from fsd_core.models.pair_check import PairCheck
    from fsd_core.storage.database.repository import Repository

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
_DTYPE_HELP = "Of runs that name none: float32, bfloat16 or float16. Default: the checkpoint's."


@pairs.callback()
def list_pairs(context: typer.Context) -> None:
    """List the model pairs, your own first."""
    if context.invoked_subcommand is not None:
        return
    from fsd_core.models.model_pairs import MODEL_PAIRS
    from fsd_core.models.pair_check import badge_of
    from fsd_core.worker.device_memory import device_memory

    repository = _repository()
    memory, own = device_memory(repository), repository.own_pairs() if repository else []
    rows = [
        (pair.name, "", badge_of(pair.models, memory), "everyday", f"{pair.models}, by {pair.added_by}") for pair in own
    ]
    rows += [
        (name, pair.title, badge_of(name, memory), ", ".join(pair.tasks), pair.description)
        for name, pair in MODEL_PAIRS.items()
    ]
    output.print_table(("Name", "Title", "Where", "Tasks", "What it is"), rows, figures=False)


@pairs.command("add")
def add_pair(
    name: Annotated[str, typer.Argument(help="Its name, such as support-7b.")],
    target: Target,
    draft: Model = "",
    head: Model = "",
    adapter: Adapter = "",
    draft_adapter: Adapter = "",
    template_arguments: Template = "",
    dtype: Annotated[str, typer.Option(help=_DTYPE_HELP)] = "auto",
) -> None:
    """Name models of your own. They are checked first; nothing is loaded. `--pair NAME` then takes them."""
    from fsd_core.config.model_names import name_of_models
    from fsd_core.worker.pair_names import add_checked

    models = {"target": target, "draft": draft, "head": head, "adapter": adapter, "draft-adapter": draft_adapter}
    models |= {"dtype": dtype, "template": template_arguments}
    checked = add_checked(local_runs.open_repository(get_settings()), name, name_of_models(models), _WHO)
    _tell(checked)
    if checked.problems:
        raise UnfitModel(f"'{name}' cannot be used. {checked.problems[0]}")
    print(f"{name} is {checked.badge}. Measure with --pair {name}.")


@pairs.command("show")
def show_pair(name: Name) -> None:
    """Report what a pair is made of, where its models are, and whether this machine can hold them."""
    from fsd_core.models.model_pairs import get_pair
    from fsd_core.models.pair_check import check_pair
    from fsd_core.worker.device_memory import device_memory

    print(models := _recorded(name))
    _tell(checked := check_pair(get_pair(models), device_memory(_repository())))
    print(f"{name} {'' if checked.problems else 'is '}{checked.badge}.")


@pairs.command("fetch")
def fetch_pair(name: Name) -> None:
    """Fetch what is missing of a pair from the Hugging Face hub. Stop it with Ctrl-C; called again, it goes on."""
    from fsd_core.models import hub
    from fsd_core.models.local_models import missing_models
    from fsd_core.models.model_pairs import get_pair

    spec = get_pair(_recorded(name))
    if not missing_models(spec):
        print(f"Nothing of {name} is missing.")
        return
    with download_bar() as on_progress:
        hub.fetch_pair(spec, on_progress)
    print(f"{name} is here.")


@pairs.command("search")
def search(text: Annotated[str, typer.Argument(help="A part of a model's name, such as Qwen2.5.")]) -> None:
    """Search the Hugging Face hub for models with safetensors."""
    from fsd_core.models.hub_search import search_models

    rows = [
        (
            found.id, f"{found.parameters / 1e9:.2g} B" if found.parameters else "", f"{found.downloads:,}",
            "gated" if found.gated else "",
        )
        for found in search_models(text)
    ]  # fmt: skip
    if not rows:
        output.say(f"The hub has no text model with safetensors whose name contains {text[:60]!r}.")
    output.print_table(("Model", "Parameters", "Downloads", ""), rows)


@pairs.command("drafts")
def drafts(target: Annotated[str, typer.Argument(help="OWNER/NAME[@REVISION] of the hub, or a folder.")]) -> None:
    """List drafts for a target: smaller models of its family, whose tokenizers were compared with its own."""
    from fsd_core.models.draft_offers import offered_drafts
    from fsd_core.models.named_models import model_of
    from fsd_core.models.pair_check import size
    from fsd_core.worker.pair_names import known_models

    offers = offered_drafts(model_of("target", target), known_models(_repository()))
    output.say(offers.note or f"{offers.compared} models were compared with {target}.")
    rows = [(draft.model, size(draft.bytes_), "here" if draft.is_here else "to fetch") for draft in offers.drafts]
    output.print_table(("Draft", "Weights", "Where"), rows, figures=False)


@pairs.command("remove")
def remove_pair(name: Name) -> None:
    """Forget a name of yours. What was measured stays."""
    local_runs.open_repository(get_settings()).remove_pair(name)
    print(f"{name} is forgotten. Its runs stay.")


def _repository() -> Repository | None:
    """Return the database, or ``None`` if there is none yet."""
    settings = get_settings()
    return local_runs.open_repository(settings) if local_runs.has_database(settings) else None


def _recorded(name: str) -> str:
    return options.recorded_pair(name) or name


def _tell(checked: PairCheck) -> None:
    for sentence in (*checked.facts, *checked.notes, *checked.problems):
        output.say(sentence)
