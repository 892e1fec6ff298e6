"""Bars of what is under way, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from fsd_core.cli.output import say
from fsd_core.formatting import count


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error if that is a terminal. Yields a function that sets the number done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def rounds_bar() -> Iterator[tuple[Callable[[int, int, int], None], Callable[[], None]]]:
    """Show a bar for consecutive rounds of a calibration. Yields two functions: one begins a round with a number of
    settings on the prompts from ``start`` to before ``end``, the other advances the bar. Without a terminal each round
    is a line on standard error."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Beginning", total=None)

        def begin(settings: int, start: int, end: int) -> None:
            what = f"{count(settings, 'setting')} on prompts {start + 1} to {end}"
            if not console.is_terminal:
                say(f"{what}.")
            progress.reset(task, total=settings * (end - start), description=what)

        yield begin, lambda: progress.advance(task)


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar once something is fetched. Yields a function of the name, the bytes so far and the bytes in all."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def on_progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                if not console.is_terminal:
                    say(f"Fetching {what}, {total / 1e6:,.0f} MB." if total else f"{what}.")
                tasks[what] = progress.add_task(f"Fetching {what}" if total else what, total=total or None)
            progress.update(tasks[what], completed=done)

        yield on_progress
