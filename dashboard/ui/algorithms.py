"""The algorithms and divergences in words: what each does, what it costs, and what must be known to set it."""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple, get_args

from dashboard.ui.components import escape
from fsd_core.config import (
    CHAIN,
    DRAFTERS,
    RULES,
    TREE,
    VERIFIERS,
    DecodingConfig,
    SamplingConfig,
    divergence_upper_bound,
    shape_for,
)
from fsd_core.errors import InvalidSetting


class Algorithm(NamedTuple):
    """What a person needs to know to choose one."""

    title: str
    explanation: str
    cost: str
    """lossless or lossy"""


# In the order in which the pages offer them.
WORDS = {
    "autoregressive": ("Target alone", "The large model writes every token itself: the baseline."),
    "speculative": (
        "Speculative decoding (SD)",
        "A draft is kept as far as the target agrees; the text has exactly the target's distribution.",
    ),
    "fsd-reducible": (
        "FSD reducible",
        "Takes the draft's word wherever the two models differ by at most the threshold; elsewhere exact SD. Same "
        "output distribution as FSD, and never a lower acceptance rate.",
    ),
    "fsd": (
        "FSD, as published",
        "Keeps a drafted token if the divergence is at most the threshold, whichever token it is.",
    ),
    "fsd-official": (
        "FSD official · the authors' program",
        "Greedy draft and the divergence ag on unwarped distributions, to reproduce the published numbers.",
    ),
    "rrs": (
        "RRS · several drafts in turn",
        "Each draft is tested against what the drafts before it have left of the target's distribution.",
    ),
    "rrs-without-replacement": (
        "RRS without replacement · several different drafts",
        "As RRS, with drafts that all begin with another token.",
    ),
    "k-seq": (
        "K-SEQ · several drafts, one test",
        "Every draft passes the same test: the target's probability over the draft's, lowered by one factor.",
    ),
    "nss": (
        "NSS · several drafts, the target's sample",
        "The target's own sample is written, and kept as drafted where a draft happens to be it.",
    ),
    "naive": (
        "Naive · several drafts, the first judged",
        "SD on the first draft; where it is refused, the correction may be another of the drafts.",
    ),
    "spec-hub": (
        "SpecHub · two drafts",
        "The draft's likeliest token and one other; accepted as often as two such drafts can be.",
    ),
    "greedy-optimal": (
        "Greedy, optimal · likeliest drafts and one sampled",
        "The draft's likeliest tokens and one that is sampled; accepted as often as drafts of this kind can be.",
    ),
    "draft-only": ("Draft alone", "The small model writes everything: fastest, and least exact."),
}


def algorithm(kind: str, rule: type[Any]) -> Algorithm:
    """A rule in words: its own, where there are none here."""
    title, explanation = WORDS.get(kind, (rule.title, (inspect.getdoc(rule) or "").partition("\n")[0]))
    return Algorithm(title, explanation, "lossless" if rule.lossless else "lossy")


ALGORITHMS = {kind: algorithm(kind, RULES[kind]) for kind in dict.fromkeys((*WORDS, *RULES))}
# Those without a threshold are compared with, those with one are tuned.
TUNED = tuple(kind for kind in ALGORITHMS if "threshold" in RULES[kind].model_fields)
SEVERAL = tuple(kind for kind in ALGORITHMS if kind in VERIFIERS)
PLAIN = tuple(kind for kind in ALGORITHMS if kind not in (*TUNED, *SEVERAL))
_DRAFTER_TITLES = {"eagle": "EAGLE head"}
DRAFTER_CHOICES = [(_DRAFTER_TITLES.get(kind, kind.replace("-", " ").capitalize()), kind) for kind in DRAFTERS]
SHAPE_CHOICES = [("Chain", CHAIN), ("Tree", TREE)]
TREE_TOKENS = 24
"""of a tree, where nobody says: on a CPU many more cost more than they bring"""


def can_be_off(kind: str) -> bool:
    """Whether a tuned algorithm knows a threshold that forgives nothing."""
    return type(None) in get_args(RULES[kind].model_fields["threshold"].annotation)


_DIVERGENCES = {
    "kl": "KL(q‖p) of draft against target",
    "reverse-kl": "KL(p‖q) of target against draft",
    "js": "Jensen–Shannon",
    "tv": "total variation",
    "ag": "arithmetic–geometric",
}
_PUBLISHED = (
    "The published experiments' “JS” was computed as ag: their thresholds, such as 0.4, do not carry over to js "
    "(js 0.22 is about ag 0.31, js 0.42 about ag 1.75)."
)
_OFF = "With an empty threshold leniency is off, which is exact SD."
_SAMPLING = (
    "Meant for sampling: at temperature 0 the text is that of SD, with more to check. Every draft costs, so more of "
    "them pay where a forward of many tokens costs little more than one of a few."
)
_CALIBRATE = "The useful range shifts with pair and task: sweep it in an experiment."


def divergence_title(name: str) -> str:
    """A divergence's name with what it stands for."""
    if name == "random":
        return "random · a coin in place of a divergence"
    base = name.removeprefix("top-k-")
    where = ", over the target's top 50" if base != name else ""
    return f"{name} · {_DIVERGENCES[base]}{where}"


def threshold_range(divergence: str) -> str:
    """The thresholds that can be used."""
    bound = divergence_upper_bound(divergence)
    unit = "" if divergence.endswith(("tv", "random")) else " nats"
    return f"0 to {bound:.3g}{unit}" if math.isfinite(bound) else f"0 or more{unit}"


def about(kind: str, divergence: str) -> str:
    """What a chosen algorithm does and costs, as HTML, with the facts that its threshold asks for."""
    _, explanation, cost = ALGORITHMS[kind]
    facts = []
    if "divergence" in RULES[kind].model_fields:
        if divergence == "random":
            facts.append(
                "The threshold is the chance that a token is kept: the control that shows what a divergence is worth."
            )
        else:
            facts.append(_PUBLISHED if divergence.endswith(("js", "ag")) else _CALIBRATE)
    if kind in TUNED and can_be_off(kind):
        facts.append(_OFF)
    if kind in VERIFIERS:
        facts.append(_SAMPLING)
    if kind == "fsd":
        facts.append("A token that top-k or top-p gives no chance can be kept; FSD reducible guards against that.")
    more = f"<p>{escape(' '.join(facts))}</p>" if facts else ""
    return f'<div class="about"><p><b class="cost {cost}">{cost}</b> {escape(explanation)}</p>{more}</div>'


def decoding(
    kind: str,
    divergence: str,
    threshold: float | None,
    drafter: str,
    length: int | None,
    drafts: int | None,
    shape: str,
    tree_tokens: int | None,
    sampling: SamplingConfig,
    longest: int,
) -> DecodingConfig:
    """The decoding method of a setting's controls; what does not apply to ``kind`` is left aside.

    Raises ``InvalidSetting`` with one sentence.
    """
    for what, number in (("draft length", length), ("number of drafts", drafts), ("size of the tree", tree_tokens)):
        if number is None:
            raise InvalidSetting(f"The {what} is empty: expected a whole number.")
    rule = RULES[kind]
    chosen = {"divergence": divergence, "threshold": threshold}
    if threshold is None and kind in TUNED and not can_be_off(kind):
        del chosen["threshold"]  # the rule's own
    acceptance = rule.checked(**{name: value for name, value in chosen.items() if name in rule.model_fields})
    return DecodingConfig.checked(
        acceptance=acceptance,
        drafter=DRAFTERS[drafter](),
        topology=shape_for(kind, length, drafts, tree=shape == TREE and kind not in VERIFIERS, tree_tokens=tree_tokens),
        sampling=sampling,
        max_new_tokens=longest,
    )
