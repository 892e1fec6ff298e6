"""The form of an experiment. It displays only the fields that the chosen options read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.experiments.prefill import prefilled
from dashboard.experiments.rule_fields import RULE_FIELDS, by_field, by_part, rule_fields
from dashboard.experiments.sweep_form import build_sweep, rules_of
from dashboard.ui.algorithms import PLAIN_RULES
from dashboard.ui.components import notice, show
from dashboard.ui.option_fields import ARGUMENTS, field, multiselect_field
from dashboard.ui.pair_defaults import PairDefaults, is_default, pair_defaults
from dashboard.ui.question import Asked, Updates, digest
from dashboard.ui.templates import escape, render
from fsd_core.config import RULES, SweepConfig
from fsd_core.config.decoding_config import JUDGING_OPTIONS
from fsd_core.config.options import METHOD_OPTIONS, OPTIONS
from fsd_core.config.sweeps import LENGTH_OPTIONS, LISTED, knob_of, readable
from fsd_core.errors import DataDamaged, FsdError, InvalidSetting, UnknownName
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair, is_known
from fsd_core.models.model_roots import may_be_named
from fsd_core.tasks import TASKS, Task
from fsd_core.tasks.custom.lookup import find_task
from fsd_core.tasks.suitable import kept_or_first, offered

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

KNOBS = [name for name, option in METHOD_OPTIONS.items() if option.is_knob]
_DIALS = [
    name
    for name, option in METHOD_OPTIONS.items()
    if name in JUDGING_OPTIONS
    or (
        option.part in ("acceptance", "drafter", "topology")
        and name not in (*LISTED, *LENGTH_OPTIONS, *KNOBS, "drafts")
    )
]
"""options that have one value for all settings of an experiment"""
SELECTORS = [*RULE_FIELDS] + [name for name in LISTED if name != "acceptance"]
DEPENDENT = ["divergence", "length_by", "drafts", *LENGTH_OPTIONS, *KNOBS, *_DIALS]
"""fields that are displayed if a chosen option reads them"""
_DEFAULTS: dict[str, Any] = {
    **by_field({"baselines": PLAIN_RULES, "several": [], "tuned": [METHOD_OPTIONS["acceptance"].default]}),
    **{name: [METHOD_OPTIONS[name].default] for name in LISTED if name != "acceptance"},
}  # fmt: skip
THRESHOLD_HINT = "Such as 0.05, 0.1, off, or start:stop:count."
_PAIR_DEFAULTS = {"threshold": "thresholds", "limit": "limit", "draft_length": "lengths"}
"""fields whose default depends on the pair, with the name of the default in ``PairDefaults``"""
_LEAD = "Each setting on the same prompts."
KNOB_HINT = "A list such as these or a range start:stop:count."


def visible_fields(values: Mapping[str, Any]) -> dict[str, bool]:
    """Return for each field of ``DEPENDENT`` whether a chosen option reads it."""
    rules = rules_of(by_part(values))
    selected = {name: values[name] for name in LISTED if name != "acceptance"} | {"acceptance": rules}
    read = readable(dict.fromkeys(DEPENDENT, 0) | selected)
    return {name: name in read for name in DEPENDENT}


def grid_of(name: str) -> tuple[float, ...]:
    """Return the values of a knob that show its trade-off."""
    return next(rule.knob.grid for kind, rule in RULES.items() if rule.knob and knob_of(kind) is METHOD_OPTIONS[name])


def task_choices(pair: str, custom: Iterable[Task] = ()) -> list[tuple[str, str]]:
    """Return titles and names of the tasks that can be run, suitable ones first."""
    return [(task.title, task.name) for task in offered(get_pair(pair), custom)]


def task_names(custom: Iterable[Task] = ()) -> tuple[str, ...]:
    """Return the names of the tasks that can be run."""
    return tuple(task.name for task in (*TASKS.values(), *custom) if task.available)


class ExperimentForm:
    """The form's components as attributes. Its methods return the form's content for a question.

    ``fields`` maps option names to components.
    """

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.repository, self.settings = repository, settings
        self.fields = self._components()

    def _components(self) -> dict[str, Any]:
        """Return the fields. Pair and task stand above the two ways, ``first_way`` is empty, and the others are the
        second way: a list of one's own."""
        pairs = [(spec.title, name) for name, spec in MODEL_PAIRS.items()]
        tasks, defaults = task_choices(pairs[0][1]), pair_defaults(pairs[0][1])
        fields: dict[str, Any] = {}
        with gr.Row(elem_classes=["exp-subject"]):
            fields["pair"] = gr.Dropdown(
                pairs, value=pairs[0][1], label="Model pair", min_width=160, allow_custom_value=True
            )
            fields["task"] = gr.Dropdown(tasks, value=tasks[0][1], label="Task", min_width=160)
            self.beside_task = gr.Column(min_width=260)
        self.below_task = gr.Column(elem_classes=["exp-below"])
        with gr.Row(equal_height=False, elem_classes=["exp-ways"]):
            self.first_way = gr.Column(scale=6, min_width=340)
            self.second_way = gr.Column(scale=5, min_width=340)
        with self.second_way, gr.Column(elem_classes=["exp-way"]) as self.list:
            show(render("experiments/form.html", "way", "Measure my own list", _LEAD))
            fields |= self._list(defaults)
            self.measured = show(escape(defaults.hint(tasks[0][1])), elem_classes=["exp-measured"])
            with gr.Accordion("Drafting and sampling", open=False):
                fields |= self._drafting_and_sampling()
        return fields

    def _list(self, defaults: PairDefaults) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        visibility = visible_fields(_DEFAULTS)
        fields["name"] = gr.Textbox(label="Name", placeholder="What this experiment should find out", max_length=120)
        fields |= rule_fields(_DEFAULTS)
        fields["drafts"] = field(METHOD_OPTIONS["drafts"], visible=visibility["drafts"])
        fields["divergence"] = multiselect_field(METHOD_OPTIONS["divergence"], visible=visibility["divergence"])
        for name in KNOBS:
            grid = ", ".join(f"{value:g}" for value in grid_of(name))
            fields[name] = gr.Textbox(
                defaults.thresholds if name == "threshold" else grid, label=METHOD_OPTIONS[name].plural,
                info=THRESHOLD_HINT if name == "threshold" else KNOB_HINT, visible=visibility[name],
            )  # fmt: skip
        fields["draft_length"] = gr.Textbox(
            defaults.lengths, label=METHOD_OPTIONS["draft_length"].plural, visible=visibility["draft_length"],
            info="Such as 4, 8, 16.",
        )  # fmt: skip
        fields["endpoints"] = gr.Dropdown(
            [], value=[], multiselect=True, label="Running engines", visible=False,
            info="Asked over HTTP with the same prompts; see “Running engines” below.",
        )  # fmt: skip
        fields["rates"] = gr.Textbox(
            label="Request rates", placeholder="None: the next prompt is asked when one ends", visible=False,
            max_length=200, info="Prompts a second, such as 1, 2, 4, at engines alone. Their arrivals are random; "
            "the batch size is how many may be open at once (1: 64).",
        )  # fmt: skip
        with gr.Row():
            fields["limit"] = field(OPTIONS["limit"], value=defaults.limit)
            fields["seeds"] = gr.Textbox("0", label=OPTIONS["seed"].plural, min_width=110)
            fields["max_new_tokens"] = field(METHOD_OPTIONS["max_new_tokens"])
        return fields

    def _drafting_and_sampling(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        visibility = visible_fields(_DEFAULTS)
        with gr.Row():
            fields["drafter"] = multiselect_field(METHOD_OPTIONS["drafter"])
            fields["topology"] = multiselect_field(METHOD_OPTIONS["topology"])
            fields["length_by"] = multiselect_field(METHOD_OPTIONS["length_by"], visible=visibility["length_by"])
        with gr.Row():
            for name in _DIALS:
                fields[name] = field(METHOD_OPTIONS[name], visible=visibility[name])
        with gr.Row():
            fields["temperature"] = field(METHOD_OPTIONS["temperature"], info="0 is greedy")
            fields["top_k"] = field(METHOD_OPTIONS["top_k"], info="0 is off")
            fields["top_p"] = field(METHOD_OPTIONS["top_p"], info="1 is off")
            fields["min_p"] = field(METHOD_OPTIONS["min_p"], info="0 is off")
        with gr.Row():
            fields["template_arguments"] = field(METHOD_OPTIONS["template_arguments"], placeholder=ARGUMENTS)
            fields["template_date"] = field(METHOD_OPTIONS["template_date"])
        fields["batch"] = gr.Textbox(
            "1", label="Batch sizes",
            info="Texts at once; 1 times each by itself. Several, such as 1, 2, 4, measure each setting under each "
            "load: Compare draws speed over it.",
        )  # fmt: skip
        return fields

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` and :meth:`redraw_tasks` may change."""
        changed = ("pair", "task", "endpoints", "rates", *DEPENDENT)
        return [self.measured, *(self.fields[name] for name in changed)]

    def values(self, asked: Asked) -> dict[Any, Any]:
        """Return the values of the fields, by component, with those that the answer fills in."""
        return {part: asked.current(part) for part in self.fields.values()}

    def named(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the values of the fields by name, with the rules by the parts of ``METHOD_GROUPS``."""
        return by_part({name: values[part] for name, part in self.fields.items()})

    def sweep(self, values: Mapping[Any, Any]) -> SweepConfig:
        """Return the experiment that the fields ask for. Raises ``FsdError``."""
        return build_sweep(self.named(values), self.task, self.repository.engine)

    def task(self, name: str) -> Task:
        """Return a built-in or custom task. Raises ``UnknownName``."""
        return find_task(name, self.repository)

    # --- what is shown -------------------------------------------------------------------------------------------

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the fields that a chosen option reads, and why an address cannot be followed."""
        updates = self._prefill(asked) if asked.opening and not asked.reloaded else {}
        self._fill_defaults(asked)
        values = self.values(asked)
        selected = {name: values[self.fields[name]] for name in SELECTORS}
        if asked.differs("visible", selected):
            visible = visible_fields(selected)
            updates |= {self.fields[name]: gr.update(visible=visible[name]) for name in DEPENDENT}
        return updates

    def redraw_tasks(self, asked: Asked, names: tuple[str, ...], custom: Sequence[Task]) -> Updates:
        """Return the tasks, suitable ones first, if they differ.

        A task that is gone is replaced. So is one that does not suit another pair than before.
        """
        values = self.values(asked)
        pair, task = values[self.fields["pair"]], values[self.fields["task"]]
        if not self._is_known(pair) or not asked.differs("tasks", pair, names):
            return {}
        before = asked.shown.get("pair of the tasks", digest(pair))
        asked.shown["pair of the tasks"] = digest(pair)
        if before != digest(pair) or task not in names:
            asked.fill(self.fields["task"], kept_or_first(task, get_pair(pair), custom))
        return {self.fields["task"]: gr.Dropdown(task_choices(pair, custom))}

    def redraw_endpoints(self, asked: Asked, names: Sequence[str]) -> Updates:
        """Return the endpoints that can be chosen, if they differ. One that is gone is no longer chosen."""
        field = self.fields["endpoints"]
        chosen = [name for name in self.values(asked)[field] or () if name in names]
        asked.fill(field, chosen)
        if not asked.differs("endpoints", names):
            return {}
        visible = bool(names)
        return {field: gr.Dropdown([*names], visible=visible), self.fields["rates"]: gr.Textbox(visible=visible)}

    def _is_known(self, pair: str) -> bool:
        """Whether a pair may be named here and its models can be told. Of others nothing is told, not if they exist."""
        return may_be_named(pair, self.settings) and is_known(pair)

    def clamp_prompts(self, asked: Asked) -> None:
        """Fill in the number of a task's prompts, if another task than before has fewer than are asked for."""
        values = self.values(asked)
        task, limit = values[self.fields["task"]], values[self.fields["limit"]]
        if not asked.differs("task of the prompts", task) or not isinstance(limit, int | float):
            return
        with suppress(FsdError):  # what is wrong with a task is told below the form
            if limit > (size := self.task(task).size):
                asked.fill(self.fields["limit"], size)

    def redraw_hint(self, asked: Asked) -> Updates:
        """Return the source of the pair's defaults, if it differs: what was measured of this pair on this task, or that
        nothing was. Of a pair that cannot be told nothing is said."""
        values = self.values(asked)
        pair, task = values[self.fields["pair"]], values[self.fields["task"]]
        if not asked.differs("hint", pair, task):
            return {}
        return {self.measured: escape(pair_defaults(pair).hint(task)) if self._is_known(pair) else ""}

    def choose_task(self, asked: Asked, name: str, before: Mapping[str, str]) -> None:
        """Choose a task, and no more prompts than it has, unless somebody has changed these fields since ``before``.

        ``before``: the values of the two fields as texts, by name.
        """
        task, limit = self.fields["task"], self.fields["limit"]
        if f"{asked[task]}" != before["task"]:
            return
        asked.fill(task, name)
        size = self.task(name).size
        if f"{asked[limit]}" == before["limit"] and asked[limit] is not None and asked[limit] > size:
            asked.fill(limit, size)

    def _prefill(self, asked: Asked) -> Updates:
        """Fill in what the page's address asks for where nobody has typed yet, or return why that cannot be."""
        try:
            values = prefilled(self.repository, asked.address, asked.person)
        except (UnknownName, DataDamaged, InvalidSetting) as error:
            return {self.measured: notice(str(error), "warn")}
        for name, value in by_field(values).items():
            part = self.fields.get(name)
            if part is not None and asked[part] == part.value:
                asked.fill(part, value)
        return {}

    def _fill_defaults(self, asked: Asked) -> None:
        """Fill in the defaults of another pair than before, in fields that nobody has changed."""
        values = self.values(asked)
        pair, before = values[self.fields["pair"]], asked.shown.get("pair")
        if digest(pair) == before or not self._is_known(pair):
            return
        asked.shown["pair"] = digest(pair)
        defaults = pair_defaults(pair)
        for name, default in _PAIR_DEFAULTS.items() if before or asked.reloaded else ():
            if self.fields[name] not in asked.filled and is_default(default, values[self.fields[name]]):
                asked.fill(self.fields[name], getattr(defaults, default))
