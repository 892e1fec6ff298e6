"""The form of an experiment. It displays only the fields that the chosen options read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import gradio as gr

from dashboard.ui.components import notice, show
from dashboard.ui.fields import (
    ARGUMENTS,
    BEAM_RULES,
    BY_DIVERGENCE,
    BY_LIKELIHOOD,
    BY_MIXTURE,
    PLAIN_RULES,
    SEVERAL,
    TUNED,
    PairDefaults,
    cost,
    field,
    is_default,
    label,
    multiselect_field,
    number,
    pair_defaults,
)
from dashboard.ui.templates import escape, render, script
from dashboard.ui.view import Asked, Updates, Values, digest
from fsd_core.actions.experiments import sweep_of
from fsd_core.config import RULES, DecodingConfig, SweepConfig
from fsd_core.config.decoding_config import JUDGING_OPTIONS
from fsd_core.config.options import (
    LENGTH_OPTIONS,
    LISTED,
    METHOD_OPTIONS,
    OFF,
    OPTIONS,
    SHARED_OPTIONS,
    Option,
    effective_options,
    knob_of,
    loads_of,
    method,
    methods,
    options_of,
    readable,
    reads,
)
from fsd_core.errors import DataDamaged, FsdError, InvalidSetting, Malformed, NotGiven, OutOfRange, UnknownName
from fsd_core.models.model_pairs import MODEL_PAIRS, check_drafter, get_pair, is_known, may_be_named
from fsd_core.roles import NOBODY, Person
from fsd_core.rules import Served
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.tasks import TASKS, Task, get_task
from fsd_core.tasks.custom.custom_task import find_task, kept_or_first, offered
from fsd_core.worker.endpoints import endpoint_decodings, engine_to_calibrate

if TYPE_CHECKING:
    from fsd_core.config import RunConfig
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import ServedEngineRow


_OWN = ("Our own loop, with the pair's models", "")


class CalibratedEngine:
    """A field that is shown while somebody has named an engine that can be told its rule."""

    def __init__(self) -> None:
        self.field = gr.Dropdown(
            [_OWN], value="", label="Setting of", visible=False,
            info="A running engine is told the algorithms and thresholds above. Its drafts are its own.",
        )  # fmt: skip

    def redraw(self, asked: Asked, names: Sequence[str]) -> Updates:
        """Return the engines that can be chosen, if they differ. One that is gone is no longer chosen."""
        if asked[self.field] not in ("", *names):
            asked.fill(self.field, "")
        if not asked.differs("engines to calibrate", names):
            return {}
        return {self.field: gr.Dropdown([_OWN, *((name, name) for name in names)], visible=bool(names))}

    def chosen(self, values: Values, repository: Repository) -> Served | None:
        """Return the engine; ``None`` for our own loop. Raises ``UnknownName`` and ``InvalidSetting``."""
        return engine_to_calibrate(repository, values[self.field])


MOST_SEEDS = 20
METHOD_GROUPS = (("baselines", PLAIN_RULES), ("several", (*SEVERAL, *BEAM_RULES)), ("tuned", TUNED))
"""the fields in which rules are chosen"""


def no_engine(name: str) -> NoReturn:
    """Raise ``UnknownName``: nobody has named an endpoint."""
    raise UnknownName(f"There is no endpoint '{name[:40]}': add it first.")


def rules_of(values: Mapping[str, Any]) -> list[str]:
    """Return the chosen rules, baselines first."""
    return [kind for part, kinds in METHOD_GROUPS for kind in kinds if kind in values[part]]


def build_sweep(
    values: Mapping[str, Any],
    find_task: Callable[[str], Task] = get_task,
    find_engine: Callable[[str], ServedEngineRow] = no_engine,
) -> SweepConfig:
    """Return the experiment that the form asks for. Raises ``InvalidSetting`` with one sentence.

    ``values`` are those of the fields by name: options, ``METHOD_GROUPS``, ``endpoints``, ``seeds`` and ``name``.
    ``None`` is an emptied number field. ``find_task`` returns the task of a name, ``find_engine`` an endpoint.
    """
    rules, engines = rules_of(values), [find_engine(name) for name in values.get("endpoints") or ()]
    if not rules and not engines:
        raise NotGiven("Nothing is chosen yet: choose at least one baseline, one algorithm or one endpoint.")
    limit = number(OPTIONS["limit"], values["limit"])
    task = find_task(values["task"])
    task.check_limit(limit, f"“{label(OPTIONS['limit'])}”")
    decodings = methods(method_options(values, rules), option_label) if rules else []
    for decoding in decodings:
        check_drafter(values["pair"], decoding)
    if engines:
        decodings += endpoint_decodings(engines, _shared(values))
    batches = whole_numbers(f"{values['batch']}", "batch sizes", "1, 2, 4")
    return sweep_of(
        decodings, option_label, name=values["name"], pair=values["pair"], task=task.name, limit=limit,
        seeds=parse_seeds(values["seeds"]), **loads_of(batches, read_rates(values.get("rates") or "")),
    )  # fmt: skip


def read_rates(text: str) -> tuple[float, ...]:
    """Return the numbers of a list of request rates such as ``0.5, 1, 2``. Raises ``InvalidSetting``."""
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",") if part.strip()))
    except ValueError:
        raise Malformed(
            f"The request rates {text[:60]!r} cannot be read: expected numbers, such as 0.5, 1, 2."
        ) from None


def _shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's settings of prompts and sampling."""
    names = [name for name in SHARED_OPTIONS if name in values]
    return method({name: _one(METHOD_OPTIONS[name], values[name]) for name in names}, option_label).shared


def _one(option: Option, value: Any) -> Any:
    return value if option.choices else number(option, value)


def method_options(values: Mapping[str, Any], rules: Sequence[str]) -> dict[str, Any]:
    """Return the method options that the form chooses with these rules, by name. Raises ``InvalidSetting``."""
    options = readable({**{name: values[name] for name in METHOD_OPTIONS if name in values}, "acceptance": list(rules)})
    for name, value in options.items():
        option = METHOD_OPTIONS[name]
        if name in LENGTH_OPTIONS:
            options[name] = list(whole_numbers(value, option.plural or option.label, f"{option.default}, 16"))
            continue
        if name in LISTED and not value:
            raise NotGiven(f"No {option.label.lower()} is chosen: choose at least one.")
        options[name] = value if option.is_knob or option.choices else number(option, value)
    return options


def option_label(option: Option, value: Any = None) -> str:
    """Return the form's label of a method option."""
    return option.plural if option.is_knob and option.plural else label(option)


def size_line(sweep: SweepConfig) -> str:
    """Return how much work an experiment is, such as ``7 settings × 1 seed × 50 prompts = 350 generations``."""
    settings, seeds, loads = len(sweep.decodings), len(set(sweep.seeds)), len({*sweep.batches} or {*sweep.rates}) or 1
    parts = [_count(settings, "setting"), _count(seeds, "seed"), _count(sweep.limit, "prompt")]
    if loads > 1:
        parts.insert(1, _count(loads, "load"))
    return f"{' × '.join(parts)} = {_count(settings * loads * seeds * sweep.limit, 'generation')}"


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of a list such as ``0, 1, 2``. Raises ``InvalidSetting`` for anything else."""
    seeds = whole_numbers(text, "seeds", "0, 1, 2")
    if len(seeds) > MOST_SEEDS:
        raise OutOfRange(f"These are {len(seeds)} seeds: expected at most {MOST_SEEDS}.")
    return seeds


def whole_numbers(text: str, what: str, example: str) -> tuple[int, ...]:
    """Return the distinct numbers of a list such as ``0, 1, 2``. Raises ``InvalidSetting``, which calls them
    ``what``."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(_is_whole(part) and int(part) < 2**31 for part in parts):
        raise Malformed(
            f"The {what.lower()} {text[:60]!r} cannot be read: expected whole numbers of at least 0, such as {example}."
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


class RuleField(NamedTuple):
    """A field of rules that ask the same."""

    part: str
    """of ``METHOD_GROUPS``, whose rules are in one field or in several"""
    label: str
    kinds: tuple[str, ...]


RULE_FIELDS = {
    "baselines": RuleField("baselines", "Baselines", PLAIN_RULES),
    "by divergence": RuleField("tuned", "Divergence: how far the two models differ", BY_DIVERGENCE),
    "by likelihood": RuleField("tuned", "Likelihood: what the target thinks of the token", BY_LIKELIHOOD),
    "by mixture": RuleField("tuned", "Mixtures: something between the two models", BY_MIXTURE),
    "several": RuleField("several", "Several drafts at once, for sampling", SEVERAL),
    "beam rules": RuleField("several", "Beams, for sampling", BEAM_RULES),
}
"""fields by name"""


def rule_fields(chosen: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the fields, made in the caller's context, by name. ``chosen``: rules by the name of their field.

    They are folded to the chosen rules until a person unfolds them.
    """
    with gr.Column(elem_id="rules"):
        fields: dict[str, Any] = {
            name: gr.CheckboxGroup(
                [(_choice(kind), kind) for kind in field.kinds], value=chosen.get(name, []), label=field.label
            )
            for name, field in RULE_FIELDS.items()
        }
        more = render("experiments/form.html", "all_rules", f"All {len(RULES)} rules")
        show(more, js_on_load=script("experiments/all_rules.js"))
    return fields


def _choice(kind: str) -> str:
    """Return a rule's title, and in a second line what it costs and does. The style sheet folds that line."""
    return f"{RULES[kind].title}\n{cost(kind).capitalize()}. {RULES[kind].explanation}"


def by_part(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of the form by name, with the chosen rules by the parts of ``METHOD_GROUPS``."""
    parts = {
        part: [kind for name, field in RULE_FIELDS.items() if field.part == part for kind in values[name] or ()]
        for part, _ in METHOD_GROUPS
    }
    return {name: value for name, value in values.items() if name not in RULE_FIELDS} | parts


def by_field(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the form's fields: the reverse of :func:`by_part`."""
    fields = {
        name: [kind for kind in field.kinds if kind in values[field.part]]
        for name, field in RULE_FIELDS.items()
        if field.part in values
    }
    return {name: value for name, value in values.items() if name not in dict(METHOD_GROUPS)} | fields


_ID = re.compile("[0-9a-f]{32}")
MOST_REPEATED = 20
"""runs that a link may name to be measured again"""
_SAMPLING = tuple(name for name, option in METHOD_OPTIONS.items() if option.part == "sampling")


def prefilled(repository: Repository, query: Mapping[str, str], person: Person = NOBODY) -> dict[str, Any]:
    """Return values of the form's fields by name, or none if the link names neither a run nor a job.

    ``like=`` is the id of a run. ``rules=`` has comma-separated baselines that replace the run's own rule. Sampling
    options may be named too. Invalid values in a link are replaced by the run's.

    ``settings=`` is the id of a job of the Playground, whose settings are measured, and ``task=`` the name of a task.

    ``again=`` has ids of runs between commas, whose settings are measured once more, on ``limit=`` prompts.

    Raises ``UnknownName`` for a pair that is not known here, and for a job that is somebody else's.
    """
    if ids := [id for id in query.get("again", "").split(",") if _ID.fullmatch(id)]:
        return _of_runs(repository, ids, query.get("limit", ""))
    id = query.get("settings", "")
    if not _ID.fullmatch(id):
        return _of_run(repository, query)
    values = _of_job(repository, id, person)
    if name := query.get("task"):
        task = find_task(name, repository)
        values |= {"task": task.name, "limit": min(task.size, pair_defaults(values["pair"]).limit)}
    return values


def _of_job(repository: Repository, id: str, person: Person) -> dict[str, Any]:
    """Return the settings of a Playground job as lists of an experiment, which measures every combination."""
    state = repository.job(id)
    if state.kind != PlaygroundJob.kind:
        raise UnknownName("The link names no texts of the Playground: open it there again.")
    job = PlaygroundJob.read(state.payload)
    if job.owner not in (None, person.name if person.known else None):
        raise UnknownName("The settings of this link are somebody else's: choose your own here.")
    spec = get_pair(job.pair)
    return {"pair": job.pair, "seeds": f"{job.seed}", "task": offered(spec)[0].name} | _of_decodings(job.decodings)


def _of_runs(repository: Repository, ids: Sequence[str], limit: str) -> dict[str, Any]:
    """Return the settings of runs as lists of an experiment on the same task, with more prompts if it has them."""
    by_id = {run.id: run for run in repository.runs(ids=ids[:MOST_REPEATED])}
    if not (runs := [by_id[id] for id in ids if id in by_id]):
        return {}
    first = runs[0]
    get_pair(first.pair)
    prompts = int(limit) if limit.isascii() and limit.isdigit() and len(limit) < 7 else first.config.limit
    values: dict[str, Any] = {
        "pair": first.pair, "task": first.task, "seeds": f"{first.seed}", "batch": first.config.batch,
        "rates": _rate(first.config),
        "limit": max(1, min(find_task(first.task, repository).size, prompts)),
    }  # fmt: skip
    return values | _of_decodings([run.decoding for run in runs if run.pair == first.pair])


def _of_decodings(decodings: Sequence[DecodingConfig]) -> dict[str, Any]:
    """Return the options of some settings as lists of an experiment, which measures every combination."""
    kinds = [*dict.fromkeys(decoding.acceptance.kind for decoding in decodings)]
    values: dict[str, Any] = {
        "baselines": [kind for kind in kinds if kind in PLAIN_RULES],
        "tuned": [kind for kind in kinds if kind in TUNED],
        "several": [kind for kind in kinds if kind in (*SEVERAL, *BEAM_RULES)],
    }  # fmt: skip
    for name, option in METHOD_OPTIONS.items():
        if name == "acceptance":
            continue
        found = [
            *dict.fromkeys(
                options[name] for options in map(options_of, decodings) if name in options and reads(option, options)
            )
        ]
        if option.is_knob:
            found = [OFF if value is None else f"{value:g}" for value in found]
        if found:
            listed = option.is_knob or name in LENGTH_OPTIONS
            values[name] = found if name in LISTED else ", ".join(map(str, found)) if listed else found[0]
    return values


def _of_run(repository: Repository, query: Mapping[str, str]) -> dict[str, Any]:
    id = query.get("like", "")
    if not _ID.fullmatch(id):
        return {}
    try:
        run = repository.run(id)
    except UnknownName:
        return {}
    get_pair(run.pair)
    options = effective_options(run.config)
    rules = [kind for kind in query.get("rules", "").split(",") if kind in PLAIN_RULES]
    values: dict[str, Any] = {
        "pair": run.pair, "task": run.task, "limit": run.config.limit, "seeds": f"{run.seed}",
        "batch": f"{run.config.batch}", "rates": _rate(run.config),
        "baselines": rules or ["autoregressive", "speculative"], "tuned": [], "several": [],
        "endpoints": [served.endpoint] if isinstance(served := run.decoding.acceptance, Served) else [],
    }  # fmt: skip
    for name, option in METHOD_OPTIONS.items():
        if name not in options or name == "acceptance" or option.is_knob:
            continue
        value = options[name]
        values[name] = [value] if name in LISTED else f"{value}" if name in LENGTH_OPTIONS else value
    return values | {name: number for name in _SAMPLING if (number := _number(query.get(name, ""))) is not None}


def _rate(config: RunConfig) -> str:
    return f"{config.rate:g}" if config.rate else ""


def _number(text: str) -> float | None:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


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
