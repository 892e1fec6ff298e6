"""The form that proposes a setting for a use, with the runs that are its evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.tables.company import company
from dashboard.ui.components import PRIVATE_EVENT, link, notice, show
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, joined, render
from fsd_core.config.baselines import USUAL_BASELINES
from fsd_core.errors import FsdError, UnknownName
from fsd_core.review.pooling import fresh_turns, grouped, is_turn, on_fresh_prompts
from fsd_core.storage.review_events import LONGEST_WORDS

if TYPE_CHECKING:
    from fsd_core.review.review_service import ReviewService
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView

Updates = dict[Any, Any]
Measurement = tuple["RunView", ...]
"""a run, or the turns of a calibration, pooled as one"""
_MOST = 60
"""newest runs of a setting that can be chosen"""


class ProposeForm:
    """The form's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, desk: ReviewService) -> None:
        self.desk = desk
        self.head = show()
        with gr.Row(elem_classes=["rev-forms"]):
            self.use = gr.Dropdown([], label="Use", info="What it is proposed for", min_width=220)
            self.runs = gr.Dropdown(
                [], label="Evidence", info="Runs of the setting", multiselect=True, scale=2, min_width=280
            )
            self.baselines = gr.Dropdown(
                [], label="Baselines", info="On the same prompts", multiselect=True, scale=2, min_width=280
            )
        self.rationale = gr.Textbox(label="Rationale", lines=3, max_length=LONGEST_WORDS)
        self.send = gr.Button("Propose", variant="primary")
        self.answer = show()
        self.setting = gr.State("")
        fields = [self.use, self.runs, self.baselines, self.rationale]
        self.send.click(self.propose, fields, self.answer, **PRIVATE_EVENT)

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`open` may change."""
        return [self.head, self.use, self.runs, self.baselines, self.setting]

    def open(self, setting_id: str, calibration: str = "") -> Updates:
        """Return the form for one setting, with evidence and baselines selected.

        For each task and seed this is the measurement of most prompts, with the first baseline of its experiment. With
        ``calibration``, an id, it is the calibration's turns on fresh prompts, with those of the target. Raises
        ``UnknownName`` for a calibration that did not try the setting on fresh prompts.
        """
        repository = self.desk.repository
        setting, uses = repository.setting(setting_id), self.desk.uses()
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
        return {
            self.head: render("review/proposal.html", "propose", setting, can_be_proposed=bool(uses)),
            self.use: gr.Dropdown([(use.name, use.id) for use in uses], value=uses[0].id if uses else None),
            self.runs: gr.Dropdown(_choices(measurements), value=[_value(runs) for runs in selected]),
            self.baselines: gr.Dropdown(_choices(baselines), value=_first_of_each(selected_baselines)),
            self.setting: setting_id,
        }

    def propose(
        self, use: str | None, runs: list[str], baselines: list[str], rationale: str, request: gr.Request
    ) -> Html:
        """Store the proposal and return a link to it."""
        try:
            person = person_of(request)
            id = self.desk.propose(person, use or "", _ids(runs), _ids(baselines), rationale or "")
        except FsdError as error:
            return notice(str(error), "bad")
        return notice(joined(["Proposed. ", link(f"/review?proposal={id}", "Open it")]))


def _measurements(repository: Repository, setting_id: str, calibration: str) -> list[Measurement]:
    """Return the newest measured runs of a setting.

    For calibrations among them, and for the named one, these are all turns that can be evidence.
    """
    newest = repository.runs(setting_id=setting_id, limit=_MOST, archived=False)
    calibrations = dict.fromkeys(filter(None, [calibration, *(run.experiment_id for run in newest if is_turn(run))]))
    turns = [run for id in calibrations for run in fresh_turns(repository, id, setting_id)]
    return grouped([*turns, *(run for run in newest if run.metrics and not is_turn(run))])


def _baselines(repository: Repository, runs: Measurement) -> list[Measurement]:
    """Return the baselines measured in the same experiment, task and seed, the target alone first."""
    siblings = [run for run in company(repository, runs[0]) if run.setting_id != runs[0].setting_id]
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
    if is_turn(run):
        source = f"{run.experiment_name}, seed {run.seed} · {(run.experiment_id or '')[:6]}"
        return f"{run.label} · {run.task}, {prompts} fresh prompts of {source}"
    return f"{run.label} · {run.task}, {prompts} prompts, seed {run.seed} · {run.id[:6]}"


def _first_of_each(baselines: Iterable[Measurement]) -> list[str]:
    """Return one baseline for each task and seed, and for each calibration."""
    first: dict[tuple[object, ...], str] = {}
    for runs in baselines:
        run = runs[0]
        first.setdefault((run.task, run.seed, run.experiment_id if is_turn(run) else None), _value(runs))
    return list(first.values())
