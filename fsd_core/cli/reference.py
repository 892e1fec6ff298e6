"""The reference: commands and options as the parser has them, variables as the settings have them, columns as an
export has them. ``python -m fsd_core docs`` prints it, and the application shows it at ``/reference``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer

from fsd_core.config.options import BY_KEY, OPTIONS
from fsd_core.metrics import METRICS
from fsd_core.settings import Settings

_COLUMNS = {
    "run": "Id of the run", "name": "Its label", "baseline": "Whether the others are held against it",
    "status": "How far the run is", "experiment": "Name of its experiment", "prompts_done": "Prompts it has done",
    "reading_versions": "Versions of the reading that scored its answers",
    "setting.…": "The setting, as its JSON names it", "task_version": "Version of a task of one's own",
    "n": "Prompts, failed ones included", "correct": "Prompts solved", "wrong": "Prompts with a wrong answer",
    "unread": "Wrong ones in which no answer could be read",
    "published_correct": "Prompts solved by the filter of the benchmark's published figures",
    "truncated": "Prompts cut off before an answer", "failed": "Prompts that ended with an error",
    "unscored": "Prompts without a reference", "rounds": "Rounds of all texts", "drafted": "Drafted tokens scored",
    "accepted": "Drafted tokens kept", "lenient_tokens": "Tokens that only a lossy rule keeps",
    "fuzzy_tokens": "The same, under its older name", "draft_seconds": "Seconds of drafting",
    "agreed_tokens": "Median of tokens before a text first differs from the target's",
    "divergence_histogram": "Empty where nothing was judged; lists are not in a CSV",
    "…_low, …_high": "The ends of the 95 % interval of the column before",
    "…_p90, …_p99": "These percentiles over the prompts",
    "…_versus_target": "The same against the target alone of the experiment, on shared prompts",
    "…_difference": "The run's less the baseline's, on shared prompts",
    "…_ratio": "The run's over the baseline's, on shared prompts",
    "speedup": "Times as fast as the baseline, by time per answer",
    "mcnemar_p": "p of McNemar's exact test against the baseline",
    "mcnemar_p_holm": "The same, corrected over all runs of the file",
    "negative_log_likelihood_under": "The model under which it is: target or draft",
    "margin": "Points that may be lost", "margin_share": "The same as a share", "verdict": "Sentence of the test",
    "non_inferiority_p": "p of that test", "slower_because": "Parts that make the run slower than the baseline",
    "break_even_acceptance_length": "Tokens per pass at which it would be as fast",
    "runaways_at_most": "Share of answers that may be overlong and that these prompts did not show",
    "prompts_to_decide": "Prompts in all that would decide the test",
    "speed_mixed": "Conditions that differ within the run's times",
    "speed_ratio_mixed": "Conditions that differ between its times and the baseline's",
    "measured_elsewhere": "Origin of figures that another program measured", "figure …": "A figure of its own, by name",
    "warnings": "What the comparison warns of, the same in each row",
}  # fmt: skip
"""what a column of a comparison's CSV holds, beside options and metrics. The dots stand for any text."""


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
    return {_flags(option): _escaped(option.help or "") for option in command.params if _flags(option)}


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _arguments(command: Any) -> str:
    names = [param.metavar or param.name for param in command.params if not _flags(param)]
    return "".join(f" {name.upper().strip('[]')}" for name in names)


def _command_lines(app: typer.Typer) -> list[str]:
    found = dict(commands(typer.main.get_command(app)))
    uses = Counter(option for command in found.values() for option in _options(command).items())
    shared = {option: help for (option, help), times in reversed(uses.most_common()) if times > 1}
    lines = []
    for path, command in found.items():
        lines += [f"### `{' '.join(path)}{_arguments(command)}`", "", _escaped(command.help or ""), ""]
        own = {option: help for option, help in _options(command).items() if shared.get(option) != help}
        if own:
            lines += ["| Option | Meaning |", "|---|---|", *(f"| {name} | {help} |" for name, help in own.items()), ""]
        if others := [name for name, help in _options(command).items() if shared.get(name) == help]:
            lines += [f"And, [as everywhere](#options-of-several-commands): {', '.join(others)}.", ""]
    lines += ["## Options of several commands", "", "| Option | Meaning |", "|---|---|"]
    order = {f"`--{name.replace('_', '-')}`": place for place, name in enumerate(OPTIONS)}
    ranked = sorted(shared.items(), key=lambda option: (order.get(option[0], len(order)), option))
    return [*lines, *(f"| {name} | {help} |" for name, help in ranked), ""]


def _variable_lines() -> list[str]:
    rows = [
        f"| `FSD_{name.upper()}` | {_escaped(field.description or '')} |"
        for name, field in Settings.model_fields.items()
    ]
    return ["| Variable | Meaning |", "|---|---|", *rows, ""]


def _column_lines() -> list[str]:
    options = {key: option.help for key, option in BY_KEY.items() if "." not in key}
    metrics = {key: f"{metric.title}: {metric.explanation}" for key, metric in METRICS.items()}
    shown = (_COLUMNS | options | metrics).items()
    rows = [f"| {', '.join(f'`{part}`' for part in name.split(', '))} | {meaning} |" for name, meaning in shown]
    return ["| Column | Holds |", "|---|---|", *rows, ""]


def text(app: typer.Typer) -> str:
    """Return the reference of a command line, as Markdown."""
    lines = [
        "# Reference", "",
        "[Commands](#commands), [options of several commands](#options-of-several-commands), [variables](#variables),",
        "[columns of a CSV](#columns-of-a-comparison-as-csv). `docs/usage.md` shows their use.",
        "", "## Commands", "",
        "`python -m fsd_core COMMAND`, or `fsd-lab COMMAND` where the package is installed.", "",
        *_command_lines(app),
        "## Variables", "", *_variable_lines(),
        "## Columns of a comparison as CSV", "",
        "Shares are from 0 to 1, times in seconds, likelihoods in nats. `docs/terms.md` defines the figures.", "",
        *_column_lines(),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"
