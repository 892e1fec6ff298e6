"""Form fields that pages share, made from the table of options."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.ui.components import show
from dashboard.ui.templates import Html, render, script
from dashboard.ui.view import Act, Asked, Updates, View
from fsd_core.analysis.matching import behind
from fsd_core.config import DRAFTERS, RULES, TOPOLOGIES, VERIFIERS, DecodingConfig, divergence_upper_bound
from fsd_core.config.drafting import LENGTH_TITLES, MEMORY_TITLES, SEARCH_TITLES, TABLE_TITLES
from fsd_core.config.options import METHOD_OPTIONS, OFF, OPTIONS, Option, method, options_of, reads
from fsd_core.errors import Malformed, NotGiven, OutOfRange, Unreadable
from fsd_core.models.model_pairs import MODEL_PAIRS, USUAL_PROMPTS, calibration_of
from fsd_core.models.pair_check import HERE, badge_of
from fsd_core.rules.base import divergence_fact, divergence_title, divergence_unit
from fsd_core.texts import count
from fsd_core.worker.pair_names import device_memory, offered_pairs

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository


def optional_number(label: str, info: str, value: str = "") -> gr.Textbox:
    """Return a field for a number or nothing."""
    return gr.Textbox(value, label=label, info=info, max_length=12, min_width=110)


def read(text: str | None, label: str, kind: type[int] | type[float] = float) -> Any:
    """Return the number, or ``None`` for nothing. Raises ``InvalidSetting`` for anything else."""
    stripped = (text or "").strip().lstrip("#")
    if not stripped:
        return None
    try:
        return kind(stripped)
    except ValueError:
        whole = "a whole number" if kind is int else "a number"
        raise Malformed(f"“{label}” is {stripped[:20]!r}: expected {whole}, or nothing.") from None


# Rules without a knob are baselines, those with one are tuned.
TUNED = tuple(kind for kind, rule in RULES.items() if rule.knob is not None)
SEVERAL = tuple(VERIFIERS)
BEAM_RULES = tuple(kind for kind, rule in RULES.items() if rule.writes_beams)
PLAIN_RULES = tuple(kind for kind in RULES if kind not in (*TUNED, *SEVERAL, *BEAM_RULES))
# Tuned rules by what they ask: how far the models differ, what both distributions mix to, how likely the token is.
BY_DIVERGENCE = tuple(
    kind for kind in TUNED if "divergence" in RULES[kind].model_fields or hasattr(RULES[kind], "divergence")
)
BY_MIXTURE = tuple(kind for kind in TUNED if RULES[kind].needs_distribution and kind not in BY_DIVERGENCE)
BY_LIKELIHOOD = tuple(kind for kind in TUNED if kind not in (*BY_DIVERGENCE, *BY_MIXTURE))
RULE_CHOICES = [(rule.long_title or rule.title, kind) for kind, rule in RULES.items()]


def choices(option: Option) -> list[tuple[str, str]]:
    """Return an option's choices with their titles."""
    titles = {kind: part.title for parts in (DRAFTERS, TOPOLOGIES) for kind, part in parts.items()}
    by_option = {"length_by": LENGTH_TITLES, "memory": MEMORY_TITLES, "search": SEARCH_TITLES, "table": TABLE_TITLES}
    if option.name == "divergence":
        titles = {name: divergence_title(name) for name in option.choices}
    titles = by_option.get(option.name, titles)
    return RULE_CHOICES if option.name == "acceptance" else [(titles.get(name, name), name) for name in option.choices]


def cost(kind: str) -> str:
    """Return ``lossless``, ``lossy``, or whose distribution a rule keeps exactly if not the target's own sampling."""
    rule = RULES[kind]
    if rule.exact_for:
        return f"each layer exactly {RULES[rule.exact_for].title.lower()}"
    return "lossless" if rule.lossless else "lossy"


def knob_range(kind: str, option: Option, divergence: str) -> str:
    """Return the range of a rule's knob, such as ``0 to 0.693 nats``."""
    low, high, unit = option.low, option.high, option.unit
    selected = divergence if "divergence" in RULES[kind].model_fields else None
    if measure := getattr(RULES[kind], "divergence", selected):  # a rule may have a fixed one
        bound, unit = divergence_upper_bound(measure), divergence_unit(measure)
        low, high = 0, bound if math.isfinite(bound) else None
    if low is None:
        return "any number"
    unit = f" {unit}" if unit else ""
    return f"{low:g} or more{unit}" if high is None else f"{low:g} to {high:.3g}{unit}"


def forgiven(decoding: DecodingConfig) -> str:
    """Return the tolerance of a lenient rule, such as ``js ≤ 0.1``, or nothing for a strict one."""
    rule = decoding.acceptance
    if rule.knob is None or decoding.threshold is None:
        return ""
    return rule.label_parts(f"≤ {decoding.threshold:g}")[0]


def about(kind: str, divergence: str) -> Html:
    """Return what an algorithm does and costs in a sentence, as HTML. More of it, the facts for its knob and what was
    measured of it are folded."""
    rule = RULES[kind]
    does, _, more = rule.explanation.partition(". ")
    facts = [more] if more else []
    if "divergence" in rule.model_fields:
        facts.append(divergence_fact(divergence))
    if rule.knob is not None and rule.can_be_off():
        facts.append(f"An empty {rule.knob.field.replace('_', ' ')} turns leniency off: exact SD.")
    facts += [fact for fact in (rule.note, rule.greedy_note, *behind(kind)) if fact]
    return render("ui/page.html", "about", cost(kind), f"{does.removesuffix('.')}.", facts)


ARGUMENTS = '{"enable_thinking": false}'
"""an example of template arguments"""


def field(option: Option, **more: Any) -> Any:
    """Return the component for one value of an option. ``more`` adds to or overrides its properties."""
    properties: dict[str, Any] = {"value": option.default, "label": option.title, "min_width": 110} | more
    if option.choices:
        return gr.Dropdown(choices(option), **properties)
    if option.type is bool:
        return gr.Checkbox(**properties)
    if option.type is str:
        return gr.Textbox(**properties)
    # Without a precision, which would silently round what was typed: `number` rejects fractions instead.
    return gr.Number(step=_step(option), **properties)


def multiselect_field(option: Option, **more: Any) -> gr.Dropdown:
    """Return the component for several of an option's choices, with the default selected."""
    properties: dict[str, Any] = {"label": option.plural or option.label, "min_width": 160} | more
    return gr.Dropdown(choices(option), value=[option.default], multiselect=True, **properties)


def _step(option: Option) -> float:
    return 1 if option.type is int else 0.01 if option.is_knob else 0.05


def label(option: Option, value: Any = None) -> str:
    """Return the label of an option on a page."""
    return option.label


def decoding_of(values: Mapping[str, Any]) -> DecodingConfig:
    """Return the decoding method of a setting's fields, given by option name. Fields that nothing reads are ignored.

    An empty knob is off. Raises ``InvalidSetting`` with one sentence, also for any other empty field.
    """
    options, rule = _read(values), RULES[values["acceptance"]]
    for name, value in options.items():
        option = METHOD_OPTIONS[name]
        if rule.knob is not None and option.field == rule.knob.field and value is None:
            options[name] = OFF if rule.can_be_off() else None
        elif not option.choices:
            options[name] = number(option, value)
    return method(options, label)


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the chosen ones read."""
    visible = visible_fields(values, values)
    return {name: value for name, value in values.items() if visible[name]}


def number(option: Option, value: Any) -> Any:
    """Return a field's value in its option's type. Raises ``InvalidSetting`` for an empty field or a fraction of a
    whole."""
    if option.type not in (int, float):
        return value
    if value is None or not math.isfinite(value):
        raise NotGiven(f"{option.label} is empty: expected a {_kind(option)}.")
    if option.type is int and value != int(value):
        raise Malformed(f"{option.label} is {value:g}: expected a whole number.")
    return option.type(value)


def _kind(option: Option) -> str:
    return "whole number" if option.type is int else "number"


def visible_fields(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, bool]:
    """Return for each name whether its field leaves something to choose, given the choices in the others."""
    choices = {name: value for name, value in values.items() if METHOD_OPTIONS[name].choices}
    return {name: reads(METHOD_OPTIONS[name], choices) for name in names}


def settings_of(decoding: DecodingConfig) -> dict[str, Any]:
    """Return the options of a decoding method with their values, by name, except those that it does not read."""
    return _read(options_of(decoding))


UNCALIBRATED = "Nothing has been measured of this pair yet: these are usual values."
OTHER_TASK = "Nothing has been measured of this pair on this task: these values are of another one."


class PairDefaults(NamedTuple):
    """The values that a form's fields have before anybody changes them."""

    thresholds: str
    """thresholds of an experiment"""
    limit: int
    """prompts of an experiment"""
    lengths: str
    """draft lengths of an experiment: the best one of exact speculative decoding, and the best lenient one"""
    exact_length: int
    """draft length at which exact speculative decoding is fastest"""
    threshold: float
    """threshold of the Playground's lenient setting: the one that was measured to be the fastest that costs nothing"""
    draft_length: int
    """draft length of that setting"""
    example: str | None
    """id of the prompt that the Playground shows first"""
    measured_on: str | None
    """name of the task that they were measured on, if any"""
    sentence: str
    """the source of the values"""

    def hint(self, task: str | None) -> str:
        """Return the source of the values for a form of this task. What was measured on another one says nothing."""
        return self.sentence if self.measured_on in (None, task) else OTHER_TASK


def pair_defaults(pair: str) -> PairDefaults:
    """Return the defaults of the forms for a pair. Raises what ``calibration_of`` raises."""
    calibration = calibration_of(pair)
    if calibration is None:
        knob = RULES[METHOD_OPTIONS["acceptance"].default].knob
        assert knob is not None
        length = METHOD_OPTIONS["draft_length"].default
        return PairDefaults(
            thresholds=_listed(knob.grid), limit=OPTIONS["limit"].default, lengths=f"{length}", exact_length=length,
            threshold=METHOD_OPTIONS["threshold"].default, draft_length=length, example=None, measured_on=None,
            sentence=UNCALIBRATED,
        )  # fmt: skip
    return PairDefaults(
        thresholds=_listed(calibration.thresholds), limit=USUAL_PROMPTS,
        lengths=_listed((calibration.exact_length, calibration.draft_length)), exact_length=calibration.exact_length,
        threshold=calibration.threshold, draft_length=calibration.draft_length, example=calibration.example,
        measured_on=calibration.task, sentence=calibration.sentence(),
    )  # fmt: skip


def is_default(field: str, value: object) -> bool:
    """Return whether a field, named as in ``PairDefaults``, still has the default of some pair."""
    return any(value == getattr(pair_defaults(pair), field) for pair in MODEL_PAIRS)


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(dict.fromkeys(f"{value:g}" for value in values))


def pair_badges(repository: Repository) -> dict[str, str]:
    """Return the states of all pairs that can be chosen, by their names."""
    memory = device_memory(repository)
    return {name: badge_of(name, memory) for _, name in offered_pairs(repository)}


def pair_choices(repository: Repository, badges: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs that can be chosen: titles with their states, such as ``mine · to fetch, 2.9 GB``, and names."""
    offered = offered_pairs(repository)
    return tuple((_with_state(title, badges[name]), name) for title, name in offered if name in badges)


def redraw_pairs(asked: Asked, field: gr.Dropdown, pairs: Sequence[tuple[str, str]]) -> Updates:
    """Return the pairs that can be chosen in ``field``, titles with names, if they differ."""
    return {field: gr.Dropdown([*pairs])} if asked.differs("pairs", pairs) else {}


def _with_state(title: str, badge: str) -> str:
    return title if badge == HERE else f"{title} · {badge}"


def turned(name: str, of: str, page: int) -> dict[str, object]:
    """Return the attributes by which ``view.js`` knows the displayed page of the list ``of``."""
    return {"data-pager": name, "data-of": of, "data-page": page}


class Pager:
    """Two buttons and a line between them. A script turns the page (``turn`` in ``view.js``)."""

    def __init__(self, size: int, noun: str) -> None:
        self.size = size
        self.noun = noun
        self.name = f"page of {noun}s"
        with gr.Row(elem_classes=["fsd-pager"], visible=False) as self.row:
            self.back = gr.Button("Previous", size="sm", min_width=80, scale=0)
            self.position = show()
            self.forward = gr.Button("Next", size="sm", min_width=80, scale=0)

    @property
    def parts(self) -> list[Any]:
        """Components that :meth:`updates` may change."""
        return [self.row, self.back, self.position, self.forward]

    @property
    def steps(self) -> tuple[tuple[gr.Button, int], ...]:
        """The buttons with the step of each."""
        return (self.back, -1), (self.forward, 1)

    def clamp(self, page: int, total: int) -> int:
        """Return the nearest existing page for ``total`` items."""
        return max(0, min(page, (total - 1) // self.size))

    def updates(self, page: int, total: int, of: str) -> dict[Any, Any]:
        """Return the components for ``page`` (clamped) of ``total`` items. ``of`` identifies the list."""
        first, last = page * self.size + 1, min(total, (page + 1) * self.size)
        texts = f"{first:,}", f"{last:,}", count(total, self.noun)
        return {
            self.row: gr.Row(visible=total > self.size),
            self.back: gr.Button(interactive=page > 0),
            self.forward: gr.Button(interactive=last < total),
            self.position: render("ui/page.html", "position", *texts, turned(self.name, of, page)),
        }


class Fold:
    """An expander, in whose context (``with fold.part:``) its components are made. The page asks when it is opened or
    closed."""

    def __init__(self, name: str, title: str) -> None:
        self._wanted = f"fold {name}"
        self.part = gr.Accordion(title, open=False, elem_id=f"fold-{name}")

    def listen(self, view: View) -> None:
        """Attach the events."""
        for trigger, is_open in ((self.part.expand, True), (self.part.collapse, False)):
            view.by_script(trigger, [], script("ui/fold.js", NAME=self._wanted, OPEN=is_open))

    def is_open(self, asked: Asked) -> bool:
        """Return whether the browser shows what is in it."""
        return asked.wanted(self._wanted) is True


LARGEST_UPLOAD = 1_000_000
"""bytes; in base64 below the limit of a body (fsd_core/middleware.py). The command line takes more."""
UPLOAD = script("ui/upload.js", LARGEST=LARGEST_UPLOAD)
"""``js_on_load`` of a file field with buttons, whose click leaves the file in ``window.fsd.file``"""


def uploaded(act: Act, expected: str, larger: str) -> bytes:
    """Return the bytes of the uploaded file. ``expected``: what to choose. ``larger``: what takes larger files.

    Raises ``InvalidSetting``.
    """
    size, data = act["size"], act["data"]
    if not act["file"]:
        raise NotGiven(f"No file is chosen: choose {expected} first.")
    if not size.isdecimal():
        raise Unreadable("The file could not be read: choose it again.")
    if max(int(size), len(data) * 3 // 4 - 2) > LARGEST_UPLOAD:
        raise OutOfRange(
            f"The file has {int(size):,} bytes: expected at most {LARGEST_UPLOAD:,} here. {larger} larger ones."
        )
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise Unreadable("The file arrived damaged: choose it again.") from None
