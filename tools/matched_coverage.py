"""How often statements about matched rules hold, simulated with a known truth.

``FSD_TEST_LONG=1 python -m tools.matched_coverage`` prints the rows; docs/methods-tests.md has some.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from fsd_core.statistics.tradeoff import BEHIND, LEADS, OUTSIDE, Curves, Measured, at_ratio, within
from tests.tools.sizes import size

KNOBS = 5
MANY = size(30_000, 100_000)  # prompts that stand for the truth
RESAMPLES = 300
PROMPTS = (30, 100, 400)
RATIOS = (1.1, 1.3, 1.5)


class Rule(NamedTuple):
    """How one simulated rule trades: at its loosest, points lost and how many times fewer passes."""

    lost: float
    fewer: float = 1.8
    bend: float = 1.0
    """above 1 it loses little at first"""
    dip: float = 0.0
    """by how much its first step from strict costs more passes than strict does"""


ALIKE = (Rule(0.1),) * 4
APART = (Rule(0.02), Rule(0.1, bend=2), Rule(0.25), Rule(0.1, dip=0.2))
HARMLESS = (Rule(0.0), Rule(0.004), Rule(0.01))


def drawn(rules: tuple[Rule, ...], rng: np.random.Generator, n: int) -> Measured:
    """Prompts of one difficulty each for all settings. A setting loses and gains answers of its own; passes differ by
    length, which all settings share, and by a noise that neighbours of one knob share in part."""
    solved = rng.random(n) < rng.beta(4, 1.5, n)
    length = np.clip(rng.lognormal(4, 0.6, n).round(), 4, 256)
    reference = np.ceil(length / 3)
    gained, cost = [], []
    for rule in rules:
        mood, luck = rng.normal(0, 0.15, n), rng.random(n)
        for step in np.linspace(0, 1, KNOBS):
            lost, won = rule.lost * step**rule.bend * 1.3, 0.3 * rule.lost * step**rule.bend
            share = solved.mean()
            flipped = np.where(solved, luck < lost / share, luck < won / max(1 - share, 1e-9))
            gained.append(np.where(flipped, np.where(solved, -1, 1), 0))
            ratio = 1 + (rule.fewer - 1) * step - rule.dip * np.sin(np.pi * step) * (step < 0.5)
            noise = 1.0 if step == 0 else np.exp(mood + rng.normal(0, 0.1, n))
            cost.append(np.maximum(1, reference / ratio * noise))
    return Measured(np.column_stack(gained).astype(float), np.column_stack(cost), reference)


def paths(rules: tuple[Rule, ...]) -> dict[str, tuple[int, ...]]:
    return {str(i): tuple(range(i * KNOBS, (i + 1) * KNOBS)) for i in range(len(rules))}


class Found(NamedTuple):
    """Shares of the trials in which statements held."""

    lost: float
    """intervals of what is lost at a ratio"""
    fastest: float
    """intervals of the fastest within 2 points"""
    false_at_ratio: float
    """trials in which a rule is said to lose more than one that truly loses as much or more"""
    false_within: float


@cache
def truth(rules: tuple[Rule, ...], ratios: tuple[float, ...], margin: float) -> tuple[dict, dict]:
    """What each rule loses at each ratio, and the ratio at which it loses the margin, of very many prompts."""
    many, names = Curves(drawn(rules, np.random.default_rng(1), MANY), resamples=2), paths(rules)
    # Simulated rules of the same law are the same, whatever the noise of the many prompts says.
    law = {name: rules[int(name)] for name in names}
    first_of = {rule: next(name for name in names if law[name] == rule) for rule in rules}
    true = {r: {f: many.along(names[first_of[law[f]]], [1 / r]).value[0] for f in names} for r in ratios}
    bounds = {row.family: row.ratio for row in within(many, names, margin, names)}
    return true, {f: bounds[first_of[law[f]]] for f in names}


def simulated(rules: tuple[Rule, ...], n: int, trials: int, ratios=RATIOS, margin: float = 2.0) -> Found:
    names = paths(rules)
    true, bounds = truth(rules, ratios, margin)
    held, fast, false, slow = [], [], [], []
    rng = np.random.default_rng(n)
    for trial in range(trials):
        curves = Curves(drawn(rules, rng, n), RESAMPLES, seed=trial)
        wrong = dict.fromkeys(ratios, False)
        for r in ratios:
            rows = at_ratio(curves, names, r)
            first = next((row.family for row in rows if row.rank == LEADS), "")
            for row in rows:
                if row.interval and not np.isnan(true[r][row.family]):
                    held.append(row.interval.low <= true[r][row.family] <= row.interval.high)
                wrong[r] |= row.rank == BEHIND and true[r][row.family] >= true[r][first] - 1e-9
        false += wrong.values()
        rows = within(curves, names, margin, names)
        first = next((row.family for row in rows if row.rank == LEADS), "")
        for row in rows:
            if row.rank != OUTSIDE and bounds[row.family] is not None and row.interval:
                ends = row.interval
                fast.append(ends.low <= bounds[row.family] * 1.005 and bounds[row.family] <= ends.high * 1.005)
        slow.append(any(r.rank == BEHIND and (bounds[r.family] or 0) >= (bounds[first] or 0) - 1e-9 for r in rows))
    return Found(*(float(np.mean(side)) for side in (held, fast, false, slow)))


if __name__ == "__main__":
    for name, rules in (("alike", ALIKE), ("apart", APART), ("harmless", HARMLESS)):
        for n in (10, *PROMPTS):
            print(name, n, *(f"{share:.1%}" for share in simulated(rules, n, 500)))
