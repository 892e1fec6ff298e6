"""The form that proposes a setting for a use, with the runs that are its evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.tables.run_record import calibration_text, sibling_runs
from dashboard.ui.components import link, notice, show
from dashboard.ui.fields import optional_number, read
from dashboard.ui.templates import joined, render
from dashboard.ui.view import Asked, Part, Updates, Values, View
from fsd_core.calibration.summary import verdict
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.run_config import USUAL_BASELINES
from fsd_core.errors import UnderReview, UnknownName
from fsd_core.models.model_pairs import pair_title
from fsd_core.review.evidence import fresh_rounds, grouped, is_calibration_round, on_fresh_prompts
from fsd_core.review.history import possible_reviewers
from fsd_core.storage.review_events import LONGEST_TEXT, LONGEST_USE_TITLE, Requirements

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.review.review_service import ReviewService
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.review_events import UseDescribed


def reviewers_field() -> gr.Dropdown:
    """Return the field. Names that are not offered may be typed, since a proxy or a provider may name people."""
    return gr.Dropdown(
        [], label="Reviewers", info="Who is asked for a verdict", multiselect=True, allow_custom_value=True,
        min_width=280, scale=3,
    )  # fmt: skip


Measurement = tuple["RunView", ...]
"""a run, or the rounds of a calibration, pooled as one"""
Choices = list[tuple[str, str]]
"""labels and values of a field"""
_MOST = 60
"""newest runs of a setting that can be chosen"""


class EvidenceFields:
    """The two fields. A value is the ids of the runs of one measurement, with commas between them."""

    def __init__(self) -> None:
        self.runs = gr.Dropdown(
            [], label="Evidence", info="Runs of the setting", multiselect=True, scale=2, min_width=280
        )
        self.baselines = gr.Dropdown(
            [], label="Baselines", info="On the same prompts", multiselect=True, scale=2, min_width=280
        )
        self.both = [self.runs, self.baselines]

    def fill(self, asked: Asked, runs: Iterable[Measurement], baselines: Iterable[Measurement]) -> None:
        """Fill in both fields when the page opens, unless somebody has chosen."""
        if asked.opening and not asked[self.runs]:
            asked.fill(self.runs, [_value(measurement) for measurement in runs])
            asked.fill(self.baselines, [_value(measurement) for measurement in baselines])


def measurements_of(repository: Repository, setting_id: str, *calibrations: str) -> list[Measurement]:
    """Return the newest measured runs of a setting.

    For calibrations among them, and for the named ones, these are all rounds that can be evidence.
    """
    newest = repository.runs(setting_id=setting_id, limit=_MOST, archived=False)
    named = [*calibrations, *(run.experiment_id for run in newest if is_calibration_round(run))]
    ids = dict.fromkeys(id for id in named if id)
    rounds = [run for id in ids for run in fresh_rounds(repository, id, setting_id)]
    return grouped([*rounds, *(run for run in newest if run.metrics and not is_calibration_round(run))])


def baselines_of(repository: Repository, runs: Measurement) -> list[Measurement]:
    """Return the baselines measured in the same experiment, task and seed, the target alone first."""
    siblings = [run for run in sibling_runs(repository, runs[0]) if run.setting_id != runs[0].setting_id]
    baselines = [run for run in siblings if run.decoding.acceptance.kind in USUAL_BASELINES]
    fresh = on_fresh_prompts(repository, baselines)
    return grouped(sorted(fresh, key=lambda run: (USUAL_BASELINES.index(run.decoding.acceptance.kind), run.position)))


def strongest(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurement of most prompts for each task and seed.

    A smaller one on the same prompts would count as a second, weaker witness.
    """
    best: dict[tuple[str, int], Measurement] = {}
    for runs in measurements:
        key = runs[0].task, runs[0].seed
        best[key] = max(best.get(key, runs), runs, key=_prompts)
    return list(best.values())


def first_of_each(baselines: Iterable[Measurement]) -> list[Measurement]:
    """Return one baseline for each task and seed, and for each calibration."""
    first: dict[tuple[object, ...], Measurement] = {}
    for runs in baselines:
        run = runs[0]
        first.setdefault((run.task, run.seed, run.experiment_id if is_calibration_round(run) else None), runs)
    return list(first.values())


def choices_of(measurements: Iterable[Measurement]) -> Choices:
    """Return the choices of a field."""
    return list(dict.fromkeys((_name(runs), _value(runs)) for runs in measurements))


def selected_ids(values: Sequence[str] | None) -> list[str]:
    """Return the ids of the runs in the values of a field."""
    return [id for value in values or () for id in value.split(",")]


def _prompts(runs: Measurement) -> int:
    return sum(run.prompts_done for run in runs)


def _value(runs: Measurement) -> str:
    return ",".join(run.id for run in runs)


def _name(runs: Measurement) -> str:
    run, prompts = runs[0], _prompts(runs)
    if is_calibration_round(run):
        source = f"{run.experiment_name}, seed {run.seed} · {(run.experiment_id or '')[:6]}"
        return f"{run.label} · {run.task}, {prompts} fresh prompts of {source}"
    return f"{run.label} · {run.task}, {prompts} prompts, seed {run.seed} · {run.id[:6]}"


class UseForm:
    """The form's components as attributes. ``fields`` are all of them, ``typed`` those that are emptied by the act."""

    def __init__(self) -> None:
        with gr.Row(elem_classes=["rev-forms"]):
            self.name = gr.Textbox(label="Name", placeholder="Support chat", max_length=LONGEST_USE_TITLE)
            self.description = gr.Textbox(label="Description", max_length=LONGEST_TEXT, scale=2)
        with gr.Row(elem_classes=["rev-forms"]):
            self.margin = optional_number("Accuracy", "Points that may be lost; empty: any", "2")
            self.speed = optional_number("Speed", "Times as fast by time per answer, at least; empty: any")
            self.length = optional_number("Answers", "Times as long as the baseline's, at most; empty: any")
            self.cost = optional_number("Cost", "Per solved task, at most, at the price per hour; empty: any")
            self.approvals = gr.Number(1, label="Approvals", info="Of different people")
            self.days = optional_number("Good for", "Days; empty: for ever")
        self.typed = [self.name, self.description]
        self.fields = [*self.typed, self.margin, self.speed, self.length, self.cost, self.approvals, self.days]

    def read(self, values: Values) -> dict[str, Any]:
        """Return the values of the fields, by the names of ``UseDescribed`` and of its requirements."""
        return {
            "name": values[self.name] or "",
            "description": values[self.description] or "",
            "requirements": {
                "margin": read(values[self.margin], "Accuracy"),
                "least_speedup": read(values[self.speed], "Speed"),
                "longest_answers": read(values[self.length], "Answers"),
                "highest_cost": read(values[self.cost], "Cost"),
            },
            "approvals": values[self.approvals] or 0,
            "days": read(values[self.days], "Good for", int),
        }

    def texts(self, use: UseDescribed) -> dict[Any, Any]:
        """Return the value of each field for a use."""
        asked = use.requirements
        optional = {
            self.margin: asked.margin, self.speed: asked.least_speedup, self.length: asked.longest_answers,
            self.cost: asked.highest_cost, self.days: use.days,
        }  # fmt: skip
        texts = {field: "" if value is None else f"{value:.12g}" for field, value in optional.items()}
        return {self.name: use.name, self.description: use.description, self.approvals: use.approvals, **texts}

    def make(self, service: ReviewService, values: Values, asked: Asked, key: str) -> Use:
        """Make the use that the fields describe, and empty them. Raises as ``ReviewService.describe``."""
        told = self.read(values)
        requirements = Requirements.named(told.pop("requirements"))
        use = service.describe(asked.person, **told, requirements=requirements, key=key)
        asked.used(values, *self.typed)
        return use


class ProposeForm(Part):
    """The form's components as attributes."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        self.head = show()
        with gr.Column() as self.unsent:
            with gr.Column(visible=False) as self.first_use:
                show(render("review/proposal.html", "first_use"))
                self.use_form = UseForm()
            with gr.Row(elem_classes=["rev-forms"]):
                self.use = gr.Dropdown([], label="Use", info="What it is proposed for", min_width=220, visible=False)
                self.evidence = EvidenceFields()
            self.rationale = gr.Textbox(label="Rationale", lines=3, max_length=LONGEST_TEXT)
            self.reviewers = reviewers_field()
            self.send = gr.Button("Propose", variant="primary")
        self.answer = show()
        self._choices = [self.use, *self.evidence.both]
        self.forms = [*self._choices, self.rationale, self.reviewers, *self.use_form.typed, self.use_form.margin]
        self.outputs = [self.head, self.unsent, self.first_use, *self._choices, self.reviewers]

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
        measurements = measurements_of(repository, setting_id, calibration)
        selected = (
            [runs for runs in measurements if runs[0].experiment_id == calibration]
            if calibration
            else strongest(measurements)
        )
        if not selected and calibration:
            raise UnknownName(
                f"The experiment '{calibration[:32]}' tried this setting on no fresh prompts: propose what its verdict "
                "names, or begin at the setting's page."
            )
        baselines, selected_baselines = (
            [baseline for runs in group for baseline in baselines_of(repository, runs)]
            for group in (measurements, selected)
        )
        self.evidence.fill(asked, selected, first_of_each(selected_baselines))
        if uses and not asked[self.use]:
            asked.fill(self.use, uses[0].id)
        if asked.opening and calibration and not asked[self.rationale]:
            found = repository.experiment(calibration)
            asked.fill(self.rationale, calibration_text(repository, found, verdict))
            if isinstance(found.config, CalibrationConfig) and found.config.goal == "accuracy":
                asked.fill(self.use_form.margin, f"{found.config.margin:g}")
        choices = [(use.name, use.id) for use in uses], choices_of(measurements), choices_of(baselines)
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
        runs, baselines = (selected_ids(values[field]) for field in self.evidence.both)
        use, rationale = values[self.use] or "", values[self.rationale]
        if not use:
            use = self.use_form.make(self.service, values, asked, _second_key(values.key)).id
        try:
            reviewers = values[self.reviewers] or []
            id = self.service.propose(
                asked.person, use, runs, baselines, rationale, key=values.key, reviewers=reviewers
            )
        except UnderReview as error:
            former = self.service.review(error.proposal).proposal
            if former.is_by(asked.person.name) and set(former.runs) == set(runs) and not former.said:  # a second click
                return self._proposed(error.proposal)
            asked.unused.add(values.key)
            return {self.answer: notice(render("review/proposal.html", "under_review", error.proposal), "bad")}
        return self._proposed(id)

    def _proposed(self, id: str) -> Updates:
        """Return a link to the proposal in place of the form."""
        told = notice(joined(["Proposed. ", link(f"review?proposal={id}", "Open it")]))
        return {self.answer: told, self.unsent: gr.Column(visible=False)}


def _second_key(key: str) -> str:
    """Return the key of the use that an act makes beside its proposal."""
    return hashlib.blake2b(f"{key} use".encode(), digest_size=16).hexdigest()
