"""Searches for the paths that a text is likely to take, by what may follow each: best first, and Adaptix' own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import log, sqrt

Path = tuple[int, ...]
Successors = Callable[[Path], Sequence[tuple[int, float]]]
"""path → tokens that may follow it, with their probabilities, the likeliest first"""
_EXPLORATION, _SLOWNESS = 32, 8
"""c₁ and c₂ of the published program"""


def best_first(successors: Successors, length: int, nodes: int) -> dict[Path, float]:
    """Return the ``nodes`` paths with the largest products of probabilities, parents before children."""
    order, found = count(), dict[Path, float]()
    waiting: list[tuple[float, int, Path]] = [(-1.0, next(order), ())]
    while waiting and len(found) <= nodes:  # the text itself is one of them
        negative, _, path = heappop(waiting)
        found[path] = -negative
        if len(path) < length and len(found) <= nodes:
            for token, probability in successors(path):
                heappush(waiting, (negative * probability, next(order), (*path, token)))
    del found[()]
    return found


def monte_carlo(successors: Successors, length: int, nodes: int, iterations: int) -> dict[Path, int]:
    """Return the ``nodes`` most visited paths of a Monte Carlo tree search with their visits, parents before children.

    Each iteration walks down by the best score

        X/N + (c₁ + ln((M + c₂ + 1)/c₂)) · P · √M / (1 + N), ∞ where N = 0,

    with N visits of the child, X their values, M visits of its parent and P its probability. At an unexpanded node it
    steps to the first child and goes on greedily. The value is 1 + the sum of probabilities along the way. The
    published program draws the rest of the way by chance, and looks its probabilities up one token too early.
    """
    visits, values = dict[Path, int](), dict[Path, float]()
    children = dict[Path, Sequence[tuple[int, float]]]()

    def best(path: Path) -> tuple[int, float]:
        def score(child: tuple[int, float]) -> float:
            token, probability = child
            below, above, here = (*path, token), visits[path], visits.get((*path, token), 0)
            if not here:
                return float("inf")
            exploration = _EXPLORATION + log((above + _SLOWNESS + 1) / _SLOWNESS)
            return values[below] / here + exploration * probability * sqrt(above) / (1 + here)

        return max(children[path], key=score)

    for _ in range(iterations):
        path, way, value, is_new = Path(), [Path()], 1.0, False
        while len(path) < length and not is_new:
            if is_new := path not in children:
                children[path] = successors(path)
            if not children[path]:
                break
            token, probability = children[path][0] if is_new else best(path)
            path, value = (*path, token), value + probability
            way.append(path)
        while len(path) < length and (following := successors(path)):
            path, value = (*path, following[0][0]), value + following[0][1]
        for node in way:
            visits[node] = visits.get(node, 0) + 1
            values[node] = values.get(node, 0.0) + value
    del visits[()]
    most = sorted(visits, key=lambda path: (-visits[path], path))[:nodes]
    return {path: visits[path] for path in most}
