"""What an interval misses of runaways that few prompts do not show, simulated.

``FSD_TEST_LONG=1 python -m tools.rare_runaways`` prints what a sentence of docs/methods-figures.md sums up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsd_core.statistics.intervals import (
    PROMPTS_THAT_SHOW_RARE,
    difference_ends,
    most_share,
    quotient_ends,
    with_runaways,
)
from tests.tools.sizes import size

LIMIT = 256
TRIALS, MANY = size(500, 4000), size(100_000, 400_000)
RATES, CHANGED, PROMPTS = (0.01, 0.02, 0.03), (0.1, 0.3, 1.0), (10, 20, 30, 100, PROMPTS_THAT_SHOW_RARE, 600)


class Coverage(NamedTuple):
    """How often the truth lies in the interval alone, and in what is said with unseen runaways; how often a bound just
    below the truth is met wrongly, before and now."""

    alone: float
    said: float
    wrong_before: float
    wrong: float


def _draw(rng: np.random.Generator, n: int, rate: float, changed: float) -> np.ndarray:
    """Tokens of both answers; a lenient rule changes some, and at ``rate`` one never ends. → [n, 5], last: ran away"""
    base = np.clip(rng.lognormal(4.3, 0.5, n).round(), 5, LIMIT)
    other = np.clip((base * rng.lognormal(0.05, 0.3, n)).round(), 5, LIMIT)
    away = rng.random(n) < rate
    lenient = np.where(away, LIMIT, np.where(rng.random(n) < changed, other, base))
    return np.column_stack([lenient, np.ones(n), base, np.ones(n), away & (base < LIMIT)])


def coverage(n: int, rate: float, changed: float) -> Coverage:
    """Simulate paired ratios of answer length."""
    rng = np.random.default_rng(n)
    tokens, _, base, *_ = _draw(rng, MANY, rate, changed).sum(0)
    truth = tokens / base
    tables = _draw(rng, TRIALS * n, rate, changed).reshape(TRIALS, n, 5)
    low, high = quotient_ends(tables[..., :4])
    share = np.array([most_share(int(seen), n) for seen in tables[..., 4].sum(1)])
    worst = with_runaways(high, share, LIMIT / tables[..., 2].mean(1))  # pyright: ignore[reportArgumentType]
    shown, bound = ~np.isnan(low), truth * 0.9999
    met = high <= bound
    decided = met & ((worst <= bound) | (n >= PROMPTS_THAT_SHOW_RARE))
    held = [((low <= truth) & (truth <= end))[shown].mean() for end in (high, worst)]
    return Coverage(*map(float, (*held, met.mean(), decided.mean())))


def acceptance_coverage(n: int, rate: float, changed: float) -> tuple[float, float]:
    """Simulate paired differences of acceptance: how often the truth lies in the interval alone, and in what is said.

    A runaway repeats itself, so that nearly all its drafts are accepted: 97 % of them. ``changed`` answers differ.
    """

    def draw(count: int) -> np.ndarray:  # → [count, 5]: accepted, drafted; of the baseline; ran away
        base = np.clip(rng.lognormal(4.3, 0.5, count).round(), 5, LIMIT)
        share, away = rng.beta(6, 4, count), rng.random(count) < rate
        moved = rng.random(count) < changed
        other = np.where(moved, np.clip(share + rng.normal(0.03, 0.05, count), 0, 1), share)
        length = np.where(away, LIMIT, base)
        accepted = np.where(away, 0.97, other)
        return np.column_stack([accepted * length, length, share * base, base, away & (base < LIMIT)])

    rng = np.random.default_rng(n)
    a, drafted, b, of_base, _ = draw(MANY).sum(0)
    truth = a / drafted - b / of_base
    tables = draw(TRIALS * n).reshape(TRIALS, n, 5)
    low, high = difference_ends(tables[..., :4])
    share = np.array([most_share(int(seen), n) for seen in tables[..., 4].sum(1)])
    weight = share * LIMIT / ((1 - share) * tables[..., 1].mean(1) + share * LIMIT)
    accepted = tables[..., 0].sum(1) / tables[..., 1].sum(1)
    shown = ~np.isnan(low)
    held = [((low <= truth) & (truth <= end))[shown].mean() for end in (high, high + weight * (1 - accepted))]
    return float(held[0]), float(held[1])


def main() -> None:
    """Print the table that docs/methods-figures.md sums up: coverage alone → with runaways, and wrong verdicts."""
    print(
        "| runaways, changed | " + " | ".join(f"n = {n}" for n in PROMPTS) + " |\n" + "|---" * (len(PROMPTS) + 1) + "|"
    )
    for rate in RATES:
        for changed in CHANGED:
            every = [coverage(n, rate, changed) for n in PROMPTS]
            for name, cells in (
                ("covered", (f"{at.alone:.0%} → {at.said:.0%}" for at in every)),
                ("wrongly met", (f"{at.wrong_before:.1%} → {at.wrong:.1%}" for at in every)),
            ):
                print(f"| {rate:.0%}, {changed:.0%}: {name} | {' | '.join(cells)} |")
            pairs = (acceptance_coverage(n, rate, changed) for n in PROMPTS)
            accepted = " | ".join(f"{alone:.0%} → {said:.0%}" for alone, said in pairs)
            print(f"| {rate:.0%}, {changed:.0%}: acceptance covered | {accepted} |")


if __name__ == "__main__":
    main()
