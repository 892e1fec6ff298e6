"""Settings as HTML: the list of measured settings, and one setting with its runs and its review history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dashboard.tables.review_log import events_html
from dashboard.tables.siblings import machine
from dashboard.tables.weights_html import weights_html
from dashboard.ui.components import (
    Column,
    empty_state,
    facts,
    link,
    mixed_mark,
    notice,
    pill,
    rough,
    section,
    table,
    with_interval,
)
from dashboard.ui.metric_text import figure
from dashboard.ui.quantities import DASH, ago, interval, quantity
from dashboard.ui.templates import Html, joined, render
from fsd_core.analysis.cells import accuracy_difference, ratio_mixed, speedup
from fsd_core.analysis.reading_versions import read_differently
from fsd_core.conditions import differences
from fsd_core.errors import NoEquivalent
from fsd_core.formatting import count
from fsd_core.metrics import METRICS
from fsd_core.models.model_pairs import pair_title
from fsd_core.review.pooling import is_calibration_round

if TYPE_CHECKING:
    from dashboard.settings.measurements import MeasuredBaselines
    from fsd_core.review.history import Use
    from fsd_core.review.pooling import Pool
    from fsd_core.storage.records import LoggedEvent, RunView, SettingSummary, SettingView

_COMPARED = 20
"""newest runs of a setting that its link to Compare takes"""

_LIST = (
    Column("Setting", "wide"), Column("Pair"), Column("Tasks", "wide"), Column("Runs", "num"), Column("Approved for"),
    Column("Measured"),
)  # fmt: skip
_RUNS = (
    Column("Task"), Column("Prompts", "num"), Column("Seed", "num"), Column("Accuracy", "num"),
    Column("Time per answer", "num"), Column("× target", "num"), Column("× fastest SD", "num"),
    Column("Machine", "wide"), Column("Status"), Column("Created"),
)  # fmt: skip


def settings_html(
    settings: Sequence[SettingSummary], approved: Mapping[str, Sequence[Use]], filtered: bool, left_out: bool
) -> Html:
    """Return a page of settings.

    ``approved`` has the uses that approved a setting, by its id. ``left_out`` says whether calibrations measured others
    while they chose.
    """
    if not settings and filtered:
        return empty_state("No setting matches", "Search for another pair, rule or task.", ("settings", "Show all"))
    if not settings and left_out:
        return empty_state(
            "No setting was measured beyond a choice",
            "Calibrations measured some while they chose. Tick “Dropped by calibrations” to see them.",
        )
    if not settings:
        return empty_state(
            "No setting was measured yet",
            "A setting is a pair and a way to decode: drafter, shape, rule and threshold, sampling.",
            ("experiments", "Start an experiment"),
        )
    rows = [
        (
            render("settings/setting.html", "listed", setting),
            pair_title(setting.pair),
            ", ".join(setting.tasks),
            f"{setting.runs:,}",
            render("settings/setting.html", "uses", approved.get(setting.id, ())),
            ago(setting.last),
        )
        for setting in settings
    ]
    return table(_LIST, rows, "Settings")


def header_html(setting: SettingView, runs: Sequence[RunView], uses: Sequence[Use]) -> Html:
    """Return the setting's name and address, its approvals, and what can be done with it."""
    aliases = [(alias, use) for use in uses for alias in ("approved", "candidate") if use.named(alias) == setting.id]
    measured = [run for run in runs if run.metrics]
    links = _runs_links(measured)
    if measured and not setting.config.decoding.acceptance.logged:
        links.append(link(f"review?propose={setting.id}", "Propose it for a use"))
    return render("settings/setting.html", "header", setting, pair_title(setting.pair), links, aliases)


def _runs_links(measured: Sequence[RunView]) -> list[Html]:
    """Return links to a comparison of its runs of its own and to its newest calibration."""
    calibrations = dict.fromkeys(run.experiment_id for run in measured if is_calibration_round(run))
    links = []
    if runs := [run.id for run in measured if not is_calibration_round(run)]:
        text = "Compare its runs" if len(runs) <= _COMPARED else f"Compare its newest {_COMPARED} runs"
        links.append(link(f"compare?runs={','.join(runs[:_COMPARED])}", text))
    for id in [*calibrations][:1]:
        links.append(
            link(f"runs?experiment={id}", "Its newest calibration" if calibrations.keys() - {id} else "Its calibration")
        )
    return links


def facts_html(values: Mapping[str, object]) -> Html:
    """Return every option of the setting."""
    return joined([section("What it is"), facts(values)])


def forms_html(forms: Mapping[str, str | NoEquivalent]) -> Html:
    """Return the setting in the formats of engines, folded. ``forms`` maps format names to texts, or to why there is
    none."""
    titles = {"python": "Python, transformers", "json": "JSON", "yaml": "YAML", "vllm": "vLLM", "sglang": "SGLang"}
    titled = [(titles.get(name, name), str(text), isinstance(text, NoEquivalent)) for name, text in forms.items()]
    return render("settings/setting.html", "forms", titled)


def apart_html(groups: int) -> Html:
    """Return why the runs are in several tables, if they are."""
    if groups < 2:
        return Html()
    return notice(
        f"The models of this pair have changed: its runs measured {groups} sets of weights. They are apart below, for "
        "the figures of one say nothing of another. An approval is of one of them.",
        "warn",
    )


def runs_html(measurements: Sequence[MeasuredBaselines], weights: Mapping[str, str]) -> Html:
    """Return the runs that measured the setting with the same weights, with the baselines of its experiment."""
    runs = [run for measurement in measurements for run in measurement.measured.runs]
    measured = [run.conditions for run in runs if run.metrics]
    differing = differences(measured) if len(measured) > 1 else ()
    return render(
        "settings/setting.html",
        "runs",
        title=f"Measured in {count(len(runs), 'run')}",
        weights=weights_html(weights) if weights or measured else "",
        differing=", ".join(difference.name for difference in differing),
        readings=read_differently([p.run for m in measurements for p in (m.measured, m.target, m.speculative) if p]),
        of_rounds=any(measurement.measured.calibration for measurement in measurements),
        table=table(_RUNS, [_row(measurement) for measurement in measurements], "Runs of the setting"),
    )


def _row(measurement: MeasuredBaselines) -> tuple[str, ...]:
    run = measurement.measured.run
    m = run.metrics or {}
    time = m.get("seconds_per_answer"), m.get("seconds_per_answer_low"), m.get("seconds_per_answer_high")
    return (
        render("settings/setting.html", "task", measurement.measured),
        f"{run.prompts_done:,}/{run.prompts_total:,}",
        str(run.seed),
        with_interval(
            figure(m, "accuracy"),
            interval(m.get("accuracy_low"), m.get("accuracy_high"), METRICS["accuracy"].scale),
            _against(measurement),
        ),
        with_interval(
            rough(quantity(*time, "s"), time[0] is not None and time[1] is None),
            interval(*time[1:]),
            mixed_mark(run.speed_mixed),
        ),
        _ratio(measurement.measured, measurement.target),
        _ratio(measurement.measured, measurement.speculative),
        machine(run) or DASH,
        pill(next((run.status for run in measurement.measured.runs if run.status != "finished"), "finished")),
        ago(run.created_at),
    )


def _against(measurement: MeasuredBaselines) -> Html | str:
    """Return what the bets of a calibration show of a setting's accuracy; empty for other runs and for its target."""
    measured, target = measurement.measured, measurement.target
    if measured.calibration is None or target is None or measured.run.setting_id == target.run.setting_id:
        return ""
    prompts = {measured.run.id: measured.prompts, target.run.id: target.prompts}
    paired = accuracy_difference(measured.run, target.run, prompts)
    return render("settings/setting.html", "against", paired.text) if paired else ""


def _ratio(measured: Pool, baseline: Pool | None) -> str:
    if baseline is None or measured.run.id == baseline.run.id or not measured.run.metrics or not baseline.run.metrics:
        return DASH
    prompts = {measured.run.id: measured.prompts, baseline.run.id: baseline.prompts}
    if (ratio := speedup(measured.run, baseline.run, prompts)) is None:
        return DASH
    mark = mixed_mark(ratio_mixed(measured.run, baseline.run))
    return with_interval(rough(quantity(*ratio, unit="×"), ratio.low is None), interval(ratio.low, ratio.high), mark)


def history_html(events: Sequence[tuple[Use, LoggedEvent]], setting_id: str) -> Html:
    """Return the decisions about the setting, newest first. ``setting_id`` is empty if it cannot be proposed
    yet."""
    nobody = empty_state(
        "Nobody proposed this setting yet",
        "Propose it for a use, and reviewers see its evidence.",
        (f"review?propose={setting_id}", "Propose it") if setting_id else None,
    )
    return joined([section("What was decided"), events_html(events) if events else nobody])
