"""Divergences that a rule may use: names, titles and ranges. :mod:`fsd_core.ops.divergences` computes them."""

from __future__ import annotations

import math
from typing import Literal, get_args

DivergenceName = Literal[
    "kl", "reverse-kl", "js", "tv", "ag",
    "top-k-kl", "top-k-reverse-kl", "top-k-js", "top-k-tv", "top-k-ag",
    "random",
]  # fmt: skip
DIVERGENCES: tuple[str, ...] = get_args(DivergenceName)
TOP_K = "top-k-"
OVER_TOP_K = tuple(name for name in DIVERGENCES if name.startswith(TOP_K))
"""divergences over the target's k likeliest tokens only, which read that k"""
INFINITE_WITHOUT_Q = ("reverse-kl", "ag")
"""divergences that divide by q: infinite if q = 0 for a token that the target may write"""
_UPPER_BOUNDS = {"js": math.log(2), "tv": 1.0, "random": 1.0}
_TITLES = {
    "kl": "KL(q‖p) of draft against target",
    "reverse-kl": "KL(p‖q) of target against draft",
    "js": "Jensen–Shannon",
    "tv": "total variation",
    "ag": "arithmetic–geometric",
}


def divergence_upper_bound(name: str) -> float:
    """Return the largest value that the divergence can take, in nats if it has a unit; ``inf`` if unbounded."""
    return _UPPER_BOUNDS.get(name.removeprefix(TOP_K), math.inf)


def divergence_unit(name: str) -> str:
    """Return ``nats``, or nothing if the divergence is a plain number."""
    return "" if name.endswith(("tv", "random")) else "nats"


def divergence_title(name: str) -> str:
    """Return a divergence's name with its meaning."""
    if name == "random":
        return "random · a coin in place of a divergence"
    base = name.removeprefix(TOP_K)
    suffix = ", over the target's top k" if base != name else ""
    return f"{name} · {_TITLES[base]}{suffix}"


def divergence_fact(name: str) -> str:
    """Return the sentence that helps a user to choose a threshold for it."""
    if name == "random":
        return "The threshold is the chance that a token is kept: the control that shows what a divergence is worth."
    if name.endswith(("js", "ag")):
        return (
            "The published experiments' “JS” was computed as ag: their thresholds, such as 0.4, do not carry over to "
            "js (js 0.22 is about ag 0.31, js 0.42 about ag 1.75)."
        )
    return "The useful range shifts with pair and task: sweep it in an experiment."
