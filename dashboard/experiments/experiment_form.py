"""The form of an experiment. It displays only the fields that the chosen options read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.experiments.prefill import prefilled
from dashboard.experiments.sweep_form import METHOD_GROUPS, build_sweep, rules_of
from dashboard.ui.algorithms import PLAIN_RULES, SEVERAL, TUNED
from dashboard.ui.beginnings import beginning, untouched
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import on_load, show
from dashboard.ui.option_fields import field, several
from dashboard.ui.templates import escape
from fsd_core.config import RULES, SweepConfig
from fsd_core.config.options import METHOD_OPTIONS, OPTIONS
from fsd_core.config.sweeps import LENGTH_OPTIONS, LISTED, knob_of, readable
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair
from fsd_core.tasks import TASKS, Task
from fsd_core.tasks.custom.lookup import find_task, own_tasks
from fsd_core.tasks.suitable import kept_or_first, offered

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

KNOBS = [name for name, option in METHOD_OPTIONS.items() if option.is_knob]
_DIALS = [
    name
    for name, option in METHOD_OPTIONS.items()
    if name == "strict_first"
    or (
        option.part in ("acceptance", "drafter", "topology")
        and name not in (*LISTED, *LENGTH_OPTIONS, *KNOBS, "drafts")
    )
]
"""options that have one value for all settings of an experiment"""
CHOSEN = [part for part, _ in METHOD_GROUPS] + [name for name in LISTED if name != "acceptance"]
DEPENDENT = ["divergence", "drafts", *LENGTH_OPTIONS, *KNOBS, *_DIALS]
"""fields that are displayed if a chosen option reads them"""
_DEFAULTS: dict[str, Any] = {
    "baselines": list(PLAIN_RULES), "several": [], "tuned": [METHOD_OPTIONS["acceptance"].default],
    **{name: [METHOD_OPTIONS[name].default] for name in LISTED if name != "acceptance"},
}  # fmt: skip
THRESHOLD_HINT = (
    "A list such as 0.05, 0.1, off or a range start:stop:count. Useful values differ by divergence, pair and task. "
    "The published experiments' “JS” was computed as ag: their thresholds, such as 0.4, do not carry over to js."
)
_PAIR_DEFAULTS = {"threshold": "thresholds", "limit": "limit", "draft_length": "lengths"}
"""fields whose default depends on the pair, with the name of the default in ``Beginning``"""
KNOB_HINT = "A list such as these or a range start:stop:count."


def visible_fields(values: Mapping[str, Any]) -> dict[str, bool]:
    """Return for each field of ``DEPENDENT`` whether a chosen option reads it."""
    selected = {name: values[name] for name in LISTED if name != "acceptance"} | {"acceptance": rules_of(values)}
    read = readable(dict.fromkeys(DEPENDENT, 0) | selected)
    return {name: name in read for name in DEPENDENT}


def grid_of(name: str) -> tuple[float, ...]:
    """Return the values of a knob that show its trade-off."""
    return next(rule.knob.grid for kind, rule in RULES.items() if rule.knob and knob_of(kind) is METHOD_OPTIONS[name])


def task_choices(pair: str, own: Iterable[Task] = ()) -> list[tuple[str, str]]:
    """Return titles and names of the tasks that can be run, suitable ones first."""
    return [(task.title, task.name) for task in offered(get_pair(pair), own)]


def task_names(own: Iterable[Task] = ()) -> tuple[str, ...]:
    """Return the names of the tasks that can be run."""
    return tuple(task.name for task in (*TASKS.values(), *own) if task.available)


def _titles(kinds: Iterable[str]) -> list[tuple[str, str]]:
    return [(RULES[kind].title, kind) for kind in kinds]


class ExperimentForm:
    """The form's components as attributes, and one method per event. ``fields`` maps option names to components."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.fields = self._components()

    def _components(self) -> dict[str, Any]:
        pairs = [(spec.title, name) for name, spec in MODEL_PAIRS.items()]
        tasks, defaults = task_choices(pairs[0][1]), beginning(pairs[0][1])
        fields: dict[str, Any] = {}
        visibility = visible_fields(_DEFAULTS)
        with gr.Group():
            fields["name"] = gr.Textbox(
                label="Name", placeholder="What this experiment should find out", max_length=120
            )
            with gr.Row():
                fields["pair"] = gr.Dropdown(pairs, value=pairs[0][1], label="Model pair", min_width=160)
                fields["task"] = gr.Dropdown(tasks, value=tasks[0][1], label="Task", min_width=160)
            fields["baselines"] = gr.CheckboxGroup(
                _titles(PLAIN_RULES), value=_DEFAULTS["baselines"], label="Baselines"
            )
            fields["tuned"] = gr.CheckboxGroup(_titles(TUNED), value=_DEFAULTS["tuned"], label="Algorithms")
            with gr.Row():
                fields["several"] = gr.Dropdown(
                    _titles(SEVERAL), value=[], multiselect=True, label="Verifiers of several drafts", min_width=220,
                    info="Lossless. Meant for sampling: set a temperature under Drafting and sampling.",
                )  # fmt: skip
                fields["drafts"] = field(METHOD_OPTIONS["drafts"], visible=visibility["drafts"])
            fields["divergence"] = several(METHOD_OPTIONS["divergence"], visible=visibility["divergence"])
            for name in KNOBS:
                grid = ", ".join(f"{value:g}" for value in grid_of(name))
                fields[name] = gr.Textbox(
                    defaults.thresholds if name == "threshold" else grid, label=METHOD_OPTIONS[name].plural,
                    info=THRESHOLD_HINT if name == "threshold" else KNOB_HINT, visible=visibility[name],
                )  # fmt: skip
            fields["draft_length"] = gr.Textbox(
                defaults.lengths, label=METHOD_OPTIONS["draft_length"].plural, visible=visibility["draft_length"],
                info="Tokens drafted per round, the depth of a tree. A list such as 4, 8, 16.",
            )  # fmt: skip
            with gr.Row():
                fields["limit"] = field(OPTIONS["limit"], value=defaults.limit)
                fields["seeds"] = gr.Textbox("0", label=OPTIONS["seed"].plural, min_width=110)
                fields["max_new_tokens"] = field(METHOD_OPTIONS["max_new_tokens"])
        self.measured = show(escape(defaults.sentence), elem_classes=["exp-measured"])
        with gr.Accordion("Drafting and sampling", open=False):
            with gr.Row():
                fields["drafter"] = several(METHOD_OPTIONS["drafter"])
                fields["topology"] = several(METHOD_OPTIONS["topology"])
            with gr.Row():
                for name in _DIALS:
                    fields[name] = field(METHOD_OPTIONS[name], visible=visibility[name])
            with gr.Row():
                fields["temperature"] = field(METHOD_OPTIONS["temperature"], info="0 is greedy")
                fields["top_k"] = field(METHOD_OPTIONS["top_k"], info="0 is off")
                fields["top_p"] = field(METHOD_OPTIONS["top_p"], info="1 is off")
                fields["min_p"] = field(METHOD_OPTIONS["min_p"], info="0 is off")
            fields["batch"] = field(
                OPTIONS["batch"],
                info="1 times each text by itself. A larger batch finishes sooner, and its texts share its time.",
            )  # fmt: skip
        return fields

    def listen(self) -> None:
        """Attach the events by which one field changes others."""
        sources = [self.fields[name] for name in CHOSEN]
        gr.on(
            [part.change for part in sources], self.arrange, set(sources), [self.fields[name] for name in DEPENDENT],
            **FOLLOWS,
        )  # fmt: skip
        on_load(self.prefill, None, list(self.fields.values()))
        offered = [self.fields[name] for name in ("task", *_PAIR_DEFAULTS)]
        on_choice(self.fields["pair"])(
            self.offer, {self.fields["pair"], *offered}, [*offered, self.measured], **FOLLOWS
        )

    def sweep(self, values: Mapping[Any, Any]) -> SweepConfig:
        """Return the experiment that the fields ask for. Raises ``FsdError``."""
        return build_sweep({name: values[part] for name, part in self.fields.items()}, self.task)

    def task(self, name: str) -> Task:
        """Return a built-in or custom task. Raises ``UnknownName``."""
        return find_task(name, self.repository)

    # --- events --------------------------------------------------------------------------------------------------

    def prefill(self, request: gr.Request) -> Any:
        """Return the form that the page's address asks for."""
        values = prefilled(self.repository, request.query_params)
        if not values:
            return gr.skip()
        updates = {self.fields[name]: value for name, value in values.items() if name in self.fields}
        tasks = (
            gr.Dropdown(task_choices(values["pair"]), value=values["task"])
            if values["pair"] in MODEL_PAIRS
            else gr.skip()
        )
        return updates | {self.fields["task"]: tasks}

    def arrange(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """Display the fields that a chosen option reads."""
        visible = visible_fields({name: values[self.fields[name]] for name in CHOSEN})
        return {self.fields[name]: gr.update(visible=visible[name]) for name in DEPENDENT}

    def offer(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """Return the tasks, suitable ones first, and replace an unsuitable task by the first of them.

        Fields that nobody has changed get the defaults measured for the pair.
        """
        pair, task = values[self.fields["pair"]], self.fields["task"]
        defaults = beginning(pair)
        resets = {
            self.fields[name]: gr.update(value=getattr(defaults, value))
            for name, value in _PAIR_DEFAULTS.items()
            if untouched(value, values[self.fields[name]])
        }
        custom_tasks = own_tasks(self.repository)
        suitable = kept_or_first(values[task], get_pair(pair), custom_tasks)
        selection: dict[str, Any] = {} if suitable == values[task] else {"value": suitable}
        tasks = gr.Dropdown(task_choices(pair, custom_tasks), **selection)
        return {task: tasks, self.measured: escape(defaults.sentence), **resets}
