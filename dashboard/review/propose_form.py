"""The form that proposes a setting for a use, with the runs that are its evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import gradio as gr

from dashboard.review.reviewers_field import reviewers_field
from dashboard.review.use_form import UseForm
from dashboard.tables.calibration_html import calibration_verdict
from dashboard.tables.siblings import sibling_runs
from dashboard.ui.components import link, notice, show
from dashboard.ui.templates import joined, render
from dashboard.ui.view import Asked, Updates, Values, View
from fsd_core.config.baselines import USUAL_BASELINES
from fsd_core.errors import UnderReview, UnknownName
from fsd_core.models.model_pairs import pair_title
from fsd_core.review.pooling import fresh_rounds, grouped, is_calibration_round, on_fresh_prompts
from fsd_core.review.reviewers import possible_reviewers
from fsd_core.storage.review_events import LONGEST_TEXT

if TYPE_CHECKING:
    from fsd_core.review.review_service import ReviewService
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView

Measurement = tuple["RunView", ...]
"""a run, or the rounds of a calibration, pooled as one"""
_MOST = 60
"""newest runs of a setting that can be chosen"""


class ProposeForm:
    """The form's components as attributes."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        self.head = show()
        with gr.Column(visible=False) as self.first_use:
            show(render("review/proposal.html", "first_use"))
            self.use_form = UseForm()
        with gr.Row(elem_classes=["rev-forms"]):
            self.use = gr.Dropdown([], label="Use", info="What it is proposed for", min_width=220, visible=False)
            self.runs = gr.Dropdown(
                [], label="Evidence", info="Runs of the setting", multiselect=True, scale=2, min_width=280
            )
            self.baselines = gr.Dropdown(
                [], label="Baselines", info="On the same prompts", multiselect=True, scale=2, min_width=280
            )
        self.rationale = gr.Textbox(label="Rationale", lines=3, max_length=LONGEST_TEXT)
        self.reviewers = reviewers_field()
        self.send = gr.Button("Propose", variant="primary")
        self.answer = show()
        self._choices = [self.use, self.runs, self.baselines]
        self.forms = [*self._choices, self.rationale, self.reviewers, *self.use_form.typed]
        self.outputs = [self.head, self.first_use, *self._choices, self.reviewers]

    def listen(self, view: View) -> None:
        """Attach the event."""
        fields = [*self._choices, self.rationale, self.reviewers, *self.use_form.fields]
        view.button(self.send, "propose", fields, self.propose, self.answer)

    def redraw(self, asked: Asked, setting_id: str) -> Updates:
        """Return the form for one setting, if it differs, at first with evidence and baselines selected.

        For each task and seed this is the measurement of most prompts, with the first baseline of its experiment. With
        a calibration in the address, it is the calibration's rounds on fresh prompts, with those of the target, and the
        rationale begins with its verdict. Raises ``UnknownName`` for a calibration that did not try the setting on
        fresh prompts.
        """
        repository, calibration = self.service.repository, asked.address.get("calibration", "")
        setting, uses = repository.setting(setting_id), self.service.uses()
        measurements = _measurements(repository, setting_id, calibration)
        selected = (
            [runs for runs in measurements if runs[0].experiment_id == calibration]
            if calibration
            else _strongest(measurements)
        )
        if not selected and calibration:
            raise UnknownName(
                f"The experiment '{calibration[:32]}' tried this setting on no fresh prompts: propose what its verdict "
                "names, or begin at the setting's page."
            )
        baselines, selected_baselines = (
            [baseline for runs in group for baseline in _baselines(repository, runs)]
            for group in (measurements, selected)
        )
        if asked.opening and not asked[self.runs]:
            asked.fill(self.runs, [_value(runs) for runs in selected])
            asked.fill(self.baselines, _first_of_each(selected_baselines))
        if uses and not asked[self.use]:
            asked.fill(self.use, uses[0].id)
        if asked.opening and calibration and not asked[self.rationale]:
            asked.fill(self.rationale, calibration_verdict(repository, calibration))
        choices = [(use.name, use.id) for use in uses], _choices(measurements), _choices(baselines)
        people = possible_reviewers(repository, [asked.person.name])
        if not asked.differs("form", setting, choices, people):
            return {}
        head = render("review/proposal.html", "propose", setting, pair_title(setting.pair))
        dropdowns = zip(self._choices, choices, strict=True)
        return (
            {self.head: head, self.first_use: gr.Column(visible=not uses)}
            | {dropdown: gr.Dropdown(offered) for dropdown, offered in dropdowns}
            | {self.use: gr.Dropdown(choices[0], visible=bool(uses)), self.reviewers: gr.Dropdown(people)}
        )

    def propose(self, values: Values, asked: Asked) -> Updates:
        """Store the proposal, with the first use if there is none, and return a link to it."""
        runs, baselines = _ids(values[self.runs]), _ids(values[self.baselines])
        use, rationale = values[self.use] or "", values[self.rationale]
        if not use:
            use = self.use_form.make(self.service, values, asked, _second_key(values.key)).id
        try:
            reviewers = values[self.reviewers] or []
            id = self.service.propose(
                asked.person, use, runs, baselines, rationale, key=values.key, reviewers=reviewers
            )
        except UnderReview as error:
            return {self.answer: notice(render("review/proposal.html", "under_review", error.proposal), "bad")}
        return {self.answer: notice(joined(["Proposed. ", link(f"review?proposal={id}", "Open it")]))}


def _second_key(key: str) -> str:
    """Return the key of the use that an act makes beside its proposal."""
    return hashlib.blake2b(f"{key} use".encode(), digest_size=16).hexdigest()


def _measurements(repository: Repository, setting_id: str, calibration: str) -> list[Measurement]:
    """Return the newest measured runs of a setting.

    For calibrations among them, and for the named one, these are all rounds that can be evidence.
    """
    newest = repository.runs(setting_id=setting_id, limit=_MOST, archived=False)
    calibrations = dict.fromkeys(
        filter(None, [calibration, *(run.experiment_id for run in newest if is_calibration_round(run))])
    )
    rounds = [run for id in calibrations for run in fresh_rounds(repository, id, setting_id)]
    return grouped([*rounds, *(run for run in newest if run.metrics and not is_calibration_round(run))])


def _baselines(repository: Repository, runs: Measurement) -> list[Measurement]:
    """Return the baselines measured in the same experiment, task and seed, the target alone first."""
    siblings = [run for run in sibling_runs(repository, runs[0]) if run.setting_id != runs[0].setting_id]
    baselines = [run for run in siblings if run.decoding.acceptance.kind in USUAL_BASELINES]
    fresh = on_fresh_prompts(repository, baselines)
    return grouped(sorted(fresh, key=lambda run: (USUAL_BASELINES.index(run.decoding.acceptance.kind), run.position)))


def _strongest(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurement of most prompts for each task and seed.

    A smaller one on the same prompts would count as a second, weaker witness.
    """
    best: dict[tuple[str, int], Measurement] = {}
    for runs in measurements:
        key = runs[0].task, runs[0].seed
        best[key] = max(best.get(key, runs), runs, key=_prompts)
    return list(best.values())


def _prompts(runs: Measurement) -> int:
    return sum(run.prompts_done for run in runs)


def _value(runs: Measurement) -> str:
    return ",".join(run.id for run in runs)


def _ids(values: Iterable[str] | None) -> list[str]:
    return [id for value in values or () for id in value.split(",")]


def _choices(measurements: Iterable[Measurement]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((_name(runs), _value(runs)) for runs in measurements))


def _name(runs: Measurement) -> str:
    run, prompts = runs[0], _prompts(runs)
    if is_calibration_round(run):
        source = f"{run.experiment_name}, seed {run.seed} · {(run.experiment_id or '')[:6]}"
        return f"{run.label} · {run.task}, {prompts} fresh prompts of {source}"
    return f"{run.label} · {run.task}, {prompts} prompts, seed {run.seed} · {run.id[:6]}"


def _first_of_each(baselines: Iterable[Measurement]) -> list[str]:
    """Return one baseline for each task and seed, and for each calibration."""
    first: dict[tuple[object, ...], str] = {}
    for runs in baselines:
        run = runs[0]
        first.setdefault((run.task, run.seed, run.experiment_id if is_calibration_round(run) else None), _value(runs))
    return list(first.values())
