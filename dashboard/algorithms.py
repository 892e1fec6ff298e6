"""The algorithms and divergences in words: what each does, what it costs, and what must be known to set it."""

from __future__ import annotations

import math
from typing import NamedTuple

from dashboard.components import escape
from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftModelDrafter,
    DraftOnly,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    PromptLookupDrafter,
    SamplingConfig,
    Speculative,
    divergence_upper_bound,
)


class Algorithm(NamedTuple):
    """What a person needs to know to choose one."""

    title: str
    explanation: str
    cost: str
    """lossless, lossy, or baseline"""


ALGORITHMS = {
    "autoregressive": Algorithm("Target alone", "The large model writes every token itself: the baseline.", "lossless"),
    "speculative": Algorithm(
        "Speculative decoding (SD)",
        "A draft is kept as far as the target agrees; the text has exactly the target's distribution.",
        "lossless",
    ),
    "fsd-reducible": Algorithm(
        "FSD reducible",
        "Takes the draft's word wherever the two models differ by at most the threshold; elsewhere exact SD. Same "
        "output distribution as FSD, and never a lower acceptance rate.",
        "lossy",
    ),
    "fsd": Algorithm(
        "FSD, as published",
        "Keeps a drafted token if the divergence is at most the threshold, whichever token it is.",
        "lossy",
    ),
    "fsd-official": Algorithm(
        "FSD, the authors' program",
        "Greedy draft and the divergence ag on unwarped distributions, to reproduce the published numbers.",
        "lossy",
    ),
    "draft-only": Algorithm("Draft alone", "The small model writes everything: fastest, and least exact.", "lossy"),
}
DRAFTERS = {"draft-model": DraftModelDrafter, "prompt-lookup": PromptLookupDrafter}
DRAFTER_CHOICES = [("Draft model", "draft-model"), ("Prompt lookup", "prompt-lookup")]

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
    algorithm = ALGORITHMS[kind]
    facts = []
    if kind in ("fsd", "fsd-reducible"):
        if divergence == "random":
            facts.append(
                "The threshold is the chance that a token is kept: the control that shows what a divergence is worth."
            )
        else:
            facts.append(_PUBLISHED if divergence.endswith(("js", "ag")) else _CALIBRATE)
        facts.append(_OFF)
    if kind == "fsd":
        facts.append("A token that top-k or top-p gives no chance can be kept; FSD reducible guards against that.")
    more = f"<p>{escape(' '.join(facts))}</p>" if facts else ""
    return (
        f'<div class="about"><p><b class="cost {algorithm.cost}">{algorithm.cost}</b> {escape(algorithm.explanation)}'
        f"</p>{more}</div>"
    )


def decoding(
    kind: str,
    divergence: str,
    threshold: float | None,
    drafter: str,
    length: int,
    sampling: SamplingConfig,
    longest: int,
) -> DecodingConfig:
    """The decoding method of a setting's controls; what does not apply to ``kind`` is left aside.

    Raises ``InvalidSetting`` with one sentence.
    """
    if kind == "fsd-official":
        acceptance = FuzzyOfficial.checked() if threshold is None else FuzzyOfficial.checked(threshold=threshold)
    elif kind in ("fsd", "fsd-reducible"):
        rule = Fuzzy if kind == "fsd" else FuzzyReducible
        acceptance = rule.checked(divergence=divergence, threshold=threshold)
    else:
        acceptance = {"autoregressive": Autoregressive, "speculative": Speculative, "draft-only": DraftOnly}[kind]()
    return DecodingConfig.checked(
        acceptance=acceptance,
        drafter=DRAFTERS[drafter](),
        topology=ChainTopology.checked(length=length),
        sampling=sampling,
        max_new_tokens=longest,
    )
