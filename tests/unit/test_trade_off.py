"""The picture of accuracy against speed: what is faster stands further right, what is lost stands lower."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from dashboard.ui.page import TradeOffPoint, trade_off

SD = TradeOffPoint("SD", 1.0, 0.0, is_exact=True)
CHOSEN = TradeOffPoint("<b>js ≤ 0.1</b>", 2.23, -0.4, 2.0, 2.5, -1.6, is_chosen=True)
FAST = TradeOffPoint("js ≤ 0.4", 2.6, -31.0)


def drawn(*points: TradeOffPoint, margin: float | None = 2.0) -> ElementTree.Element:
    return ElementTree.fromstring(trade_off(points, margin, 'Say "this"'))


def places(picture: ElementTree.Element) -> list[tuple[str, float, float]]:
    """Style and place of each point, as they are drawn."""
    return [
        (group.get("class", ""), float(circle.get("cx", "")), float(circle.get("cy", "")))
        for group in picture.iter("g")
        for circle in group.iter("circle")
    ]


def test_faster_is_further_right_and_what_is_lost_lies_lower() -> None:
    picture = drawn(CHOSEN, FAST, SD)
    assert picture.get("aria-label") == 'Say "this"'
    at = {style: (x, y) for style, x, y in places(picture)}
    assert at["exact"][0] < at["chosen"][0] < at["tried"][0]
    assert at["exact"][1] < at["chosen"][1] < at["tried"][1]
    assert all(44 <= x <= 460 and 44 <= y <= 194 for _, x, y in places(picture))
    assert places(picture)[-1][0] == "chosen", "nothing is drawn over it"
    texts = [text.text for text in picture.iter("text")]
    assert {"SD", "<b>js ≤ 0.1</b>", "2 points may be lost", "0"} <= {*texts}
    assert "js ≤ 0.4" not in texts, "what was only tried has its name as a hint"
    titles = [title.text for title in picture.iter("title")]
    assert "js ≤ 0.4: 2.60 × as fast as SD, −31 points" in titles


def test_a_figure_that_is_missing_is_not_drawn() -> None:
    assert trade_off([TradeOffPoint("unscored", 2.0, math.nan), TradeOffPoint("untimed", math.nan, 0.0)], 2, "") == ""
    assert len(places(drawn(SD, TradeOffPoint("unscored", 2.0, math.nan)))) == 1


def test_a_single_point_has_axes_and_no_margin_where_none_is_promised() -> None:
    picture = drawn(SD, margin=None)
    assert len(places(picture)) == 1
    assert not [line for line in picture.iter("line") if line.get("class") == "margin"]
    ticks = [text.text for text in picture.iter("text") if text.get("class") == "tick"]
    assert len(ticks) == len({*ticks}) >= 4
