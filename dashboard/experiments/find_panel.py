"""The panel that looks for the fastest setting that keeps a goal, on a task or on a file that is dropped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.experiments.experiment_form import (
    CalibratedEngine,
    ExperimentForm,
    method_options,
    option_label,
    parse_seeds,
    rules_of,
)
from dashboard.ui.components import notice, show
from dashboard.ui.templates import render
from dashboard.ui.view import Asked, Part, Updates, Values, View
from fsd_core.actions.calibrations import check_candidates
from fsd_core.calibration.request import (
    USUAL_MARGIN,
    WIDEST_MARGIN,
    build_calibration,
    is_told_to_engines,
    sure_margin,
)
from fsd_core.config import RULES
from fsd_core.config.calibration_config import MOST_FRESH_PROMPTS, CalibrationConfig
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.errors import NotGiven, OutOfRange, UnknownChoice
from fsd_core.models.model_pairs import check_folders
from fsd_core.tasks import Task
from fsd_core.texts import count
from fsd_core.worker.run_actions import begin

if TYPE_CHECKING:
    from fsd_core.rules import Served
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository
    from fsd_core.tasks.custom.reading import CheckedFile


class Start(NamedTuple):
    """What a click on one button does with a dropped file: it is added, and then this is begun on it."""

    action: str
    text: str
    margin: str = ""
    """points of accuracy that a search may lose"""


_GOALS = {
    "accuracy": "Accuracy within so many points of the target",
    "acceptance": "At least so many percent of drafted tokens accepted",
    "speed": "The fastest, whatever it costs",
}
_LABELS = {
    "margin": "The accuracy margin", "acceptance": "The share accepted", "minutes": "Minutes",
    "other goals": "the goal of so many percent accepted, or the fastest",
}  # fmt: skip
_BOUND_LABELS = {"accuracy": _LABELS["margin"], "acceptance": "The percent accepted"}
"""of the goals that have a number"""
_TITLE = "Find the fastest setting that keeps my accuracy"
_LEAD = "Tries settings on fresh prompts until one is sure at 95 % or the time ends."
_ABOUT_MORE = (
    "What is tried are the rules, thresholds and draft lengths of “Measure my own list”, on up to "
    f"{MOST_FRESH_PROMPTS} prompts of the task, whatever number stands there. "
    "The worker goes on when this page is closed."
)


class FindPanel(Part):
    """The panel's components as attributes. Its methods return the panel's content for a question."""

    def __init__(
        self, repository: Repository, settings: Settings, form: ExperimentForm, forget: Callable[[], None]
    ) -> None:
        """``forget`` is called after a start."""
        self.repository, self.settings, self.form, self._forget = repository, settings, form, forget
        with gr.Column(elem_id="find-setting", elem_classes=["exp-way"]):
            show(render("experiments/form.html", "way", _TITLE, _LEAD))
            with gr.Row():
                self.bounds = {
                    "accuracy": gr.Number(2, label="Accuracy margin", info="Points that may be lost", min_width=110),
                    "acceptance": gr.Number(90, label="Percent", visible=False, min_width=110),
                }
                self.minutes = gr.Number(10, label="Minutes", info="Of decoding", min_width=110)
            self.start = gr.Button("Find the setting", variant="primary")
            self.answer = show(elem_id="find-answer")
            with gr.Accordion("More", open=False):
                self.engine = CalibratedEngine()
                self.goal = gr.Dropdown(
                    [(title, kind) for kind, title in _GOALS.items()], value="accuracy", label="Goal"
                )
                self.replayed = gr.Checkbox(
                    True, label="Choose draft lengths by replay", info="Of 1 to 16, whatever lengths the list names."
                )
                show(render("experiments/form.html", "lead", _ABOUT_MORE))
        self.fields = [self.engine.field, self.goal, *self.bounds.values(), self.minutes, self.replayed]

    def listen(self, view: View) -> None:
        """Attach the event."""
        fields = [*self.form.fields.values(), *self.fields]
        view.button(self.start, "find", fields, self.queue_calibration, self.answer)

    def redraw(self, asked: Asked) -> Updates:
        """Return the bound of the goal, if another goal is chosen. The others keep what was typed."""
        goal = asked.current(self.goal)
        if not asked.differs("goal", goal):
            return {}
        return {bound: gr.Number(visible=kind == goal) for kind, bound in self.bounds.items()}

    def start_on(self, checked: CheckedFile, values: Values) -> Start:
        """Return what one click begins on a file, with these values of the form's and the panel's fields: a search for
        the goal that is chosen, or the list where that cannot be shown to be reached."""
        if values[self.goal] != "accuracy":
            return Start("find", str(self.start.value))
        if checked.scorer == "none":
            return Start("measure", "Compare with the target's own answers")
        wanted = values[self.bounds["accuracy"]]
        margin = sure_margin(len(checked.lines), wanted if wanted and 0 < wanted <= WIDEST_MARGIN else USUAL_MARGIN)
        if margin is None:
            return Start("measure", "Measure my own list on it")
        return Start("find", f"Find the setting within {count(margin, 'point')}", f"{margin:g}")

    def begin_on(self, values: Values, asked: Asked, margin: str) -> str:
        """Begin a search on the task among the values, by the accuracy margin that its button named, if any."""
        with suppress(ValueError):
            values[self.bounds["accuracy"]] = points = float(margin)
            asked.fill(self.bounds["accuracy"], points if math.isfinite(points) else None)
        return self._begin(values)

    def queue_calibration(self, values: Values, asked: Asked) -> Updates:
        """Store the calibration and its job for the worker."""
        return {self.answer: notice(self._begin(values))}

    def _begin(self, values: Values) -> str:
        choices = self.form.named(values)
        if values[self.replayed]:
            del choices["draft_length"]
        goal = values[self.goal]
        bound = values[self.bounds[goal]] if goal in self.bounds else None
        engine = self.engine.chosen(values, self.repository)
        config = calibration_of(choices, goal, bound, values[self.minutes], self.form.task, engine)
        check_folders(config.pair, self.settings)
        begin(self.repository, config, values.key)
        self._forget()
        return f"Added: {count(len(config.decodings), 'setting')} to choose from, on up to {config.limit} prompts."


def calibration_of(
    values: Mapping[str, Any],
    goal: str,
    bound: float | None,
    minutes: float | None,
    find_task: Callable[[str], Task],
    engine: Served | None = None,
) -> CalibrationConfig:
    """Return the calibration of the form's settings. Raises ``InvalidSetting`` with one sentence.

    Without draft lengths among the values, replay proposes them. An ``engine`` is told the rules, and what the form
    says of drafts is left out.
    """
    if goal not in _GOALS:
        raise UnknownChoice(f"There is no goal {str(goal)[:40]!r}: expected one of {', '.join(_GOALS)}.")
    for label, value in ((_BOUND_LABELS.get(goal), bound), (_LABELS["minutes"], minutes)):
        if label is not None and value is None:
            raise NotGiven(f"{label} is empty: expected a number.")
    if goal == "acceptance" and bound is not None and not 0 < bound < 100:
        raise OutOfRange(f"{_BOUND_LABELS[goal]} is {bound:g}: expected more than 0 and less than 100.")
    drafting = [kind for kind in rules_of(values) if (RULES[kind].knob if engine else not RULES[kind].baseline)]
    if not drafting:
        raise NotGiven("No algorithm is chosen: choose at least one to find a setting of.")
    task = find_task(str(values["task"]))
    options = method_options(values, drafting)
    if engine is not None:
        options = {name: options[name] for name in options if is_told_to_engines(METHOD_OPTIONS[name])}
    config = build_calibration(
        task, [options], option_label, _LABELS, pair=values["pair"],
        seeds=parse_seeds(values["seeds"]), name=str(values["name"]).strip() or f"Find the setting on {task.title}",
        goal=goal, margin=bound if goal == "accuracy" else None, minutes=minutes,
        acceptance=(bound or 0) / 100 if goal == "acceptance" else None, endpoint=engine,
    )  # fmt: skip
    check_candidates(config)
    return config
