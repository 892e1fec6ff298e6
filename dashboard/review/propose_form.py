"""The form that proposes a setting for a use, with the runs that are its evidence."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import gradio as gr

from dashboard.review.evidence_fields import (
    EvidenceFields,
    baselines_of,
    choices_of,
    first_of_each,
    ids_in,
    measurements_of,
    strongest,
)
from dashboard.review.reviewers_field import reviewers_field
from dashboard.review.use_form import UseForm
from dashboard.tables.calibration_html import calibration_text
from dashboard.ui.components import link, notice, show
from dashboard.ui.question import Asked, Updates, Values
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.view import View
from fsd_core.calibration.summary import verdict
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import UnderReview, UnknownName
from fsd_core.models.model_pairs import pair_title
from fsd_core.review.reviewers import possible_reviewers
from fsd_core.storage.review_events import LONGEST_TEXT

if TYPE_CHECKING:
    from fsd_core.review.review_service import ReviewService


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
            self.evidence = EvidenceFields()
        self.rationale = gr.Textbox(label="Rationale", lines=3, max_length=LONGEST_TEXT)
        self.reviewers = reviewers_field()
        self.send = gr.Button("Propose", variant="primary")
        self.answer = show()
        self._choices = [self.use, *self.evidence.both]
        self.forms = [*self._choices, self.rationale, self.reviewers, *self.use_form.typed, self.use_form.margin]
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
        runs, baselines = (ids_in(values[field]) for field in self.evidence.both)
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
                return {self.answer: _proposed(error.proposal)}
            asked.unused.add(values.key)
            return {self.answer: notice(render("review/proposal.html", "under_review", error.proposal), "bad")}
        return {self.answer: _proposed(id)}


def _proposed(id: str) -> Html:
    return notice(joined(["Proposed. ", link(f"review?proposal={id}", "Open it")]))


def _second_key(key: str) -> str:
    """Return the key of the use that an act makes beside its proposal."""
    return hashlib.blake2b(f"{key} use".encode(), digest_size=16).hexdigest()
