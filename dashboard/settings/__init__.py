"""Settings page: all measured settings. ``?setting=`` opens one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr

from dashboard.tables.logs import events_html
from dashboard.tables.run_record import OPTION_TITLES, alike, machine, value_text, weights_html
from dashboard.ui.components import (
    Column,
    dead_end,
    empty_state,
    facts,
    figure,
    heading,
    link,
    mixed_mark,
    notice,
    pill,
    rough,
    section,
    show,
    table,
    with_interval,
)
from dashboard.ui.fields import Pager
from dashboard.ui.templates import Html, ago, interval, joined, quantity, render
from dashboard.ui.view import Asked, Updates, View, digest
from fsd_core.analysis.cells import accuracy_difference, ratio_mixed, speedup
from fsd_core.analysis.comparability import read_differently
from fsd_core.config import RunConfig
from fsd_core.config.options import effective_settings
from fsd_core.config.run_config import USUAL_BASELINES
from fsd_core.errors import FsdError, NoEquivalent, UnknownName
from fsd_core.evaluation.aggregate import refreshed
from fsd_core.metrics import METRICS, differences
from fsd_core.models.model_pairs import pair_title
from fsd_core.review import history
from fsd_core.review.delivery import FORMS, deliver
from fsd_core.review.evidence import Pool, by_weights, is_calibration_round, pooled
from fsd_core.storage.runs import LONGEST_SEARCH
from fsd_core.texts import DASH, count

if TYPE_CHECKING:
    from fsd_core.config import SettingConfig
    from fsd_core.review.history import Use
    from fsd_core.settings import Settings
    from fsd_core.storage.records import LoggedEvent, Prompts, RunView, SettingSummary, SettingView
    from fsd_core.storage.repository import Repository


_MOST_RUNS = 100
"""newest runs on a setting's page; a calibration among them contributes every round"""


class MeasuredBaselines(NamedTuple):
    """A measurement and the baselines of its experiment: the target alone, and the fastest SD."""

    measured: Pool
    target: Pool | None
    speculative: Pool | None


def runs_of(repository: Repository, setting_id: str) -> list[RunView]:
    """Return the runs on a setting's page, newest first."""
    newest = repository.runs(setting_id=setting_id, limit=_MOST_RUNS)
    if len(newest) < _MOST_RUNS:
        return newest
    by_id = {run.id: run for run in newest}
    for id in dict.fromkeys(run.experiment_id for run in newest if is_calibration_round(run)):
        rounds = repository.runs(experiment_id=id, setting_id=setting_id, limit=None)
        by_id |= {run.id: run for run in rounds}
    return list(by_id.values())


def measurements(repository: Repository, runs: Sequence[RunView]) -> list[MeasuredBaselines]:
    """Return the measurements of a setting with the same weights. A calibration's rounds are one measurement."""
    baselines: dict[str, list[RunView]] = {}
    for id in dict.fromkeys(run.experiment_id for run in runs):
        if id is not None:
            baselines[id] = [run for kind in USUAL_BASELINES for run in _measured(repository, id, kind)]
    run_ids = {run.id for run in (*runs, *(run for group in baselines.values() for run in group)) if run.metrics}
    prompts = repository.prompts(run_ids)
    return [
        _with_baselines(repository, pool, baselines.get(pool.run.experiment_id or "", ()), prompts)
        for pool in _pools(repository, runs, prompts)
    ]


def _measured(repository: Repository, experiment: str, kind: str) -> list[RunView]:
    runs = repository.runs(experiment_id=experiment, acceptance=kind, order_by="position", descending=False, limit=None)
    return [run for run in runs if run.metrics]


def _pools(repository: Repository, runs: Iterable[RunView], prompts: Prompts) -> list[Pool]:
    """Return the measurements with their metrics recomputed. Those of several runs are recomputed already."""
    return [
        pool if len(pool.runs) > 1 else pool._replace(run=refreshed(pool.run, pool.prompts))
        for pool in pooled(repository, list(runs), prompts)
    ]


def _with_baselines(
    repository: Repository, measured: Pool, baselines: Sequence[RunView], prompts: Prompts
) -> MeasuredBaselines:
    same_load = [run for run in baselines if run.config.load == measured.run.config.load]
    pools = _pools(repository, alike(measured.run, same_load), prompts)
    target, exact = ([pool for pool in pools if pool.run.decoding.acceptance.kind == kind] for kind in USUAL_BASELINES)
    return MeasuredBaselines(
        measured,
        max(target, key=lambda baseline: _shared(measured, baseline), default=None),
        max(exact, key=lambda baseline: (_shared(measured, baseline), _speed(measured, baseline)), default=None),
    )


def _shared(measured: Pool, baseline: Pool) -> int:
    return len(measured.prompts.keys() & baseline.prompts.keys())


def _speed(measured: Pool, baseline: Pool) -> float:
    """Return how many times as fast the baseline is, on the prompts that both have done."""
    ratio = speedup(measured.run, baseline.run, {measured.run.id: measured.prompts, baseline.run.id: baseline.prompts})
    return 1 / ratio.value if ratio and ratio.value else -math.inf


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


SETTINGS_PER_PAGE = 50
_LEAD = "A setting is a pair and a way to decode. It never changes, and its address is the hash of its content."


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    SettingsPage(repository)


class SettingsPage:
    """The list of settings, or the one that the address names."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.message = show()
        with gr.Column(visible=False) as self.list_part:
            show(heading("Settings", _LEAD))
            with gr.Row(elem_classes=["run-filters"]):
                self.search = gr.Textbox(
                    label="Search", placeholder="Rule, pair, task or id", max_length=LONGEST_SEARCH
                )
                self.dropped = gr.Checkbox(
                    False, label="Dropped by calibrations", container=False, min_width=190, elem_classes=["fsd-quiet"]
                )
            self.settings = show(elem_id="settings")
            self.pager = Pager(SETTINGS_PER_PAGE, "setting")
        self.opened = show()
        view = View(self.message, self.fail)
        view.turns(self.pager.name, self.pager.steps)
        outputs = [self.message, self.list_part, self.settings, self.opened, *self.pager.parts]
        view.listen(self.redraw, [self.search, self.dropped], outputs)

    def redraw(self, asked: Asked) -> Updates:
        """Return the setting that the address names, or what differs of the list."""
        setting_id = asked.address.get("setting")
        if not setting_id:
            return self._list(asked) | ({self.list_part: gr.Column(visible=True)} if asked.opening else {})
        try:
            page = setting_page(self.repository, setting_id)
        except UnknownName as error:
            return {self.message: dead_end(str(error), "settings", "See all settings")}
        return {self.opened: page} if asked.differs("setting", page) else {}

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        if asked.opening:
            return {self.message: dead_end(str(error), "settings", "See all settings")}
        return {self.settings: notice(str(error), "bad")}

    def _list(self, asked: Asked) -> Updates:
        """Return a page of the list, if it differs. A search also matches settings that calibrations dropped."""
        search, dropped = asked[self.search] or "", bool(asked[self.dropped])
        with_dropped, of = dropped or bool(search.strip()), digest(search, dropped)
        total = self.repository.count_settings(search, dropped=with_dropped)
        page = self.pager.clamp(asked.page(self.pager.name, of), total)
        summaries = self.repository.settings(search, SETTINGS_PER_PAGE, page * SETTINGS_PER_PAGE, dropped=with_dropped)
        approved: dict[str, list[Use]] = {}
        for use in history.uses_of(self.repository.review_log()):
            if (setting := use.named("approved")) is not None:
                approved.setdefault(setting, []).append(use)
        left_out = not with_dropped and not total and self.repository.count_settings() > 0
        html = settings_html(summaries, approved, filtered=bool(search.strip()), left_out=left_out)
        if not asked.differs("list", of, page, total, html):
            return {}
        return {self.settings: html} | self.pager.updates(page, total, of)


def setting_page(repository: Repository, setting_id: str) -> Html:
    """Return the page of one setting. Raises ``UnknownName``."""
    setting = repository.setting(setting_id)
    runs = runs_of(repository, setting_id)
    uses = history.uses_of(repository.review_log())
    read = effective_settings(RunConfig(setting=setting.config))
    values = {
        OPTION_TITLES.get(key, key): value_text(value) for key, value in read.items() if key.startswith("setting.")
    }
    groups = by_weights(runs)
    parts = [header_html(setting, runs, uses), facts_html(values), apart_html(len(groups))]
    for weights, same_weights in groups:
        parts.append(forms_html({form: _delivered(setting.config, form, weights) for form in FORMS}))
        parts.append(runs_html(measurements(repository, same_weights), weights))
    proposed = setting_id if any(run.metrics and not run.measured_elsewhere for run in runs) else ""
    return joined([*parts, history_html(_events(uses, setting_id), proposed)])


def _delivered(setting: SettingConfig, form: str, weights: Mapping[str, str]) -> str | NoEquivalent:
    """Return the setting in a form, or why an engine cannot run it."""
    try:
        return deliver(setting, form, weights)
    except NoEquivalent as error:
        return error


def _events(uses: Sequence[Use], setting_id: str) -> list[tuple[Use, LoggedEvent]]:
    """Return the events about a setting: its proposals, their discussion, and aliases that named it."""
    events = []
    for use in uses:
        proposal_ids = {proposal.id for proposal in use.proposals.values() if proposal.setting == setting_id}
        for logged in use.log:
            named = {getattr(logged.event, "setting", None), getattr(logged.event, "former", None)}
            if logged.event.about in proposal_ids or setting_id in named:
                events.append((use, logged))
    return sorted(events, key=lambda pair: pair[1].id, reverse=True)
