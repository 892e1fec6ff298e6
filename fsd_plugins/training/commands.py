"""The commands ``train``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from fsd_core.cli import common, output
from fsd_core.settings import get_settings
from fsd_plugins.training.plans import ADAPTER_PLAN, AdapterPlan, DraftPlan, HeadPlan, LinearPlan, Parts, Plan

train = typer.Typer(help="Train the models that ship with the program.", **common.TYPER_OPTIONS)

Target = Annotated[
    str,
    typer.Option(help="The pair whose target it drafts for, or models:target= and the folder or id of a Llama."),
]
Device = Annotated[
    str, typer.Option(help="Where to train: cpu, cuda or cuda:N. A GPU reads each batch anew and stores only tokens.")
]


def _planned(plan: type[Plan], like: str, *order: str) -> Callable[[Callable], Callable]:
    """Replace the ``**given`` of a command by options of a plan, in this ``order`` among its own. ``None`` means that
    an option was not given, so that its value is that of the model ``like``."""

    def option(name: str) -> inspect.Parameter:
        told = plan.options()[name].metadata
        flag, help = f"--{name.replace('_', '-')}", told["help"].format(like=like)
        annotation = Annotated[int | None, common.number_option(flag, int, help, told["low"], told["high"])]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)

    def give(command: Callable) -> Callable:
        declared = inspect.signature(command, eval_str=True).parameters
        kinds = {name: one.replace(kind=one.KEYWORD_ONLY) for name, one in declared.items()}
        return common.declare(command, [kinds.get(name) or option(name) for name in order])

    return give


@train.command("bundled-pair")
def train_bundled_pair(
    out: Annotated[Path, typer.Option(help="Folder to write target/ and draft/ to.")] = Path("bundled-pair"),
    seed: common.Seed = 0,
) -> None:
    """Train the bundled pair from random weights. Prints its progress as lines of JSON."""
    from fsd_plugins.training.bundled_pair import main as train_pair

    train_pair(out, seed, lambda role, row: output.print_json({"role": role, **row}))


@train.command("draft")
@_planned(
    DraftPlan, "shipped draft", "target", "out", "steps", "texts", "existing", "problems", "start", "batch",
    "own_prompts", "device", "seed",
)  # fmt: skip
def train_draft(
    target: Target = "smollm2-135m",
    out: Annotated[Path, typer.Option(help="Folder of the texts, the checkpoint and the draft.")] = Path("draft"),
    start: Annotated[Path | None, typer.Option("--from", help="Folder of an earlier draft, to be trained on.")] = None,
    device: Device = "cpu",
    seed: common.Seed = 0,
    **given: int | None,
) -> None:
    """Train a small draft on texts that the target writes or reads, or continue. Needs questions in FSD_DATA_DIR, if
    the target does not write all prompts itself."""
    from fsd_plugins.training.draft import main as train_one
    from fsd_plugins.training.draft import plan_for

    plan = plan_for(target, device=device, **given)
    with _reporting(f"Draft for {target}") as report:
        output.print_json(train_one(target, out, get_settings().data_folder, plan, seed, report, start, device))


@train.command("eagle-head")
@_planned(
    HeadPlan, "shipped head", "target", "out", "generation", "test_steps", "steps", "texts", "start", "batch",
    "own_prompts", "device", "seed",
)  # fmt: skip
def train_eagle_head(
    target: Target = "smollm2-135m",
    out: Annotated[Path, typer.Option(help="Folder of the texts, the checkpoint and the head.")] = Path("eagle-head"),
    start: Annotated[Path | None, typer.Option("--from", help="Folder of an earlier head, to be trained on.")] = None,
    device: Device = "cpu",
    seed: common.Seed = 0,
    **given: int | None,
) -> None:
    """Train an EAGLE head on texts that the target writes, or continue. Needs questions in FSD_DATA_DIR, if the target
    does not write all prompts itself."""
    from fsd_plugins.training.eagle_head import main as train_one
    from fsd_plugins.training.eagle_head import plan_for

    plan = plan_for(target, device=device, **given)
    with _reporting(f"EAGLE head for {target}") as report:
        output.print_json(train_one(target, out, get_settings().data_folder, plan, seed, report, start, device))


@train.command("adapter")
@_planned(AdapterPlan, "shipped adapter", "target", "out", "steps", "seed")
def train_adapter(
    target: Annotated[str, typer.Option(help="The pair whose target it teaches.")] = "smollm2-135m",
    out: Annotated[Path, typer.Option(help="Folder of the checkpoint and the adapter.")] = Path("adapter"),
    seed: common.Seed = 0,
    **given: int | None,
) -> None:
    """Teach a target word problems by LoRA, or continue. Needs problems in FSD_DATA_DIR."""
    from fsd_plugins.training.draft import train_adapter as train_one

    plan = ADAPTER_PLAN.changed(**given)
    with _reporting(f"Adapter of {target}") as report:
        output.print_json(train_one(target, out, get_settings().data_folder, plan, seed, report))


@train.command("trigrams")
def train_trigrams(
    target: Annotated[str, typer.Option(help="The pair whose tokenizer and texts are taken.")] = "bundled",
    out: Annotated[Path, typer.Option(help="Folder of the table.")] = Path("trigrams"),
    texts: Annotated[int, common.number_option("--texts", int, "Training texts that are counted.", 1)] = 3_000,
    least: Annotated[int, common.number_option("--least", int, "Occurrences of a tri-gram that is kept.", 1)] = 1,
    seed: common.Seed = 0,
) -> None:
    """Count the tri-grams of training texts, for the drafter 'trigram'. Needs texts in FSD_DATA_DIR for all pairs but
    the bundled one."""
    from fsd_plugins.training.counting import count_trigrams as count_texts

    output.print_json(count_texts(target, out, get_settings().data_folder, texts, seed, least))


@train.command("linear-target")
@_planned(LinearPlan, "bundled target", "out", "parts", "steps", "seed")
def train_linear_target(
    out: Annotated[Path, typer.Option(help="Folder of the checkpoint and the model.")] = Path("linear-target"),
    parts: Annotated[
        Parts,
        typer.Option(
            help="What its attention learns: the own group, earlier groups too, or the convolution too; or softmax "
            "attention, to compare with."
        ),
    ] = "all",
    seed: common.Seed = 0,
    **given: int | None,
) -> None:
    """Train a target with grouped linear attention for the bundled pair's problems and draft, or continue."""
    from fsd_plugins.training.bundled_pair import train_linear_target as train_one

    with _reporting("Target with linear attention") as report:
        output.print_json(train_one(out, parts, seed=seed, report=report, **given))


@train.command("card")
def train_card(
    what: Annotated[Literal["draft", "adapter", "head"], typer.Argument(help="Model whose card is written.")] = "draft",
    limit: Annotated[
        int | None, common.number_option("--limit", int, "Prompts of each set. [default: as shipped]", 1)
    ] = None,
) -> None:
    """Measure a shipped model and write its card. Needs prompts in FSD_DATA_DIR."""
    from fsd_plugins.training import cards

    _use_threads()
    print(*cards.make(what, limit, output.print_json), sep="\n")


@train.command("calibration")
def train_calibration(
    pair: Annotated[str, typer.Option(help="bundled, or path:FOLDER.")] = "bundled",
    task: Annotated[str | None, typer.Option(help="One with answers. Without it, the one that suits the pair.")] = None,
    limit: Annotated[int, common.number_option("--limit", int, "Prompts that decide what is solved.", 1)] = 600,
    timed: Annotated[
        int, common.number_option("--timed", int, "Those written one by one, which decide the speed.", 1)
    ] = 100,
) -> None:
    """Measure where leniency is free for a pair. The result is stored with the models and shown first on the pair's
    pages."""
    from fsd_plugins.training import counting

    _use_threads()
    print(counting.sweep_thresholds(pair, task, limit, timed, report=output.print_json))


def _use_threads() -> None:
    """Set torch to the number of CPU threads that the settings name, if they name one."""
    if threads := get_settings().threads:
        import torch

        torch.set_num_threads(threads)


@contextmanager
def _reporting(name: str) -> Iterator[Callable[[dict], None]]:
    """Yield a function that writes training log rows as lines of JSON and as curves in MLflow."""
    from fsd_plugins.training.loop import curves

    with curves(get_settings().resolved_mlflow_uri, name, lambda warning: output.say(f"warning: {warning}")) as log:

        def report(row: dict) -> None:
            output.print_json(row)
            log(row)

        yield report


@train.command("held-out")
def write_held_out() -> None:
    """Write the held-out problems that ship with the program. They are always the same."""
    from fsd_core.tasks import word_problems as tasks
    from fsd_plugins.training import held_out

    print(f"{held_out.write_long(tasks.ARITHMETIC_PROBLEMS)} problems in {tasks.ARITHMETIC_PROBLEMS}")
    print(f"{held_out.write_short(tasks.SHORT_PROBLEMS)} problems in {tasks.SHORT_PROBLEMS}")


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(train, name="train")
