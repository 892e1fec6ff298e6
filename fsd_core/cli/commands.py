"""The command line: ``python -m fsd_core``.

Commands import what they need when they run, so help and ``pairs`` answer without waiting for torch.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any

import typer

from fsd_core.actions import endpoints as engine_actions
from fsd_core.actions import pairs as pair_actions
from fsd_core.actions.action import actions_in
from fsd_core.cli import (
    catalogue_commands,
    common,
    measuring_commands,
    output,
    reference,
    result_commands,
    team_commands,
)
from fsd_core.cli.action_commands import add_commands
from fsd_core.cli.catalogue_commands import endpoints
from fsd_core.cli.catalogue_commands import pairs as model_pairs
from fsd_core.cli.catalogue_commands import task as own_tasks
from fsd_core.cli.team_commands import reviews, tokens, users
from fsd_core.cli.upkeep_commands import database
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.errors import FsdError
from fsd_core.plugins import parts
from fsd_core.settings import get_settings
from fsd_core.system import no_garbage_collection, signals_as_interrupt

app = typer.Typer(help="Choose how far a language model may be sped up, and see what it costs.", **common.TYPER_OPTIONS)
app.add_typer(database, name="db")
app.add_typer(users, name="users")
app.add_typer(tokens, name="tokens")
app.add_typer(own_tasks, name="task")
app.add_typer(model_pairs, name="pairs")
app.add_typer(endpoints, name="endpoints")
app.add_typer(reviews, name="review")
for module in (pair_actions, engine_actions):
    add_commands(app, actions_in(module))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with 0 when done, 2 after a refusal or failure (one sentence on standard error), 130 when
    interrupted, 143 after SIGTERM, or 129 after SIGHUP."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # of a terminal that lacks a character, such as one in ASCII
    with signals_as_interrupt(), among_others() as leads:
        try:
            if leads:
                application()(arguments)
        except FsdError as error:
            output.say(f"error: {error}")
            sys.exit(2)
        except OSError as error:
            if error.filename is None:  # no file is at fault
                raise
            output.say(f"error: {str(error.filename)!r} cannot be used ({error.strerror}): choose another place.")
            sys.exit(2)


@contextmanager
def among_others() -> Iterator[bool]:
    """Under torchrun, meet the other processes for the block, or follow the first one. Yield whether to do the work."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield True
        return
    from fsd_core.models import language_model

    if os.environ.get("RANK") != "0":
        language_model.follow()
        yield False
        return
    language_model.begin()
    try:
        yield True
    finally:
        language_model.end()


@app.command()
@common.taking(("pair", *METHOD_OPTIONS, "seed", "dtype", "device"))
def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    json: common.Json = False,
    **option_values: Any,
) -> None:
    """Write the continuation of one prompt."""
    settings, text = get_settings(), common.read_prompt(prompt)
    config = common.config_of(option_values, settings)
    decoding = config.setting.decoding
    loaded = common.load_for([config], settings.threads)

    from fsd_core.decoding.decoder import PairDecoder
    from fsd_core.evaluation.harness import written

    decoder = PairDecoder(loaded, decoding)
    generation = decoder.generate(decoder.prompt_ids(text), config.seed)
    continuation = written(loaded, generation.tokens)
    if json:
        output.print_json(output.generation_json(continuation, generation, decoder, config.seed))
    else:
        print(continuation)


for command in (
    measuring_commands.run, measuring_commands.sweep,
    measuring_commands.resume, measuring_commands.delete, measuring_commands.rescore, measuring_commands.bounds,
    catalogue_commands.tasks, catalogue_commands.fetch, measuring_commands.bench,
):  # fmt: skip
    app.command()(command)
app.command("calibrate")(measuring_commands.calibrate)
app.command("record")(result_commands.record)
app.command("replay")(result_commands.replay)
app.command("annotate")(team_commands.annotate)
app.command("runs")(catalogue_commands.list_runs)


@cache
def application() -> typer.Typer:
    """Return the command line with the commands of the features in use (:mod:`fsd_core.plugins`)."""
    for add_to in parts("commands"):
        add_to(app)
    for module in parts("actions"):
        add_commands(app, actions_in(module))
    return app


@app.command()
def docs() -> None:
    """Print every command, option and variable, and the columns of a comparison's CSV, as Markdown."""
    print(reference.text(application()), end="")


@app.command()
def worker(
    on: Annotated[
        str, typer.Option("--on", metavar="NAME", help="Work beside other workers on one PostgreSQL, under this name.")
    ] = "",
) -> None:
    """Run queued experiments and playground requests until stopped.

    A home has one worker. With --on, any number of machines share the runs of each experiment.
    """
    settings = get_settings()
    with no_garbage_collection():
        from fsd_core.worker.worker import Worker

    scheduler = None
    if settings.executor == "ray" and not on:
        from fsd_core.worker.worker import ray_scheduler

        scheduler = ray_scheduler(settings)
    Worker(settings, name=on, scheduler=scheduler).run()
