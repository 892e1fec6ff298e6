"""``python -m tests.tools.reference`` writes docs/reference.md: commands and options as the parser has them, variables
as the settings have them, columns as an export has them. A test compares the page with what this returns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from fsd_core.cli.commands import app
from fsd_core.config.options import OPTIONS
from fsd_core.metrics import METRICS
from fsd_core.settings import Settings
from tests.tools.documents import ROOT

PAGE = ROOT / "docs" / "reference.md"
SHARED_BY = 2
"""commands that have an option in the same words, from which on it is described once"""
COLUMNS = {
    "run": "id of the run", "name": "its label", "baseline": "whether the others are held against it",
    "status": "how far the run is", "experiment": "name of its experiment", "prompts_done": "prompts it has done",
    "reading_versions": "versions of the reading that scored its answers",
    "setting.…": "the setting, as its JSON names it", "task": "name of the task", "limit": "prompts it was to do",
    "seed": "seed of all randomness", "dtype": "number format of the models", "device": "device of the models",
    "batch": "batch size, or prompts asked at once", "task_version": "version of a task of one's own",
    "n": "prompts, failed ones included", "correct": "prompts solved", "wrong": "prompts with a wrong answer",
    "unread": "wrong ones in which no answer could be read",
    "published_correct": "prompts solved by the filter of the benchmark's published figures",
    "truncated": "prompts cut off before an answer", "failed": "prompts that ended with an error",
    "unscored": "prompts without a reference", "rounds": "rounds of all texts", "drafted": "drafted tokens scored",
    "accepted": "drafted tokens kept", "lenient_tokens": "tokens that only a lossy rule keeps",
    "fuzzy_tokens": "the same, under its older name", "draft_seconds": "seconds of drafting",
    "agreed_tokens": "median of tokens before a text first differs from the target's",
    "divergence_histogram": "empty where nothing was judged; lists are not in a CSV",
    "…_low, …_high": "the ends of the 95 % interval of the column before",
    "…_p90, …_p99": "these percentiles over the prompts",
    "…_versus_target": "the same against the target alone of the experiment, on shared prompts",
    "…_difference": "the run's less the baseline's, on shared prompts",
    "…_ratio": "the run's over the baseline's, on shared prompts",
    "speedup": "times as fast as the baseline, by time per answer",
    "mcnemar_p": "p of McNemar's exact test against the baseline",
    "mcnemar_p_holm": "the same, corrected over all runs of the file",
    "negative_log_likelihood_under": "the model under which it is: target or draft",
    "margin": "points that may be lost", "margin_share": "the same as a share", "verdict": "sentence of the test",
    "non_inferiority_p": "p of that test", "slower_because": "parts that make the run slower than the baseline",
    "break_even_acceptance_length": "tokens per pass at which it would be as fast",
    "runaways_at_most": "share of answers that may be runaways that these prompts did not show",
    "prompts_to_decide": "prompts in all that would decide the test",
    "speed_mixed": "conditions that differ within the run's times",
    "speed_ratio_mixed": "conditions that differ between its times and the baseline's",
    "measured_elsewhere": "origin of figures that another program measured", "figure …": "a figure of its own, by name",
}  # fmt: skip
"""what a column of a comparison's CSV holds, beside the metrics. The dots stand for any text."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command that can be run, with the words that call it."""
    below = getattr(command, "commands", {})
    if path and (not below or (command.callback and command.invoke_without_command)):
        yield path, command
    for name, child in below.items():
        yield from commands(child, (*path, name))


def _flags(option: Any) -> str:
    names = [name for name in (*option.opts, *option.secondary_opts) if name.startswith("--")]
    return ", ".join(f"`{name}`" for name in names)


def _options(command: Any) -> dict[str, str]:
    found = {_flags(option): _escaped(option.help or "") for option in command.params if _flags(option)}
    return {flags: help for flags, help in found.items() if not getattr(command, "hidden", False)}


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _arguments(command: Any) -> str:
    names = [param.metavar or param.name for param in command.params if not _flags(param)]
    return "".join(f" {name.upper().strip('[]')}" for name in names)


def _command_lines() -> list[str]:
    found = dict(commands(typer.main.get_command(app)))
    count: dict[tuple[str, str], int] = {}
    for command in found.values():
        for option in _options(command).items():
            count[option] = count.get(option, 0) + 1
    shared = {option for option, times in count.items() if times >= SHARED_BY}
    lines = []
    for path, command in found.items():
        lines += [f"### `{' '.join(path)}{_arguments(command)}`", "", _escaped(command.help or ""), ""]
        own = {option: help for option, help in _options(command).items() if (option, help) not in shared}
        if own:
            lines += ["| Option | Meaning |", "|---|---|", *(f"| {name} | {help} |" for name, help in own.items()), ""]
        if others := [name for name, help in _options(command).items() if (name, help) in shared]:
            lines += [f"And, [as everywhere](#options-of-several-commands): {', '.join(others)}.", ""]
    lines += ["## Options of several commands", "", "| Option | Meaning |", "|---|---|"]
    order = [f"`--{name.replace('_', '-')}`" for name in OPTIONS]
    ranked = sorted(shared, key=lambda option: (order.index(option[0]) if option[0] in order else len(order), option))
    return [*lines, *(f"| {name} | {help} |" for name, help in ranked), ""]


def _variable_lines() -> list[str]:
    rows = [
        f"| `FSD_{name.upper()}` | {_escaped(field.description or '')} |"
        for name, field in Settings.model_fields.items()
    ]
    return ["| Variable | Meaning |", "|---|---|", *rows, ""]


def column_meaning(column: str) -> str:
    """Return what a column holds. Raises ``KeyError`` for one that nothing explains."""
    if column in METRICS:
        metric = METRICS[column]
        return f"{metric.title}: {metric.explanation[0].lower()}{metric.explanation[1:]}"
    if column in COLUMNS:
        return COLUMNS[column]
    for pattern, meaning in COLUMNS.items():
        for part in pattern.split(", "):
            if "…" in part and re.fullmatch(re.escape(part).replace("…", ".+"), column):
                return meaning
    raise KeyError(column)


def _column_lines() -> list[str]:
    shown = {name: COLUMNS.get(name) or column_meaning(name) for name in (*COLUMNS, *METRICS)}
    rows = [f"| {', '.join(f'`{part}`' for part in name.split(', '))} | {meaning} |" for name, meaning in shown.items()]
    return ["| Column | Holds |", "|---|---|", *rows, ""]


def text() -> str:
    """Return the page."""
    home = str(Path.home())
    lines = [
        "# Reference", "",
        "`python -m tests.tools.reference` writes this page, and a test holds it to the program. [usage.md](usage.md)",
        "explains, and [terms.md](terms.md) defines the figures.", "",
        "## Commands", "", "`python -m fsd_core COMMAND`, or `fsd-lab COMMAND` where the package is installed.", "",
        *_command_lines(),
        "## Variables", "", *_variable_lines(),
        "## Columns of a comparison's CSV", "",
        "Shares are from 0 to 1, times in seconds, likelihoods in nats. [figures.md](figures.md) has the units.", "",
        *_column_lines(),
    ]  # fmt: skip
    return "\n".join(lines).replace(home, "~").rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
