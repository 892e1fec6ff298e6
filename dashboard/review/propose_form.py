"""A setting proposed for a use, with the runs that speak for it."""

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
"""a run, or the turns of a calibration that are read as one"""
_MOST = 60
"""runs of a setting, the newest, that can be chosen"""
"""the rules that a setting is held against; of each experiment the first that was measured is chosen"""


class ProposeForm:
    """The components as attributes; a method per event, which returns what it changes."""

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
        """What :meth:`open` may change."""
        return [self.head, self.use, self.runs, self.baselines, self.setting]

    def open(self, setting_id: str, calibration: str = "") -> Updates:
        """The form for one setting. All its measured runs are chosen, and the baselines of their experiments; of a
        calibration, by its id, its turns on fresh prompts and the target's.

        Raises ``UnknownName`` for a calibration that did not try the setting on fresh prompts.
        """
        repository = self.desk.repository
        setting, uses = repository.setting(setting_id), self.desk.uses()
        own = _measurements(repository, setting_id, calibration)
        chosen = [runs for runs in own if runs[0].experiment_id == calibration] if calibration else _strongest(own)
        if not chosen and calibration:
            raise UnknownName(
                f"The experiment '{calibration[:32]}' tried this setting on no fresh prompts: propose what its verdict "
                "names, or begin at the setting's page."
            )
        beside, chosen_beside = (
            [one for runs in some for one in _baselines(repository, runs)] for some in (own, chosen)
        )
        return {
            self.head: render("review/proposal.html", "propose", setting, can_be_proposed=bool(uses)),
            self.use: gr.Dropdown([(use.name, use.id) for use in uses], value=uses[0].id if uses else None),
            self.runs: gr.Dropdown(_choices(own), value=[_value(runs) for runs in chosen]),
            self.baselines: gr.Dropdown(_choices(beside), value=_first_of_each(chosen_beside)),
            self.setting: setting_id,
        }

    def propose(
        self, use: str | None, runs: list[str], baselines: list[str], rationale: str, request: gr.Request
    ) -> Html:
        """Adds the proposal; the answer leads to it."""
        try:
            person = person_of(request)
            id = self.desk.propose(person, use or "", _ids(runs), _ids(baselines), rationale or "")
        except FsdError as error:
            return notice(str(error), "bad")
        return notice(joined(["Proposed. ", link(f"/review?proposal={id}", "Open it")]))


def _measurements(repository: Repository, setting_id: str, calibration: str) -> list[Measurement]:
    """The newest measured runs of a setting; of a calibration among them, and of the one that is named, all turns that
    can be evidence."""
    newest = repository.runs(setting_id=setting_id, limit=_MOST, archived=False)
    calibrations = dict.fromkeys(filter(None, [calibration, *(run.experiment_id for run in newest if is_turn(run))]))
    turns = [run for id in calibrations for run in fresh_turns(repository, id, setting_id)]
    return grouped([*turns, *(run for run in newest if run.metrics and not is_turn(run))])


def _baselines(repository: Repository, runs: Measurement) -> list[Measurement]:
    """Measured runs of the same experiment, task and seed to hold a setting against, the target alone first."""
    others = [one for one in company(repository, runs[0]) if one.setting_id != runs[0].setting_id]
    kinds = [one for one in others if one.decoding.acceptance.kind in USUAL_BASELINES]
    fresh = on_fresh_prompts(repository, kinds)
    return grouped(sorted(fresh, key=lambda one: (USUAL_BASELINES.index(one.decoding.acceptance.kind), one.position)))


def _strongest(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Of each task and seed the one of most prompts: fewer of the same would be counted as a second, weaker witness."""
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
        of = f"{run.experiment_name}, seed {run.seed} · {(run.experiment_id or '')[:6]}"
        return f"{run.label} · {run.task}, {prompts} fresh prompts of {of}"
    return f"{run.label} · {run.task}, {prompts} prompts, seed {run.seed} · {run.id[:6]}"


def _first_of_each(baselines: Iterable[Measurement]) -> list[str]:
    """One baseline for each task and seed, and for each calibration."""
    first: dict[tuple[object, ...], str] = {}
    for runs in baselines:
        run = runs[0]
        first.setdefault((run.task, run.seed, run.experiment_id if is_turn(run) else None), _value(runs))
    return list(first.values())
