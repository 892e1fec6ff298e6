"""A setting proposed for a use, with the runs that speak for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.tables.company import company
from dashboard.ui.components import QUIET, escape, heading, notice, show
from dashboard.ui.people import person_of
from fsd_core.errors import FsdError
from fsd_core.tracking.acts import LONGEST_WORDS

if TYPE_CHECKING:
    from fsd_core.review.desk import Desk
    from fsd_core.tracking.database.repository import Repository
    from fsd_core.tracking.records import RunView

Updates = dict[Any, Any]
MOST = 60
"""runs of a setting, the newest, that can be chosen"""
BASELINES = ("autoregressive", "speculative")
"""the rules that a setting is held against; of each experiment the first that was measured is chosen"""


class ProposeForm:
    """The components as attributes; a method per event, which returns what it changes."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.head = show()
        with gr.Row(elem_classes=["rev-forms"]):
            self.use = gr.Dropdown([], label="Use", info="What it is proposed for", min_width=220)
            self.runs = gr.Dropdown([], label="Evidence", info="Runs of the setting", multiselect=True, scale=2)
            self.baselines = gr.Dropdown([], label="Baselines", info="On the same prompts", multiselect=True, scale=2)
        self.rationale = gr.Textbox(label="Rationale", lines=3, max_length=LONGEST_WORDS)
        self.send = gr.Button("Propose", variant="primary")
        self.answer = show()
        self.setting = gr.State("")
        fields = [self.use, self.runs, self.baselines, self.rationale]
        self.send.click(self.propose, fields, self.answer, **QUIET)

    @property
    def outputs(self) -> list[Any]:
        """What :meth:`open` may change."""
        return [self.head, self.use, self.runs, self.baselines, self.setting]

    def open(self, setting_id: str) -> Updates:
        """The form for one setting; all its measured runs are chosen, and the baselines of their experiments."""
        repository = self.desk.repository
        setting, uses = repository.setting(setting_id), self.desk.uses()
        runs = [run for run in repository.runs(setting_id=setting_id, limit=MOST, archived=False) if run.metrics]
        beside = [one for run in runs for one in _baselines(repository, run)]
        beside = list({run.id: run for run in beside if run.setting_id != setting_id}.values())
        lead = f"Setting {setting.id}, of the pair {setting.pair}."
        told = "" if uses else notice("There is no use to propose it for yet: make one on the page Review.", "warn")
        back = f'<p class="run-back"><a href="/settings?setting={escape(setting.id)}">The setting</a></p>'
        return {
            self.head: back + heading(f"Propose {setting.label}", lead) + told,
            self.use: gr.Dropdown([(use.name, use.id) for use in uses], value=uses[0].id if uses else None),
            self.runs: gr.Dropdown(_choices(runs), value=[run.id for run in runs]),
            self.baselines: gr.Dropdown(_choices(beside), value=_first_of_each(beside)),
            self.setting: setting_id,
        }

    def propose(
        self, use: str | None, runs: list[str], baselines: list[str], rationale: str, request: gr.Request
    ) -> str:
        """Adds the proposal; the answer leads to it."""
        try:
            id = self.desk.propose(person_of(request), use or "", runs or [], baselines or [], rationale or "")
        except FsdError as error:
            return notice(str(error), "bad")
        return f'<p class="fsd-notice" role="status">Proposed. <a href="/review?proposal={escape(id)}">Open it</a></p>'


def _baselines(repository: Repository, run: RunView) -> list[RunView]:
    """Measured runs of the same experiment, task and seed to hold a setting against, the target alone first."""
    kinds = [one for one in company(repository, run) if one.decoding.acceptance.kind in BASELINES]
    return sorted(kinds, key=lambda one: (BASELINES.index(one.decoding.acceptance.kind), one.position))


def _choices(runs: Sequence[RunView]) -> list[tuple[str, str]]:
    return [
        (f"{run.label} · {run.task}, {run.prompts_done} prompts, seed {run.seed} · {run.id[:6]}", run.id)
        for run in runs
    ]


def _first_of_each(baselines: Sequence[RunView]) -> list[str]:
    """One baseline for each task and seed."""
    first: dict[tuple[str, int], str] = {}
    for run in baselines:
        first.setdefault((run.task, run.seed), run.id)
    return list(first.values())
