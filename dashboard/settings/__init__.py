"""Settings page: all measured settings. ``?setting=`` opens one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.tables.list_page import Listing, ListPage, orders_of, quiet
from dashboard.tables.logs import DECISIONS, Decision
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
from dashboard.ui.templates import Html, ago, interval, joined, quantity, render
from dashboard.ui.view import Asked, Updates, View, together
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
from fsd_core.texts import DASH, count

if TYPE_CHECKING:
    from fsd_core.config import SettingConfig
    from fsd_core.review.history import Use
    from fsd_core.settings import Settings
    from fsd_core.storage.records import Prompts, RunView, SettingSummary, SettingView
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

_LIST = {
    "setting": Column("Setting", "wide", "label"), "pair": Column("Pair", "", "pair"), "tasks": Column("Tasks", "wide"),
    "runs": Column("Runs", "num", "runs", "highest first"), "approved": Column("Approved for"),
    "measured": Column("Measured", "", "last", "newest first"),
}  # fmt: skip
_RUNS = (
    Column("Task"), Column("Prompts", "num"), Column("Seed", "num"), Column("Accuracy", "num"),
    Column("Time per answer", "num"), Column("× target", "num"), Column("× fastest SD", "num"),
    Column("Machine", "wide"), Column("Status"), Column("Created"),
)  # fmt: skip


class MeasuredSetting(NamedTuple):
    """A setting of the list, and the uses that approved it."""

    setting: SettingSummary
    uses: Sequence[Use] = ()


SETTINGS: Listing[MeasuredSetting] = Listing(
    "Settings", _LIST, partial(render, "settings/setting.html", "cell"), render("settings/setting.html", "empty"),
    orders_of(_LIST), "measured",
)  # fmt: skip


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


def history_html(events: Sequence[Decision], setting_id: str) -> Html:
    """Return the decisions about the setting, newest first. ``setting_id`` is empty if it cannot be proposed
    yet."""
    nobody = empty_state(
        "Nobody proposed this setting yet",
        "Propose it for a use, and reviewers see its evidence.",
        (f"review?propose={setting_id}", "Propose it") if setting_id else None,
    )
    return joined([section("What was decided"), DECISIONS.html(events) if events else nobody])


_LEAD = "A setting is a pair and a way to decode. It never changes, and its address is the hash of its content."


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    SettingsPage(repository)


class SettingList(ListPage):
    """All settings that were measured, or those that match."""

    unmatched = "Search for another pair, rule or task."

    def __init__(self, repository: Repository) -> None:
        self.repository, count = repository, repository.count_settings
        super().__init__("settings", "setting", SETTINGS, count, self.measured, "Rule, pair, task or id")

    def more_fields(self) -> dict[str, Any]:
        """Return the field beside the search, by its name in an address."""
        return {"dropped": quiet("Dropped by calibrations", 190)}

    def filters(self, search: str, **values: Any) -> dict[str, Any]:
        """Return what the repository filters by. A search also matches settings that calibrations dropped."""
        return {"search": search, "dropped": bool(values["dropped"] or search.strip())}

    def measured(self, **asked: Any) -> list[MeasuredSetting]:
        """Return a page of settings with the uses that approved them."""
        approved: dict[str | None, list[Use]] = {}
        for use in history.uses_of(self.repository.review_log()):
            approved.setdefault(use.named("approved"), []).append(use)
        return [MeasuredSetting(one, approved.get(one.id, ())) for one in self.repository.settings(**asked)]

    def none(self, filters: Mapping[str, Any]) -> Html:
        """Return what stands in place of no settings."""
        left_out = not filters["dropped"] and self.count()
        return render("settings/setting.html", "left_out") if left_out else super().none(filters)


class SettingsPage:
    """The list of settings, or the one that the address names."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.message = show()
        with gr.Column(visible=False) as self.list_part:
            show(heading("Settings", _LEAD))
            self.list = SettingList(repository)
        self.opened = show()
        view = View(self.message, self.fail)
        self.list.listen(view)
        view.listen(self.redraw, *together([self.list], outputs=[self.message, self.list_part, self.opened]))

    def redraw(self, asked: Asked) -> Updates:
        """Return the setting that the address names, or what differs of the list."""
        setting_id = asked.address.get("setting")
        if not setting_id:
            return self.list.redraw(asked) | ({self.list_part: gr.Column(visible=True)} if asked.opening else {})
        try:
            page = setting_page(self.repository, setting_id)
        except UnknownName as error:
            return {self.message: dead_end(str(error), "settings", "See all settings")}
        return {self.opened: page} if asked.differs("setting", page) else {}

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        if asked.opening:
            return {self.message: dead_end(str(error), "settings", "See all settings")}
        return {self.list.items: notice(str(error), "bad")}


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


def _events(uses: Sequence[Use], setting_id: str) -> list[Decision]:
    """Return the events about a setting: its proposals, their discussion, and aliases that named it."""
    events = []
    for use in uses:
        proposal_ids = {proposal.id for proposal in use.proposals.values() if proposal.setting == setting_id}
        for logged in use.log:
            named = {getattr(logged.event, "setting", None), getattr(logged.event, "former", None)}
            if logged.event.about in proposal_ids or setting_id in named:
                events.append(Decision(use, logged))
    return sorted(events, key=lambda decision: decision.logged.id, reverse=True)
