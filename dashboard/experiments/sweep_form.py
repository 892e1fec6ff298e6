"""From the fields of the experiment form to a :class:`SweepConfig`, or to the sentence that says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboard.ui.algorithms import PLAIN, SEVERAL, TREE_TOKENS, can_be_off
from fsd_core.benchmarks.tasks import get_task
from fsd_core.config import (
    CHAIN,
    DRAFTERS,
    RULES,
    TREE,
    VERIFIERS,
    DecodingConfig,
    SamplingConfig,
    SweepConfig,
    TopologyConfig,
    shape_for,
)
from fsd_core.config.thresholds import parse_thresholds
from fsd_core.errors import InvalidSetting
from fsd_core.models.pairs import check_drafter

MOST_SEEDS = 20
MOST_RUNS = 200


@dataclass(frozen=True)
class SweepForm:
    """The fields as a person filled them in; ``None`` is an emptied number field."""

    pair: str
    task: str
    limit: float | None
    baselines: Sequence[str]
    rules: Sequence[str]
    divergences: Sequence[str]
    thresholds: str
    drafters: Sequence[str]
    draft_length: float | None
    temperature: float | None
    top_k: float | None
    top_p: float | None
    max_new_tokens: float | None
    seeds: str
    several: Sequence[str] = ()
    drafts: float | None = 3
    shapes: Sequence[str] = (CHAIN,)
    tree_width: float | None = 10
    tree_tokens: float | None = TREE_TOKENS
    batch: float | None = 1
    name: str = ""


def build_sweep(form: SweepForm) -> SweepConfig:
    """The experiment that the form asks for. Raises ``InvalidSetting`` with one sentence."""
    several = ("baselines", "several", "rules", "divergences", "drafters", "shapes")
    form = replace(form, **{name: list(dict.fromkeys(getattr(form, name))) for name in several})
    rules = _rules(form)
    if not rules:
        raise InvalidSetting("Nothing is chosen yet: choose at least one baseline or one algorithm.")
    limit = _whole("The number of prompts", form.limit)
    get_task(form.task).examples(limit)
    drafters = [DRAFTERS[kind].checked() for kind in form.drafters]
    if not drafters or not form.shapes:
        what = "shape" if drafters else "drafter"
        raise InvalidSetting(f"No {what} is chosen: choose at least one.")
    sampling = SamplingConfig.checked(
        temperature=_number("The temperature", form.temperature),
        top_k=_whole("Top-k", form.top_k),
        top_p=_number("Top-p", form.top_p),
    )
    longest = _whole("The longest answer", form.max_new_tokens)
    decodings = [
        DecodingConfig.checked(
            acceptance=rule,
            drafter=drafter,
            topology=topology,
            sampling=sampling,
            max_new_tokens=longest,
        )
        for rule in rules
        for drafter in drafters
        for topology in _shapes(form, rule.kind)
    ]
    for decoding in decodings:
        check_drafter(form.pair, decoding)
    sweep = SweepConfig.checked(
        name=form.name.strip()[:120],
        pair=form.pair,
        task=form.task,
        limit=limit,
        seeds=parse_seeds(form.seeds),
        decodings=tuple(dict.fromkeys(decodings)),
        batch=_whole("The number of texts side by side", form.batch),
    )
    if (count := len(sweep.runs())) > MOST_RUNS:
        raise InvalidSetting(f"These are {count} runs: expected at most {MOST_RUNS}. Choose fewer thresholds or seeds.")
    return sweep


def size_line(sweep: SweepConfig) -> str:
    """How much work an experiment is, such as ``7 settings × 1 seed × 50 prompts = 350 generations``."""
    settings, seeds = len(sweep.decodings), len(set(sweep.seeds))
    parts = [_count(settings, "setting"), _count(seeds, "seed"), _count(sweep.limit, "prompt")]
    return f"{' × '.join(parts)} = {_count(settings * seeds * sweep.limit, 'generation')}"


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``0, 1, 2``. Raises ``InvalidSetting`` for anything else."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(_is_whole(word) and int(word) < 2**31 for word in words):
        raise InvalidSetting(
            f"The seeds {text[:60]!r} cannot be read: expected whole numbers of at least 0, such as 0, 1, 2."
        )
    if len(words) > MOST_SEEDS:
        raise InvalidSetting(f"These are {len(words)} seeds: expected at most {MOST_SEEDS}.")
    return tuple(dict.fromkeys(int(word) for word in words))


def _shapes(form: SweepForm, kind: str) -> list[TopologyConfig]:
    """Those that a rule can judge of those that were chosen."""
    length, drafts = _whole("The draft length", form.draft_length), _whole("The number of drafts", form.drafts)
    if kind in VERIFIERS:
        return [shape_for(kind, length, drafts)]
    width, tokens = _whole("The width of the tree", form.tree_width), _whole("The size of the tree", form.tree_tokens)
    return [shape_for(kind, length, tree=shape == TREE, tree_width=width, tree_tokens=tokens) for shape in form.shapes]


def _rules(form: SweepForm) -> list[Any]:
    chosen: list[Any] = [RULES[kind]() for kind in (*PLAIN, *SEVERAL) if kind in (*form.baselines, *form.several)]
    if not form.rules:
        return chosen
    thresholds = parse_thresholds(form.thresholds)
    for kind in form.rules:
        rule = RULES[kind]
        usable = [t for t in thresholds if t is not None or can_be_off(kind)]
        if "divergence" not in rule.model_fields:  # it is part of what the rule is
            chosen += [rule.checked(threshold=t) for t in usable]
            continue
        if not form.divergences:
            raise InvalidSetting("No divergence is chosen: choose at least one, such as js.")
        chosen += [rule.checked(divergence=d, threshold=t) for d in form.divergences for t in usable]
    return chosen


def _is_whole(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 10


def _number(what: str, value: float | None) -> float:
    if value is None or not math.isfinite(value):
        raise InvalidSetting(f"{what} is empty: expected a number.")
    return float(value)


def _whole(what: str, value: float | None) -> int:
    number = _number(what, value)
    if number != int(number):
        raise InvalidSetting(f"{what} is {number:g}: expected a whole number.")
    return int(number)


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
