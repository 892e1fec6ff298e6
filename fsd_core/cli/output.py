"""What commands print, and the runs that their arguments name.

Find runs and experiments by an id prefix (for ``resume`` and ``rescore``) or by their content (for ``run`` and
``sweep``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
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
from rich.table import Table

from fsd_core import system
from fsd_core.config import RunConfig, SweepConfig, content_hash
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.engines.kinds import engine_sentences, latency_sentence
from fsd_core.errors import InvalidSetting, NotGiven, UnknownName, WrongState
from fsd_core.metrics import MIXED_MARK, Metric, listed_metrics, mixed_sentence
from fsd_core.storage.messages import StreamFigures
from fsd_core.storage.records import origin_text
from fsd_core.texts import DASH, count
from fsd_core.worker.pair_names import identified

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.decoding.decoder import GeneratedText, PairDecoder
    from fsd_core.storage.records import ExperimentView, RunView
    from fsd_core.storage.repository import Repository


def say(line: str) -> None:
    """Write one line to standard error."""
    print(" ".join(line.split()), file=sys.stderr)


def confirm(question: str, yes: bool) -> None:
    """Ask on the terminal, unless ``yes`` is set. Raises ``InvalidSetting`` if the answer is no or standard input is no
    terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotGiven(f"There is no terminal to ask on: call it again with --yes. The question was: {question}")
    if not typer.confirm(question):
        raise InvalidSetting("Nothing was deleted.")


def deletion_text(repository: Repository, kind: str, id: str) -> str:
    """Describe what deleting a run or an experiment removes."""
    removed = repository.deletion(**{f"{kind}_id": id})
    counts = [f"{removed.runs:,} run{'' if removed.runs == 1 else 's'}"] if kind == "experiment" else []
    counts.append(f"{removed.prompts:,} prompt{'' if removed.prompts == 1 else 's'}")
    return f"{kind} {id} ({removed.name}) with {', '.join(counts)} and their traces, here and in MLflow"


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, allow_nan=False, default=datetime.isoformat), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, figures: bool = True) -> None:
    """Print a table of plain text, never markup. With ``figures`` all columns but the first hold figures."""
    # Piped output has no width of its own; 80 columns would fold the cells.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, emoji=False, width=160)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if figures and i else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_runs(runs: Sequence[RunView]) -> None:
    """Print one line per run: costs and gains, with 95 % intervals."""
    columns = ("Setting", *(metric.listed for metric in listed_metrics()))
    rows = []
    for run in runs:
        figures, mark = run.metrics or {}, MIXED_MARK * bool(run.speed_mixed)
        rows.append(
            (
                run.label if run.status == "finished" else f"{run.label} ({run.status})",
                *(_figure(figures, metric, mark * metric.timed) for metric in listed_metrics()),
            )
        )
    print_table(columns, rows)
    for run in runs:
        if run.metrics and run.speed_mixed:
            print(f"{MIXED_MARK} {run.label}: {mixed_sentence(run.speed_mixed)}")
        if run.measured_elsewhere:
            print(f"{run.label}: nothing here has verified these figures ({origin_text(run)}).")
        if told := engine_sentences(run):
            print(" ".join((f"{run.label}:", *told, latency_sentence(run))).strip())
    from fsd_core.analysis.comparability import read_differently

    if told := read_differently(runs):
        print(told)


def print_bench(report: dict[str, Any]) -> None:
    """Print one line per contender: speed, and the median ratio to transformers' loops with its 95 % interval."""

    def ratio(row: dict[str, Any], name: str) -> str:
        form = "{median:.2f}" if row[name]["low"] is None else "{median:.2f} [{low:.2f}, {high:.2f}]"
        return form.format(**row[name])

    rows = [
        (
            row["title"],
            f"{row['tokens_per_second']:.1f}",
            ratio(row, "versus_generate"),
            ratio(row, "versus_assisted"),
            str(row["tokens"]),
            f"{row['identical']}/{report['prompts']}",
        )
        for row in report["contenders"]
    ]
    print_table(("Contender", "Tokens/s", "× generate", "× assisted", "Tokens", "Same text"), rows)


def print_rounds(report: dict[str, Any]) -> None:
    """Print forwards and rounds in milliseconds, with the least time that reading their weights takes."""
    gamma, draft, target = report["draft_length"], report["draft_bytes"], report["target_bytes"]
    bytes_read = {"target_alone_ms": target, "draft_step_ms": draft, "verification_ms": target}
    bytes_read |= {"autoregressive_round_ms": target, "speculative_round_ms": target + gamma * draft}
    titles = ("Target, 1 token", "Draft, 1 token", f"Target, {gamma + 1} tokens", "Round, target alone", "Round, SD")
    rows = []
    for (name, size), title in zip(bytes_read.items(), titles, strict=True):
        floor = size / report["bandwidth_gb_s"] / 1e6
        rows.append((title, f"{report[name]:.2f}", f"{size / 1e6:.1f}", f"{floor:.2f}", f"{floor / report[name]:.0%}"))
    print_table(("What", "ms", "MB read", "Floor, ms", "Of floor"), rows)
    print(
        f"Memory reads {report['bandwidth_gb_s']:.1f} GB/s on {report['device']}, {report['dtype']}; an SD round takes "
        f"{report['round_over_its_parts']:.2f} times its forwards alone."
    )


def _figure(figures: dict[str, Any], metric: Metric, mark: str) -> str:
    """Format a metric as on the pages, such as ``100 % [97, 100]`` or ``≈ 85.2 %``."""
    value, low, high = (figures.get(metric.key + end) for end in ("", "_low", "_high"))
    if value is None:
        return DASH
    scaled = (None if x is None else x * metric.scale for x in (value, low, high))
    figure = metric.written(*scaled, digits=metric.digits)  # pyright: ignore[reportArgumentType]
    return figure._replace(value=figure.value + " %" * metric.is_share + mark).with_ends(" [{}, {}]")


def _decoding_json(decoding: DecodingConfig) -> dict[str, Any]:
    """Return the config as JSON values. An infinite threshold is the string ``Infinity``."""
    return json.loads(decoding.model_dump_json())


def run_json(run: RunView) -> dict[str, Any]:
    """Return a run with its settings and all figures as one flat dict, as printed by ``--json``."""
    decoding, figures = _decoding_json(run.decoding), run.metrics or {}
    return {
        "run_id": run.id,
        "mlflow_run_id": run.mlflow_run_id,
        "experiment_id": run.experiment_id,
        "status": run.status,
        "error": run.error,
        "pair": run.pair,
        "setting_id": run.setting_id,
        "label": run.label,
        "acceptance": run.decoding.acceptance.kind,
        "divergence": run.decoding.divergence,
        "threshold": decoding["acceptance"].get("threshold"),
        "decoding": decoding,
        "task": run.task,
        "task_version": run.task.partition("@")[2] or None,
        "limit": run.config.limit,
        "seed": run.seed,
        "device": run.config.device,
        "dtype": run.config.dtype,
        **figures,
        "accuracy_interval": [figures.get("accuracy_low"), figures.get("accuracy_high")],
        "provenance": run.provenance,
        "speed_mixed": list(run.speed_mixed),
        "reading_versions": list(run.reading_versions),
        "sittings": [
            {"started_at": session.started_at and session.started_at.isoformat(), **session.conditions}
            for session in run.measurement_sessions
        ],
    }


def tell_run(run: RunView, as_json: bool) -> None:
    if as_json:
        print_json(run_json(run))
    else:
        print_runs([run])
        print(f"Run {run.id}")


def tell_experiment(id: str, runs: Sequence[RunView], as_json: bool) -> None:
    """Print an experiment. ``runs`` is empty if the worker does them."""
    if as_json:
        print_json({"experiment_id": id, "runs": [run_json(run) for run in runs]})
        return
    if runs:
        print_runs(runs)
    print(f"Experiment {id}" + ("" if runs else " is queued for the worker. The Experiments page shows its progress."))


def tell_resumed(id: str, is_experiment: bool, as_json: bool) -> None:
    """Print that the worker will continue a run or an experiment."""
    what = "experiment" if is_experiment else "run"
    if as_json:
        print_json({f"{what}_id": id, "status": "queued"})
    else:
        print(f"The {what} {id} is queued for the worker again.")


def tell_worker(repository: Repository) -> None:
    """Warn on standard error if no worker is running for the queued work."""
    if not ((state := repository.worker()) and state.alive):
        say("No worker is running: start the application, or `python -m fsd_core worker`.")


def tell_rescored(changed: Mapping[str, int], as_json: bool) -> None:
    """Print the number of changed verdicts by run."""
    if as_json:
        print_json({"changed": dict(changed)})
        return
    for id, verdicts in changed.items():
        print(f"Run {id}: {verdicts} verdicts changed")


def tell_bounds(bounds: Mapping[str, Mapping[str, Any]], as_json: bool) -> None:
    """Print ``bounds``, the results of ``evaluation.bounds.measure`` by run."""
    if as_json:
        print_json({"bounds": dict(bounds)})
        return
    for id, result in bounds.items():
        print(f"Run {id}: {result['positions']} positions at temperature {result['temperature']:g}, percent accepted")
        for rows in (result["optima"], result["verifiers"]):
            for name, row in rows.items():
                points = "  ".join(f"{point['drafts']}: {100 * point['rate']:.1f}" for point in row)
                print(f"  {name.replace('_', ' '):24} {points}")


def generation_json(text: str, generation: GeneratedText, decoder: PairDecoder, seed: int) -> dict[str, Any]:
    """Return one text with its figures and settings, as printed by ``generate --json``."""
    figures, pair = StreamFigures.of_text(generation.records, generation.seconds), decoder.pair
    return {
        "text": text,
        "tokens": figures.tokens,
        "stop_reason": generation.stop_reason,
        "seconds": generation.seconds,
        "time_to_first_token": generation.time_to_first_token,
        "tokens_per_second": figures.tokens_per_second,
        "acceptance_rate": figures.acceptance_rate,
        "mean_acceptance_length": figures.mean_acceptance_length,
        "pair": pair.spec.name,
        "label": decoder.config.label,
        "decoding": _decoding_json(decoder.config),
        "seed": seed,
        "device": pair.device,
        "dtype": pair.dtype,
    }


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


_MAX_EXPERIMENTS = 50
"""how many of the newest experiments are searched"""


@dataclass(frozen=True)
class StoredWork:
    """A run, or an experiment with all its runs."""

    id: str
    title: str
    runs: tuple[RunView, ...]
    is_experiment: bool
    owned_by_worker: bool
    """whether a job of the worker owns it"""

    @property
    def lock(self) -> tuple[str, str]:
        """Kind and id of the lock to hold. The lock of an experiment covers its runs."""
        experiment_id = self.runs[0].experiment_id
        return ("run", self.id) if experiment_id is None else ("experiment", experiment_id)


def find_work(repository: Repository, id_prefix: str) -> StoredWork:
    """Return the run or experiment whose id starts with ``id_prefix``. Raises ``UnknownName`` if none does, and
    ``InvalidSetting`` if several do."""
    runs = repository.runs(id_prefix=id_prefix, limit=None)
    matches = [run for run in runs if run.id.startswith(id_prefix)]
    experiments = {run.experiment_id for run in runs if (run.experiment_id or "").startswith(id_prefix)} - {None}
    if len(matches) + len(experiments) > 1:
        raise InvalidSetting(f"Several ids begin with '{id_prefix}': expected more characters of the one meant.")
    if matches:
        return _stored_run(repository, matches[0])
    for id in filter(None, experiments):
        return _stored_experiment(repository.experiment(id))
    raise UnknownName(
        f"There is no run and no experiment '{id_prefix}': expected an id that `runs` lists, or that the pages show."
    )


def check_resumable(work: StoredWork) -> None:
    """Raise ``InvalidSetting`` if nothing remains to be done, or if the worker owns the work."""
    what = "experiment" if work.is_experiment else "run"
    if not any(run.has_more_to_do for run in work.runs):
        raise WrongState(
            f"The {what} {work.id} is finished, and none of its prompts failed: start a new one with the same settings."
        )
    if work.owned_by_worker and any(not run.ended for run in work.runs):
        raise WrongState(
            f"The {' '.join(work.lock)} belongs to the worker, which continues it by itself: start the application, "
            "or `python -m fsd_core worker`."
        )


def find_unfinished(repository: Repository, home: Path, config: RunConfig | SweepConfig) -> StoredWork | None:
    """Return the newest unfinished work of the command line with the content of ``config`` and no live process. Work
    that was already begun comes before work still queued."""
    hashes = {content_hash(config), content_hash(identified(repository, config, ""))}
    unfinished = [
        run
        for status in ("running", "stopped", "queued")
        for run in repository.runs(status=status, task=config.task, limit=None)  # newest first
    ]
    if isinstance(config, RunConfig):
        single_runs = (run for run in unfinished if run.experiment_id is None)
        works = (_stored_run(repository, run) for run in single_runs if content_hash(run.config) in hashes)
    else:
        ids = dict.fromkeys(run.experiment_id for run in unfinished if run.experiment_id is not None)
        experiments = (repository.experiment(id) for id in ids)
        works = (_stored_experiment(e) for e in experiments if content_hash(e.config) in hashes)
    works = (work for work in works if not work.owned_by_worker)
    return next((work for work in works if system.holder(home / "runs" / f"{work.id}.lock") is None), None)


def find_unfinished_calibration(repository: Repository, home: Path, config: CalibrationConfig) -> str | None:
    """Return the newest calibration with the content of ``config`` that a killed command left unfinished, or that ran
    out of minutes when ``config`` grants more. Its budget is then raised to the minutes of ``config``."""
    for view in repository.experiments(limit=_MAX_EXPERIMENTS):
        if view.job_id is not None or not isinstance(view.config, CalibrationConfig) or not view.config.asks_as(config):
            continue
        free, more = system.holder(home / "runs" / f"{view.id}.lock") is None, config.minutes - view.config.all_minutes
        if free and more >= 0 and _unfinished(repository, view, view.config, more):
            if more:
                repository.grant_minutes(view.id, more, enqueue=False)
            return view.id
    return None


def _unfinished(repository: Repository, view: ExperimentView, config: CalibrationConfig, more: float) -> bool:
    """Whether a calibration has anything left to do with ``more`` extra minutes."""
    from fsd_core.calibration.planning import Outcome
    from fsd_core.calibration.summary import calibration_status

    status = calibration_status(repository, config, view.runs)
    return not isinstance(status, Outcome) or (more > 0 and status.reason == "minutes")


def _stored_run(repository: Repository, run: RunView) -> StoredWork:
    job = repository.find_job(run.experiment_id or run.id)
    return StoredWork(run.id, run.label, (run,), is_experiment=False, owned_by_worker=job is not None)


def _stored_experiment(experiment: ExperimentView) -> StoredWork:
    has_job = experiment.job_id is not None
    return StoredWork(experiment.id, experiment.name, experiment.runs, is_experiment=True, owned_by_worker=has_job)
