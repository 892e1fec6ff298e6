"""Runs, experiments and calibrations as plain data and as small tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dashboard.ui.components import Column, button, notice, table
from dashboard.ui.page import TradeOffPoint, trade_off
from dashboard.ui.templates import Html, joined, moment, render
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.summary import (
    FINALIST_COLUMNS,
    finalist_row,
    goal_text,
    headline,
    latest_status,
    so_far,
    verdict,
    whole_minutes,
)
from fsd_core.config import VERIFIERS
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.options import OPTIONS, effective_settings
from fsd_core.engines.kinds import measured_on
from fsd_core.errors import FsdError
from fsd_core.plots.acceptance import OPTIMA
from fsd_core.storage.records import same_weights
from fsd_core.texts import count, written
from fsd_core.theory import MOST_DRAFTS

if TYPE_CHECKING:
    from fsd_core.calibration.findings import SettingResult
    from fsd_core.storage.records import ExperimentView, RunView
    from fsd_core.storage.repository import Repository


def weights_html(weights: Mapping[str, str]) -> Html:
    """Return the fingerprint of each model's weights, and where it came from."""
    models = [(role, *fingerprint_origin.partition(" ")[::2]) for role, fingerprint_origin in weights.items()]
    return render("tables/measured.html", "weights", models)


Rows = Mapping[int, Mapping[str, Any]]
BOUNDS_PRIORITY = 5
"""priority of a bounds job: after the playground, before experiments"""
_FILE = "tables/measured.html"


def of_run(run: RunView) -> list[dict[str, Any]]:
    """Return the measured bounds of a run, one for each temperature."""
    return sorted((run.metrics or {}).get("bounds", []), key=lambda bounds: bounds["temperature"])


def rates(bounds: Mapping[str, Any]) -> tuple[dict[str, list[float]], dict[str, tuple[str, str, Mapping[int, float]]]]:
    """Return optima and verifiers as ``plots.acceptance_by_drafts.draw`` takes them."""
    optima = {sampling: [row["rate"] for row in bounds["optima"][sampling]] for sampling in OPTIMA}
    verifiers: dict[str, tuple[str, str, Mapping[int, float]]] = {
        kind: (VERIFIERS[kind].title, VERIFIERS[kind].sampling, {row["drafts"]: row["rate"] for row in rows})
        for kind, rows in _installed(bounds).items()
    }
    return optima, verifiers


def by_sampling(bounds: Mapping[str, Any]) -> Iterator[tuple[str, Rows, list[tuple[str, Rows]]]]:
    """Yield for each sampling of drafts the optimum's title and rows, and the titles and rows of its verifiers.

    Rows are by the number of drafts.
    """
    for sampling, (title, _) in OPTIMA.items():
        verifiers = [
            (VERIFIERS[kind].title, _rows(rows))
            for kind, rows in _installed(bounds).items()
            if VERIFIERS[kind].sampling == sampling
        ]
        yield title, _rows(bounds["optima"][sampling]), verifiers


def _installed(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds of installed verifiers. Only these declare how their drafts are sampled."""
    return {kind: rows for kind, rows in bounds["verifiers"].items() if kind in VERIFIERS}


def _rows(rows: Sequence[Mapping[str, Any]]) -> Rows:
    return {row["drafts"]: row for row in rows}


def gaps_html(bounds: Mapping[str, Any]) -> Html:
    """Return the acceptance of each optimum and verifier in percent, and each verifier's gap to its optimum in
    points."""
    columns = [Column("Percent accepted, by drafts"), *(Column(str(n), "num") for n in range(1, MOST_DRAFTS + 1))]
    rows = []
    for title, best, verifiers in by_sampling(bounds):
        rows.append([render(_FILE, "optimum", title, ""), *map(_best, best.values())])
        rows += [
            [name, *(_cell(by_drafts.get(n), row["rate"]) for n, row in best.items())] for name, by_drafts in verifiers
        ]
    return table(columns, rows, "Acceptance by the number of drafts")


def _best(row: Mapping[str, Any]) -> Html:
    ends = (None, None) if row["low"] is None else (100 * row["low"], 100 * row["high"])
    formatted = written(100 * row["rate"], *ends, points=True, digits=1)
    return render(_FILE, "optimum", formatted.value, f"{formatted.low} to {formatted.high}" if formatted.low else "")


def _cell(row: Mapping[str, Any] | None, best: float) -> Html:
    if row is None:
        return Html()
    gap = 100 * (best - row["rate"])
    return render(_FILE, "figure", f"{100 * row['rate']:.1f}", f"−{gap:.1f}" if gap >= 0.05 else "")


def sibling_runs(repository: Repository, run: RunView, acceptance: str | None = None) -> list[RunView]:
    """Return the measured runs with the same experiment, pair, weights, task and seed, and the rule if it is named."""
    if run.experiment_id is None:
        return []
    runs = repository.runs(experiment_id=run.experiment_id, task=run.task, acceptance=acceptance, limit=None)
    return alike(run, (candidate for candidate in runs if candidate.metrics))


def alike(run: RunView, candidates: Iterable[RunView]) -> list[RunView]:
    """Return the ``candidates`` with the same pair, weights, task and seed."""
    same = run.pair, run.task, run.seed
    matches = [candidate for candidate in candidates if (candidate.pair, candidate.task, candidate.seed) == same]
    return [candidate for candidate in matches if same_weights(candidate.weights, run.weights)]


def on_same_prompts(run: RunView, candidates: Iterable[RunView]) -> list[RunView]:
    """Return the ``candidates`` on the same prompts of the task, such as rounds of a calibration at one time."""
    prompt_range = run.config.first, run.config.limit
    return [candidate for candidate in candidates if (candidate.config.first, candidate.config.limit) == prompt_range]


def machine(run: RunView) -> str:
    """Return the machine that measured the run, such as ``AMD EPYC, cpu``, or an empty string if it is unknown.

    Of a running engine it is the engine, where it is, and the load.
    """
    if engine := measured_on(run):
        return engine
    provenance = run.provenance or {}
    return ", ".join(str(provenance[key]) for key in ("gpu", "cpu", "device") if provenance.get(key))


def lines_link(task: str, label: str) -> Html:
    """Return a link to the lines of a version, which ``dashboard/experiments/custom_tasks_panel.py`` serves.

    It is empty for a built-in task.
    """
    return render("tables/measured.html", "lines", task, label) if "@" in task else Html()


def version_facts(repository: Repository, task: str) -> dict[str, str]:
    """Return the facts of a custom task's version, or nothing for a built-in task."""
    name, separator, version = task.partition("@")
    if not separator:
        return {}
    views = repository.task_versions(name)
    view = next((candidate for candidate in views if candidate.version == version), None)
    if view is None:
        return {"Version of the task": f"{version}, whose lines are not here: they were not imported with the run"}
    newer = "" if view == views[0] else f"; the latest is {views[0].version}"
    return {
        "Title of the task": view.title or name,
        "Version of the task": f"{version}{newer}",
        "Scorer": view.scorer,
        "Prompts of the task": f"{view.prompts:,}",
        "Task added": f"{view.added_by}, {moment(view.added_at)}",
    }


OPTION_TITLES = {option.key: option.title for option in OPTIONS.values()}
NOT_SET = "–"


class SettingsTable(NamedTuple):
    """``rows`` has one list per run, one text per column. ``hidden`` counts columns that are equal throughout."""

    columns: list[str]
    rows: list[list[str]]
    hidden: int


def settings_table(runs: Sequence[RunView], differences_only: bool) -> SettingsTable:
    """Return every setting of the runs, or only those in which they differ."""
    flat = [effective_settings(run.config) for run in runs]
    keys = [key for key in OPTION_TITLES if any(key in values for values in flat)]
    keys += sorted({key for values in flat for key in values} - set(keys))
    if differences_only and len(runs) > 1:
        columns = [key for key in keys if len({value_text(values.get(key)) for values in flat}) > 1]
    else:
        columns = keys
    rows = [[value_text(values.get(key)) for key in columns] for values in flat]
    return SettingsTable([OPTION_TITLES.get(key, key) for key in columns], rows, len(keys) - len(columns))


def value_text(value: Any) -> str:
    """Return a setting's value as text."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


_COLUMNS = tuple(Column(title, "num" if index else "wide") for index, title in enumerate(FINALIST_COLUMNS))


def calibration_html(repository: Repository, e: ExperimentView) -> Html | None:
    """Return the progress or the result of a calibration, or ``None`` for another experiment."""
    config = e.config
    if not isinstance(config, CalibrationConfig):
        return None
    spent = spent_text(e.decoding_seconds / 60, config.all_minutes)
    try:
        outcome = latest_status(repository, e)
    except FsdError as error:
        return notice(str(error), "bad")
    if not isinstance(outcome, Outcome):
        tried = f"The target and {count(outcome.tried - 1, 'setting')}"
        activity = f"{tried} on prompts {outcome.start + 1} to {outcome.end}"
        if outcome.lengths_open:
            activity = f"Replay chooses the draft lengths from {outcome.end} prompts that are recorded"
        goal = f"Wanted: {goal_text(config)}. {activity}; {spent}."
        return render("tables/calibration.html", "under_way", goal, so_far(config, outcome))
    setting = config.setting_of(outcome.chosen.decoding).id
    links = [(f"settings?setting={setting}", "The setting, to take along")] if outcome.chosen.sure else []
    if outcome.chosen.sure and outcome.chosen.prompts:
        label = "exact SD" if outcome.chosen.decoding.acceptance.is_exact else "this setting"
        links.insert(0, (f"review?propose={setting}&calibration={e.id}", f"Propose {label}"))
    further = []
    if outcome.more and not e.under_way:
        further = [button("go-on", "experiment", e.id, f"Continue for {whole_minutes(outcome.more.minutes)} min")]
    if len(outcome.timed) > 2 and not e.under_way:
        further.append(button("time-again", "experiment", e.id, "Time the finalists again"))
    rows = [_row(finalist) for finalist in outcome.finalists]
    return render(
        "tables/calibration.html",
        "found",
        headline(config, outcome),
        calibration_picture(config, outcome),
        verdict(config, outcome),
        links=links,
        further=joined(further),
        finalists=table(_COLUMNS, rows, "Finalists of the calibration") if rows else "",
        foretold=_predicted_link(e),
        spent=spent,
    )


def spent_text(minutes: float, given: float) -> str:
    """Return how much of the time of a calibration is spent. It bounds what is begun, and what was begun is ended."""
    if minutes <= given:
        return f"{minutes:.1f} of {given:g} min of decoding"
    return f"all of {given:g} min of decoding, and {minutes - given:.1f} more to end what had begun"


def calibration_text(
    repository: Repository, e: ExperimentView, told: Callable[[CalibrationConfig, Outcome], str]
) -> str:
    """Return what is told of a calibration that has ended: its verdict or its headline. Empty until then, for other
    experiments, and where its card says why."""
    found = calibration_outcome(repository, e)
    return told(*found) if found else ""


def calibration_outcome(repository: Repository, e: ExperimentView) -> tuple[CalibrationConfig, Outcome] | None:
    """Return a calibration and its outcome. ``None`` until it has ended, for other experiments, and where its card says
    why."""
    if not isinstance(e.config, CalibrationConfig):
        return None
    try:
        outcome = latest_status(repository, e)
    except FsdError:
        return None
    return (e.config, outcome) if isinstance(outcome, Outcome) else None


def calibration_picture(config: CalibrationConfig, outcome: Outcome) -> Html:
    """Return accuracy against speed of the finalists, exact SD and what is chosen; nothing where nothing is scored."""
    results = {result.decoding: result for result in (*outcome.finalists, outcome.chosen)}
    points = [point for result in results.values() if (point := _point(result, result is outcome.chosen))]
    if not any(point.is_exact for point in points):
        points.append(TradeOffPoint("SD", 1.0, 0.0, is_exact=True))
    margin = config.margin if config.goal == "accuracy" else None
    return trade_off(points, margin, f"Accuracy against speed. {headline(config, outcome)}") if results else Html()


def _point(result: SettingResult, is_chosen: bool) -> TradeOffPoint | None:
    """Return a finalist's place on the picture; ``None`` if its speed or its accuracy was not measured."""
    if result.over_exact is None or result.difference is None:
        return None
    ends, least, is_exact = result.over_exact_interval, result.at_least, result.decoding.acceptance.is_exact
    return TradeOffPoint(
        result.decoding.label, result.over_exact, 100 * result.difference,
        ends.low if ends else None, ends.high if ends else None,
        None if least is None or is_exact else 100 * least, is_chosen, is_exact,
    )  # fmt: skip


def _predicted_link(e: ExperimentView) -> str:
    """Return the address that compares the runs predicted by replay with the target alone, or an empty string."""
    predicted = [run.id for run in e.runs if run.predicted]
    if not predicted:
        return ""
    return f"compare?runs={','.join([e.runs[0].id, *predicted])}&baseline={e.runs[0].id}#predicted"


def _row(result: SettingResult) -> tuple[str, ...]:
    row = finalist_row(result)
    return (
        render("tables/measured.html", "figure", row.label, row.certainty),
        row.prompts,
        row.difference,
        row.at_least,
        row.accepted,
        render("tables/calibration.html", "over_exact", row.over_exact, row.interval),
    )
