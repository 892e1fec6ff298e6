"""Playground: one prompt decoded by the worker with up to four settings, displayed side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.playground.job_panels import (
    MOST_OUTPUT_PANELS,
    VISITORS_NOTE,
    FollowedJob,
    FollowedJobs,
    JobPanels,
    Visitors,
    owner_of,
    slow_pair,
)
from dashboard.ui.components import PRIVATE_EVENT, heading, notice, page_note, show
from dashboard.ui.fields import (
    ARGUMENTS,
    about,
    choices,
    decoding_of,
    field,
    is_default,
    knob_range,
    number,
    pair_badges,
    pair_choices,
    pair_defaults,
    redraw_pairs,
    settings_of,
    visible_fields,
)
from dashboard.ui.templates import Html, joined, render, script
from dashboard.ui.view import Act, Asked, Polled, Updates, Values, View, digest
from fsd_core.config import LONGEST_PROMPT, DecodingConfig
from fsd_core.config.decoding_config import JUDGING_OPTIONS
from fsd_core.config.options import METHOD_OPTIONS, OPTIONS
from fsd_core.errors import DatabaseUnavailable, FsdError, NotGiven, OutOfRange, Refused, Stale
from fsd_core.metrics import SHARED_DEVICE
from fsd_core.models.model_pairs import MODEL_PAIRS, check_drafter, get_pair, is_known
from fsd_core.roles import same_name
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.tasks import get_task
from fsd_core.tasks.custom.custom_task import NARROW_HINT
from fsd_core.worker import lent_gpu
from fsd_core.worker.pair_names import check_offered

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.repository import Repository


CARD_OPTIONS = [
    name
    for name, option in METHOD_OPTIONS.items()
    if option.part in ("acceptance", "drafter", "topology") or name in JUDGING_OPTIONS
]
OF_DRAFT = [name for name in CARD_OPTIONS if METHOD_OPTIONS[name].part in ("drafter", "topology")]
OF_RULE = [name for name in CARD_OPTIONS if name != "acceptance" and name not in OF_DRAFT]
RARE = [
    name
    for name in CARD_OPTIONS
    if METHOD_OPTIONS[name].type is bool or name in ("strict_first", "lenient_in", "length_by")
]
"""options that few people change"""
_DIALS = [*OF_RULE, *OF_DRAFT]
_SELECTORS = [name for name in CARD_OPTIONS if METHOD_OPTIONS[name].choices]
WIDE = {"divergence", "drafter", "topology", "length_by"}
DEFAULTS = ("speculative", "fsd-reducible", "autoregressive", "fsd")
"""the rule of each setting before anybody changes it"""
_LENGTH = {"draft_length": "exact_length"}
_PAIR_DEFAULTS = (_LENGTH, {"threshold": "threshold", "draft_length": "draft_length"}, {}, _LENGTH)
"""for each setting, the fields whose default depends on the pair, with the name of the default in ``PairDefaults``"""


class SettingCard:
    """A line on one setting that opens on its controls. Those that the chosen algorithm does not read are hidden."""

    def __init__(self, number: int, kind: str, **initial: Any) -> None:
        """``initial`` are first values of fields that differ from the options' defaults."""
        self.title = f"Setting {number}"
        properties = control_properties(
            {name: METHOD_OPTIONS[name].default for name in CARD_OPTIONS} | {"acceptance": kind}
        )
        for name, value in initial.items():
            properties[name]["value"] = value
        self.fields: dict[str, Any] = {}
        with gr.Column(min_width=250, visible=number <= 2, elem_classes=["setting"]) as self.column:
            with gr.Row(elem_classes=["setting-head"]):
                show(render("playground/playground.html", "fold", self.title), elem_id=f"setting-{number}")
                self.line = show(elem_classes=["setting-line"])
            # Hidden by the style sheet, not in an accordion: its fields would appear with what they were built with.
            with gr.Column(elem_classes=["setting-body"]):
                self.fields["acceptance"] = gr.Dropdown(choices(METHOD_OPTIONS["acceptance"]), value=kind, label="Rule")
                self.about = show(properties["about"]["value"])
                for names in (OF_RULE, OF_DRAFT):
                    self._add_dials([name for name in names if name not in RARE], properties)
                with gr.Column(visible=_any_rare(properties), elem_classes=["rare"]) as self.rare:
                    show(render("playground/playground.html", "fold", "Rarely changed"))
                    self._add_dials(RARE, properties)
        self.line.value = self.line_html({part: part.value for part in self.fields.values()})
        self.outputs = [self.column, self.line, self.rare, self.about, *self.fields.values()]
        """components that may change"""

    def _add_dials(self, names: Iterable[str], properties: Mapping[str, Any]) -> None:
        with gr.Row(elem_classes=["dials"]):
            for name in names:
                scale = 2 if name in WIDE else 1
                self.fields[name] = field(METHOD_OPTIONS[name], scale=scale, **properties[name])

    def line_html(self, values: Mapping[Any, Any]) -> Html:
        """Return what the setting is in one line, or what its fields lack, from the components' ``values``."""
        try:
            text = decoding_of(self.values(values)).label
        except FsdError as error:
            text = str(error)
        return render("playground/playground.html", "setting_line", text)

    def values(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the chosen values by option, from the components' ``values``."""
        return {name: values[part] for name, part in self.fields.items()}

    def selected(self, values: Mapping[Any, Any]) -> list[Any]:
        """Return the choices that decide which controls are displayed."""
        return [values[self.fields[name]] for name in _SELECTORS]

    def redraw(self, asked: Asked, values: Mapping[Any, Any]) -> Updates:
        """Return the line of the setting, and the controls that the chosen algorithm reads, with the range of its knob,
        as far as they differ."""
        updates: Updates = {}
        if asked.differs(f"{self.title} in a line", list(self.values(values).values())):
            updates[self.line] = self.line_html(values)
        if not asked.differs(self.title, self.selected(values)):
            return updates
        parts = {"about": self.about, **self.fields}
        properties = control_properties(self.values(values))
        updates[self.rare] = gr.Column(visible=_any_rare(properties))
        return updates | {parts[name]: gr.update(**options) for name, options in properties.items()}

    def restore(self, asked: Asked, method: DecodingConfig) -> None:
        """Fill in what requested ``method``. Controls that it does not read stay unchanged."""
        for name, value in settings_of(method).items():
            if name in self.fields:
                asked.fill(self.fields[name], value)


def _any_rare(properties: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether one of the options that few people change is there."""
    return any(properties[name]["visible"] for name in RARE)


def default_cards(pair: str) -> list[SettingCard]:
    """Build a card for each setting, with the defaults of a pair."""
    defaults = pair_defaults(pair)
    return [
        SettingCard(i + 1, kind, **{name: getattr(defaults, value) for name, value in fields.items()})
        for i, (kind, fields) in enumerate(zip(DEFAULTS, _PAIR_DEFAULTS, strict=True))
    ]


def fill_defaults(cards: Sequence[SettingCard], asked: Asked, pair: str) -> None:
    """Fill in the defaults measured for a pair, in fields that nobody has changed."""
    defaults = pair_defaults(pair)
    for card, fields in zip(cards, _PAIR_DEFAULTS, strict=True):
        for name, value in fields.items():
            if is_default(value, asked[card.fields[name]]):
                asked.fill(card.fields[name], getattr(defaults, value))


def control_properties(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each control's properties for the chosen values, by option name. ``about`` is the explanation."""
    kind = values["acceptance"]
    divergence = values.get("divergence") or METHOD_OPTIONS["divergence"].default
    fields = visible_fields(values, _DIALS)
    options: dict[str, dict[str, Any]] = {name: {"visible": visible} for name, visible in fields.items()}
    for name in _DIALS:
        if METHOD_OPTIONS[name].is_knob and options[name]["visible"]:
            options[name]["info"] = knob_range(kind, METHOD_OPTIONS[name], divergence)
    return {"about": {"value": about(kind, divergence)}, **options}


EXAMPLES = 8
BUNDLED = "bundled"
HINT = f"{NARROW_HINT} The text is sent as it is."
CHAT_HINT = "Sent as a user message if the model has a chat template, otherwise as it is."
QUESTIONS = (
    "Why is the sky blue? Answer in three sentences.",
    "Tom has 3 boxes of 12 pencils and gives 7 pencils away. How many does he have left? Think step by step.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Translate into French: The train to the coast leaves at seven, and I have not packed yet.",
    "Summarise in one sentence: Bees find flowers by sight and smell, carry nectar to the hive, and tell the others "
    "by a dance in which direction and how far away they found it.",
    "Write a short poem about a lighthouse in winter.",
    "Give me five ideas for a rainy afternoon with children.",
    "Explain to a beginner what a database index is, and when it does harm.",
)
# Options that all settings share, with a hint and what differs from the option table on this page.
SAMPLING: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("temperature", "0 is greedy", {}),
    ("top_k", "0 is off", {}),
    ("top_p", "1 is off", {}),
    ("min_p", "0 is off", {}),
    ("max_new_tokens", "At most", {"label": "Tokens"}),
)
TEMPLATE_FIELDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("template_arguments", "JSON, for the model's chat template", {"placeholder": ARGUMENTS}),
    ("template_date", "What it is told as today's", {}),
)


def _is_narrow(pair: str) -> bool:
    """Return whether a pair knows only the problems that ship with the program."""
    return pair in MODEL_PAIRS and MODEL_PAIRS[pair].narrow


def examples_of(pair: str) -> list[tuple[str, str]]:
    """Return short names and prompts of a pair's examples. The most telling one of its calibration comes first."""
    if _is_narrow(pair):
        problems, first_id = get_task("arithmetic").all_examples(), pair_defaults(pair).example
        first_example = [problem for problem in problems if problem.id == first_id]
        remaining = [problem for problem in problems[:EXAMPLES] if problem.id != first_id]
        return [(_question(example.prompt), example.prompt) for example in [*first_example, *remaining][:EXAMPLES]]
    return [(question, question) for question in QUESTIONS]


def _question(prompt: str) -> str:
    return prompt.removeprefix("Question: ").removesuffix("\nAnswer:")


def _fields(rows: Sequence[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    return {name: field(METHOD_OPTIONS[name], info=info, min_width=76, **more) for name, info, more in rows}


class PromptForm:
    """The form's components as attributes."""

    def __init__(self) -> None:
        examples = examples_of(BUNDLED)
        with gr.Row(equal_height=True, elem_classes=["asking"]):
            with gr.Column(scale=3, min_width=320):
                self.prompt = gr.Textbox(
                    examples[0][1],
                    label="Prompt",
                    elem_id="prompt-text",
                    info=HINT,
                    lines=3,
                    max_lines=12,
                    max_length=LONGEST_PROMPT,
                )
            with gr.Column(scale=2, min_width=320):
                with gr.Row():
                    self.pair = gr.Dropdown(
                        [(spec.title, name) for name, spec in MODEL_PAIRS.items()], value=BUNDLED, label="Model pair",
                        min_width=150, allow_custom_value=True,
                    )  # fmt: skip
                    self.example = gr.Dropdown(examples, value=examples[0][1], label="Example", min_width=150)
                with gr.Accordion(self._summary(), open=False, elem_id="sampling") as self.sampling:
                    with gr.Row(elem_classes=["sampling"]):
                        self.shared = _fields(SAMPLING)
                        self.seed = field(OPTIONS["seed"], info="Repeatable", min_width=76)
                    with gr.Row():
                        self.shared |= _fields(TEMPLATE_FIELDS)
        # In the browser, and only when a person chooses, so that nothing being typed is lost.
        gr.on(
            [self.example.select, self.example.input], None, self.example, self.prompt,
            js=script("playground/example.js"), trigger_mode="multiple", **PRIVATE_EVENT,
        )  # fmt: skip
        self.fields = {"pair": self.pair, "prompt": self.prompt, "seed": self.seed, **self.shared}
        """the fields by name, except the examples, which only fill in the prompt"""

    @staticmethod
    def _summary(*values: Any) -> str:
        """Return sampling and seed in a line, by default those of the form before anybody changed it."""
        names = [name for name, *_ in (*SAMPLING, *TEMPLATE_FIELDS)]
        values = values or (*(METHOD_OPTIONS[name].default for name in names), OPTIONS["seed"].default)
        chosen = dict(zip((*names, "seed"), values, strict=True))
        parts = [f"at most {chosen['max_new_tokens']} tokens", f"seed {chosen['seed']}"]
        changed = [
            f"{METHOD_OPTIONS[name].title.lower()} {chosen[name]}"
            for name in names
            if name not in ("temperature", "max_new_tokens") and chosen[name] != METHOD_OPTIONS[name].default
        ]
        temperature = f"temperature {chosen['temperature']}" if chosen["temperature"] else "greedy"
        return f"Sampling: {', '.join([temperature, *changed, *parts])}"

    def redraw(self, asked: Asked, pair: str, *, chosen: bool) -> Updates:
        """Return the hint and the examples of a pair, the example that is loaded, and the sampling, if they differ.

        If the pair was ``chosen``, its first example replaces one of another pair.
        """
        updates, examples = self._redraw_sampling(asked), examples_of(pair)
        if asked.differs("pair", pair):
            other_examples = examples_of("" if _is_narrow(pair) else BUNDLED)
            if chosen and any(asked[self.prompt] == prompt for _, prompt in other_examples):
                asked.fill(self.prompt, examples[0][1])
            updates[self.prompt] = gr.Textbox(info=HINT if _is_narrow(pair) else CHAT_HINT)
        prompt = asked.current(self.prompt)
        loaded = next((text for _, text in examples if text == prompt), None)
        if asked.differs("example", pair, loaded):
            updates[self.example] = gr.Dropdown(examples, value=loaded)
        return updates

    def _redraw_sampling(self, asked: Asked) -> Updates:
        """Return the line that the sampling folds to, if it differs. It is unfolded once if it is not the usual one."""
        values = [asked.current(part) for part in (*self.shared.values(), self.seed)]
        if not asked.differs("sampling", values):
            return {}
        summary, usual = self._summary(*values), self._summary()
        opened: dict[str, Any] = {"open": True} if summary != usual and asked.differs("sampling opened", True) else {}
        return {self.sampling: gr.update(label=summary, **opened)}

    @property
    def built(self) -> dict[str, str]:
        """Digests of the form's parts before the first answer."""
        usual = [part.value for part in (*self.shared.values(), self.seed)]
        return {"example": digest(BUNDLED, self.example.value), "sampling": digest(usual)}

    def values(self, values: Mapping[Any, Any]) -> tuple[str, str, int, dict[str, Any]]:
        """Return pair, prompt, seed, and the shared options by name, from the components' ``values``.

        Raises ``InvalidSetting`` for an empty seed.
        """
        shared = {name: values[part] for name, part in self.shared.items()}
        return values[self.pair], values[self.prompt], number(OPTIONS["seed"], values[self.seed]), shared

    def restore(self, asked: Asked, message: PlaygroundJob, method: DecodingConfig) -> None:
        """Fill in what requested a job. A pair that is no longer offered is ignored."""
        asked.fill(self.prompt, message.prompt)
        asked.fill(self.seed, message.seed)
        self.restore_sampling(asked, message.pair, method)

    def restore_sampling(self, asked: Asked, pair: str, method: DecodingConfig) -> None:
        """Fill in a pair, unless it is no longer offered, and what a setting shares with the others."""
        if is_known(pair):
            asked.fill(self.pair, pair)
        options = settings_of(method)
        for name, part in self.shared.items():
            asked.fill(part, options[name])


def check_choices(fields: Iterable[Any], values: Mapping[Any, Any]) -> None:
    """Raise ``InvalidSetting`` if a list among the fields lacks what was chosen of it."""
    for part in fields:
        if isinstance(part, gr.Dropdown) and all(values[part] != choice for _, choice in part.choices):
            raise Stale(f"{part.label} has no such choice: reload the page.")


def requested(
    form: PromptForm, cards: Sequence[SettingCard], values: Mapping[Any, Any], owner: str | None
) -> PlaygroundJob:
    """Return what the form and these cards ask for. Raises ``InvalidSetting``."""
    pair, prompt, seed, sampling = form.values(values)
    decodings = [decoding_of(card.values(values) | sampling) for card in cards]
    for decoding in decodings:
        check_drafter(pair, decoding)
    return payload(pair, prompt, seed, decodings, owner)


def differs(form: PromptForm, cards: Sequence[SettingCard], values: Mapping[Any, Any], message: PlaygroundJob) -> bool:
    """Return whether the form and these cards ask for something else than a job did."""
    try:
        asked = requested(form, cards, values, message.owner)
        return (asked.pair, asked.prompt, asked.seed) != (message.pair, message.prompt, message.seed) or (
            asked.decodings != message.decodings
        )
    except FsdError:
        return True


def payload(
    pair: str, prompt: str, seed: int, decodings: Sequence[DecodingConfig], owner: str | None = None
) -> PlaygroundJob:
    """Return the job's payload. Raises ``InvalidSetting`` for an empty or too long prompt, or an invalid seed."""
    if len(prompt) > LONGEST_PROMPT:
        raise OutOfRange(f"The prompt has {len(prompt):,} characters: expected at most {LONGEST_PROMPT:,}.")
    if not prompt.strip():
        raise NotGiven("The prompt is empty: write one, or pick an example.")
    if not 0 <= seed < 2**31:
        raise OutOfRange(f"The seed {seed} cannot be used: expected a whole number from 0 to {2**31 - 1}.")
    return PlaygroundJob.of(pair, prompt, seed, decodings, owner)


_PAIRS_SECONDS = 1.0
_MEASURED_SECONDS = 10.0
_POLL_SECONDS = 0.15
_PRIORITY = 10
_LEAD = "See what a setting does to one text. The colour of each token says how it was produced."
_BOUNDS = {
    1: "The last setting stays: there is nothing to generate without one.",
    MOST_OUTPUT_PANELS: f"These are all: at most {MOST_OUTPUT_PANELS} settings take turns.",
}
"""why a setting can be neither added nor removed, by the number of settings"""
_ID = re.compile("[0-9a-f]{32}")


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    Playground(repository, Visitors(repository) if settings.demo else None, settings.executor)


class Playground:
    """The page's components as attributes, and what it shows of a job.

    ``asked.shown["job"]`` is the job that the browser shows, or an empty text.
    """

    def __init__(self, repository: Repository, visitors: Visitors | None, executor: Executor) -> None:
        self.repository, self.visitors, self.jobs = repository, visitors, FollowedJobs(repository)
        self.executor: Executor = executor
        self.pairs = Polled(lambda: pair_choices(repository, pair_badges(repository)), _PAIRS_SECONDS)
        self.slow_pair = Polled(lambda pair: slow_pair(repository, pair), _MEASURED_SECONDS)
        show(joined([heading("Playground", _LEAD), page_note(VISITORS_NOTE) if visitors else ""]))
        if executor == "in-process":
            show(page_note(SHARED_DEVICE))
        self.form = PromptForm()
        with gr.Row(elem_classes=["actions"]):
            self.generate = gr.Button("Generate", variant="primary", scale=0, min_width=140, elem_id="generate")
            self.stop = gr.Button("Stop", variant="stop", scale=0, min_width=90, interactive=False)
            self.more = gr.Button("Add a setting", scale=0, min_width=130)
            self.fewer = gr.Button("Remove the last", scale=0, min_width=140)
            self.bounds = show(elem_classes=["bounds"])
        with gr.Row(elem_classes=["settings"]):
            self.cards = default_cards(BUNDLED)
        self.pays = show(elem_id="pays")
        self.texts = JobPanels(repository, self.jobs, executor)
        self.number = gr.Number(2, visible="hidden")  # of settings
        self.owner = gr.Textbox(visible="hidden")  # whose page it is
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self._built = {"pair": digest(BUNDLED), "buttons": digest(False, False), "number": digest(2, 2)}
        self._built |= {"pays": digest("")} | self.form.built | self.texts.built
        self._built |= {
            card.title: digest(card.selected({part: part.value for part in card.fields.values()}))
            for card in self.cards
        }
        """what the page shows before the first answer"""
        self._listen()

    @property
    def fields(self) -> list[Any]:
        """What a person fills in."""
        return [
            *self.form.fields.values(),
            self.number,
            *(part for card in self.cards for part in card.fields.values()),
        ]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` may change."""
        return [
            self.form.pair, self.form.example, self.form.prompt, self.form.sampling, self.pays,
            *(part for card in self.cards for part in card.outputs), self.generate, self.stop, self.more, self.fewer,
            self.bounds, *self.texts.columns, *self.texts.outputs, self.clock,
        ]  # fmt: skip

    def _listen(self) -> None:
        for button, step in ((self.more, 1), (self.fewer, -1)):
            js = script("playground/step.js", STEP=step, MOST=MOST_OUTPUT_PANELS)
            button.click(None, self.number, self.number, js=js, trigger_mode="multiple", **PRIVATE_EVENT)
        view = View(self.texts.verdict, self.fail)
        asking = [*self.fields, self.owner]
        view.button(self.generate, "generate", asking, self.start, js=script("playground/generate.js"))
        view.by_script(self.stop.click, [], script("playground/stop.js"))
        view.act("stop", self.cancel)
        self.texts.listen(view)
        view.on(self.clock.tick)
        view.listen(self.redraw, self.fields, self.outputs, [self.owner], kept=asking)

    def start(self, values: Values, asked: Asked) -> None:
        """Begin the job of an act, once. Raises ``FsdError`` with what is wrong."""
        if not self._is_own(values[self.owner], asked):
            return
        if self.repository.find_job(values.key) is None:
            self._begin(values, asked)
        asked.shown["job"] = values.key

    def _begin(self, values: Values, asked: Asked) -> None:
        check_offered(self.repository, values[self.form.pair])
        check_choices((part for part in self.fields if part is not self.form.pair), values)
        message = requested(self.form, self._chosen_cards(values), values, owner_of(asked))
        if self._is_open(asked.shown.get("job"), asked):
            raise Refused("The texts of this page are still being written: stop them, or wait for their end.")

        def enqueue() -> str:
            return self.repository.enqueue(message, _PRIORITY, values.key)

        if self.visitors is None:
            enqueue()
        else:
            visit = str(asked.request.session_hash)
            self.visitors.begin(asked.person, visit, message.pair, message.decodings, enqueue)
        lent_gpu.remember_requester(values.key)

    def _chosen_cards(self, values: Mapping[Any, Any]) -> list[SettingCard]:
        """Return the cards of the settings that take turns."""
        return self.cards[: _clamped(values[self.number])]

    def _is_open(self, id: str | None, asked: Asked) -> bool:
        try:
            return bool(id) and not self.jobs.read(id, owner_of(asked)).ended
        except FsdError:
            return False

    def cancel(self, act: Act, asked: Asked) -> None:
        """Ask the worker to stop a job. The page follows it until it has."""
        self.jobs.read(act["job"], owner_of(asked))
        self.repository.request_cancel(act["job"])

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error in place of what was asked for."""
        return {self.texts.verdict: notice(str(error), "bad")}

    def redraw(self, asked: Asked) -> Updates:
        """Return what differs of the form and of the job that the page follows."""
        typed = asked.reloaded and self._is_own(asked[self.owner], asked)
        if asked.reloaded and not typed:
            for field in self.fields:
                asked.fill(field, field.value)
        asked.fill(self.owner, owner_of(asked) or "")
        opening, chosen = "job" not in asked.shown, "pair" in asked.shown
        asked.shown |= {} if asked.shown else self._built
        job, failed = None, None
        try:
            if opening:
                named = not asked.reloaded and self._fill_named(asked)
                asked.shown["job"] = "" if named else self._remembered(asked)
            job = self._followed(asked)
        except FsdError as error:
            failed = error
        if opening and job and not typed:
            self._restore_form(asked, job.message)
        form = self._redraw_form(asked, job, chosen=chosen)
        return form | (self._redraw_failure(asked, failed) if failed else self._redraw_job(asked, job))

    @staticmethod
    def _is_own(owner: str, asked: Asked) -> bool:
        """Return whether a form is the asking person's. Somebody else may have signed in since it was filled in."""
        return not owner or same_name(owner, owner_of(asked) or "")

    def _fill_named(self, asked: Asked) -> bool:
        """Fill in what the page's address names, and return whether it names something: ``setting=`` is the id of a
        setting, beside exact speculative decoding or the target alone; ``pair=`` a pair, with what was measured of it;
        ``prompt=`` a text. Raises ``UnknownName``.
        """
        address = asked.address
        if id := address.get("setting"):
            setting = self.repository.setting(id).config
            fill_defaults(self.cards, asked, setting.pair)
            rule = "autoregressive" if setting.decoding.acceptance.is_exact else "speculative"
            asked.fill(self.cards[0].fields["acceptance"], rule)
            self.cards[1].restore(asked, setting.decoding)
            self.form.restore_sampling(asked, setting.pair, setting.decoding)
        elif pair := address.get("pair"):
            get_pair(pair)
            asked.fill(self.form.pair, pair)
            fill_defaults(self.cards, asked, pair)
        if prompt := address.get("prompt"):
            asked.fill(self.form.prompt, prompt)
        return any(address.get(name) for name in ("setting", "pair", "prompt"))

    def _remembered(self, asked: Asked) -> str:
        """Return the job that the page's address names, or else the one that this browser showed last; an empty text if
        it is unknown or somebody else's."""
        id = asked.address.get("job") or asked.wanted("job")
        if not isinstance(id, str) or not _ID.fullmatch(id):
            return ""
        try:
            job = self.jobs.read(id, owner_of(asked))
        except DatabaseUnavailable:
            raise
        except FsdError:
            return ""
        return "" if job.status == "finished" and not job.has_output else id  # its text is no longer stored

    def _followed(self, asked: Asked) -> FollowedJob | None:
        id = asked.shown["job"]
        return self.jobs.read(id, owner_of(asked)) if id else None

    def _restore_form(self, asked: Asked, message: PlaygroundJob) -> None:
        """Fill in the form that requested a job."""
        decodings = message.decodings
        self.form.restore(asked, message, decodings[0])
        asked.fill(self.number, len(decodings))
        for card, decoding in zip(self.cards, decodings, strict=False):
            card.restore(asked, decoding)

    def _redraw_form(self, asked: Asked, job: FollowedJob | None, *, chosen: bool) -> Updates:
        """Return what differs of the form. If the person has ``chosen`` the pair, its defaults are filled in."""
        pair = asked.current(self.form.pair)
        updates = self.form.redraw(asked, pair, chosen=chosen)
        if updates and chosen and any(pair == name for _, name in self.pairs()):
            fill_defaults(self.cards, asked, pair)
        updates |= redraw_pairs(asked, self.form.pair, self.pairs())
        if asked.differs("pays", slow := self.slow_pair(pair)):
            updates[self.pays] = notice(slow, "warn") if slow else ""
        values = self._values(asked)
        for card in self.cards:
            updates |= card.redraw(asked, values)
        number = _clamped(values[self.number])
        texts = max(number, len(job.panels)) if job else number
        if asked.differs("number", number, texts):
            updates |= {column: gr.Column(visible=i < texts) for i, column in enumerate(self.texts.columns)}
            updates |= {card.column: gr.Column(visible=i < number) for i, card in enumerate(self.cards)}
            updates |= {
                self.more: gr.Button(interactive=number < MOST_OUTPUT_PANELS),
                self.fewer: gr.Button(interactive=number > 1),
                self.bounds: page_note(_BOUNDS[number]) if number in _BOUNDS else "",
            }
        return updates

    def _values(self, asked: Asked) -> dict[Any, Any]:
        """Return the values of the fields as this answer leaves them."""
        return {field: asked.current(field) for field in self.fields}

    def _redraw_job(self, asked: Asked, job: FollowedJob | None) -> Updates:
        """Return what differs of the texts, and of the buttons."""
        values = self._values(asked)
        updates = self.texts.redraw(
            asked, job, list(values.values()),
            lambda message: differs(self.form, self._chosen_cards(values), values, message),
        )  # fmt: skip
        return updates | self._redraw_buttons(asked, job)

    def _redraw_failure(self, asked: Asked, error: FsdError) -> Updates:
        """Return why the job cannot be shown. A database that does not answer may do so at the next tick."""
        updates = self.texts.failed(asked, error)
        return updates if isinstance(error, DatabaseUnavailable) else updates | self._redraw_buttons(asked, None)

    def _redraw_buttons(self, asked: Asked, job: FollowedJob | None) -> Updates:
        running, stoppable = (not job.ended, not (job.ended or job.cancel_requested)) if job else (False, False)
        if not asked.differs("buttons", running, stoppable):
            return {}
        return {
            self.clock: gr.Timer(active=running),
            self.generate: gr.Button(interactive=not running),
            self.stop: gr.Button(interactive=stoppable),
        }


def _clamped(number: Any) -> int:
    """Return a possible number of settings."""
    return int(min(max(number, 1), MOST_OUTPUT_PANELS)) if isinstance(number, int | float) else 2
