"""Labels of points: none covers another or a mark, at any size, and the same points are labelled alike each time."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from fsd_core.plots.style import FIGURE_SIZES, PLACES, _label, _mark, places


@pytest.mark.parametrize("seed", range(12))
def test_no_label_covers_another_or_a_mark(seed: int) -> None:
    rng = random.Random(seed)
    points = [(rng.random(), rng.choice((rng.random(), 0.9))) for _ in range(16)]
    texts = [rng.choice(("T 0.02", "T 0.4", "")) for _ in points]
    found = places(points, texts)
    assert places(points, texts) == found
    assert all((place is None) or place in PLACES for place in found)
    assert not any(place for place, text in zip(found, texts, strict=True) if not text)
    placed = [i for i, place in enumerate(found) if place]
    assert len(placed) >= 2
    for size in FIGURE_SIZES:
        boxes = {i: _label(points[i], texts[i], found[i] or "", size) for i in placed}
        assert not [pair for pair in combinations(placed, 2) if boxes[pair[0]].meets(boxes[pair[1]])]
        marks = [_mark(point, size) for point in points]
        assert not [(i, j) for i in placed for j, mark in enumerate(marks) if i != j and boxes[i].meets(mark)]


def test_near_points_are_labelled_on_different_sides_and_one_without_room_not_at_all() -> None:
    assert places([(0.5, 0.5)], ["T 0.1"]) == ["top right"]
    near = places([(0.5, 0.5), (0.5, 0.52)], ["T 0.1", "T 0.2"])
    assert None not in near
    assert len(set(near)) == 2
    crowd = places([(0.5, 0.5)] * (len(PLACES) + 1), ["T 0.1"] * (len(PLACES) + 1))
    assert crowd[-1] is None
