"""Find the setting: starts a calibration from the form's choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.experiments.sweep_form import check_size, method_options, option_label, parse_seeds, rules_of
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import PRIVATE_EVENT, notice, show
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, render
from fsd_core.calibration.request import asked_for
from fsd_core.config import RULES
from fsd_core.config.calibration_config import MOST_FRESH_PROMPTS, CalibrationConfig
from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.roles import require
from fsd_core.tasks import Task
from fsd_core.worker import gpu_billing

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

_GOALS = {
    "accuracy": ("Accuracy within so many points of the target", "Points", 2.0),
    "acceptance": ("At least so many percent of drafted tokens accepted", "Percent", 90.0),
    "speed": ("The fastest, whatever it costs", "Points or percent", None),
}
"""title, label of the bound, and its default"""
_LABELS = {
    "margin": "The margin", "acceptance": "The share accepted", "minutes": "Minutes",
    "other goals": "the goal of so many percent accepted, or the fastest",
}  # fmt: skip
_LEAD = (
    "Of the algorithms, thresholds and draft lengths above, finds the fastest that keeps a promise. Some prompts "
    "narrow them down; the best are tried on others, until one is sure at 95 % or the time ends. It may use up to "
    f"{MOST_FRESH_PROMPTS} prompts of the task, whatever is written above."
)


class FindPanel:
    """The panel's components as attributes, and one method per event."""

    def __init__(self, repository: Repository, find: Callable[[str], Task]) -> None:
        self.repository, self._find = repository, find
        with gr.Accordion("Find the setting", open=False, elem_id="find-setting"):
            show(render("experiments/form.html", "lead", _LEAD))
            self.goal = gr.Dropdown(
                [(title, kind) for kind, (title, *_) in _GOALS.items()], value="accuracy", label="Goal"
            )
            with gr.Row():
                self.bound = gr.Number(_GOALS["accuracy"][2], label=_GOALS["accuracy"][1], minimum=0, maximum=100)
                self.minutes = gr.Number(10, label="Minutes", info="Of decoding.", minimum=0)
            self.replayed = gr.Checkbox(
                True, label="Choose draft lengths by replay", info="Of 1 to 16, whatever lengths are named above."
            )
            self.start = gr.Button("Find the setting")
            self.answer = show(elem_id="find-answer")

    def listen(self, fields: Mapping[str, Any], after: Callable[[], None], poll: dict[str, Any]) -> None:
        """Attach the events. ``after`` is called after a start, before the page is polled."""

        def usual(goal: str) -> Any:
            _, label, value = _GOALS[goal]
            return gr.update(label=label, value=value, interactive=value is not None)

        on_choice(self.goal)(usual, self.goal, self.bound, **FOLLOWS)

        def begin(values: dict[Any, Any], request: gr.Request) -> Html:
            choices = {name: values[part] for name, part in fields.items()}
            try:
                require(person_of(request), "author", "Starting a calibration")
                if values[self.replayed]:
                    del choices["draft_length"]
                config = calibration_of(
                    choices, values[self.goal], values[self.bound], values[self.minutes], self._find
                )
                gpu_billing.note(self.repository.create_experiment(config))
            except FsdError as error:
                return notice(str(error), "bad")
            return notice(f"Added: {len(config.decodings)} settings to choose from, on up to {config.limit} prompts.")

        inputs = {*fields.values(), self.goal, self.bound, self.minutes, self.replayed}
        self.start.click(begin, inputs, self.answer, trigger_mode="once", **PRIVATE_EVENT).then(
            after, **PRIVATE_EVENT
        ).then(**poll)


def calibration_of(
    values: Mapping[str, Any], goal: str, bound: float | None, minutes: float | None, find: Callable[[str], Task]
) -> CalibrationConfig:
    """Return the calibration of the form's settings. Raises ``InvalidSetting`` with one sentence.

    Without draft lengths among the values, replay proposes them.
    """
    if goal not in _GOALS:
        raise InvalidSetting(f"There is no goal {str(goal)[:40]!r}: expected one of {', '.join(_GOALS)}.")
    if minutes is None or (bound is None and goal != "speed"):
        raise InvalidSetting("A number is missing: say how much may be lost, and how many minutes may be spent.")
    if goal == "acceptance" and bound is not None and not 0 < bound < 100:
        raise InvalidSetting(f"The percent accepted is {bound:g}: expected more than 0 and less than 100.")
    drafting = [kind for kind in rules_of(values) if not RULES[kind].baseline]
    if not drafting:
        raise InvalidSetting("No algorithm is chosen: choose at least one to find a setting of.")
    task = find(str(values["task"]))
    config = asked_for(
        task, [method_options(values, drafting)], option_label, _LABELS, pair=values["pair"],
        seeds=parse_seeds(values["seeds"]), name=str(values["name"]).strip() or f"Find the setting on {task.title}",
        goal=goal, margin=bound if goal == "accuracy" else None, minutes=minutes,
        acceptance=(bound or 0) / 100 if goal == "acceptance" else None,
    )  # fmt: skip
    check_candidates(config)
    return config


def check_candidates(config: CalibrationConfig) -> None:
    """Raise ``InvalidSetting`` for more settings to choose from than an experiment may have."""
    check_size(len(config.decodings), "settings to choose from", "thresholds or draft lengths")
