"""Pieces of pages: data is shown literally wherever it lands."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from dashboard.ui import components
from dashboard.ui.components import Column, Tile, tokens_html
from dashboard.ui.templates import escape
from fsd_core.storage.messages import EmittedToken

HOSTILE = "<img src=x onerror=alert(1)> ${alert(1)} {{7*7}} `x` \"' & é"


class Reader(HTMLParser):
    """What a browser would find: the elements with their attributes, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def token(text: str = "a", kind: str = "strict", **more: Any) -> EmittedToken:
    return EmittedToken(text, 7, kind, 0.1, 0.5, 0.25, 0.5)._replace(**more)


def test_escaped_text_holds_no_markup_and_no_template_and_reads_as_it_was() -> None:
    escaped = escape(HOSTILE)
    assert not set("<>\"'`${}") & set(escaped)
    assert Reader(escaped).text == HOSTILE


@pytest.mark.parametrize(
    "html",
    [
        components.heading(HOSTILE, HOSTILE),
        components.section(HOSTILE),
        components.notice(HOSTILE, "bad"),
        components.empty_state(HOSTILE, HOSTILE, (HOSTILE, HOSTILE)),
        components.tiles([Tile(HOSTILE, HOSTILE, HOSTILE)]),
        components.pill(HOSTILE),
        components.facts({HOSTILE: HOSTILE}),
        components.table([Column(HOSTILE)], [], HOSTILE),
        tokens_html([token(HOSTILE, "correction", rejected=HOSTILE)], HOSTILE),
        tokens_html([token(HOSTILE, HOSTILE)]),
    ],
)
def test_every_piece_escapes_what_it_is_given(html: str) -> None:
    assert not {"img"} & {tag for tag, _ in Reader(html).elements}
    assert not any(name.startswith("on") for _, attributes in Reader(html).elements for name in attributes)
    assert "${" not in html
    assert "{{" not in html
    assert HOSTILE in Reader(html).text


def test_a_token_carries_what_its_selection_tells() -> None:
    spans = [
        a for tag, a in Reader(tokens_html([token(), token(kind="lenient", p=0.123456789)])).elements if tag == "span"
    ]
    assert [span["class"] for span in spans] == ["tok strict", "tok lenient"]
    assert [span["data-p"] for span in spans] == ["0.5", "0.12346"]
    assert [span["tabindex"] for span in spans] == ["0", "-1"]  # one stop for Tab, the arrows do the rest


def test_a_judged_token_without_a_divergence_had_an_infinite_one_and_others_had_none() -> None:
    judged, plain = (
        Reader(tokens_html([t])).elements[1][1]
        for t in (token(divergence=None), token(kind="plain", divergence=None, p=None, q=None))
    )
    assert judged["data-d"] == "inf"
    assert "data-d" not in plain
    assert plain["data-pr"] == "0.5"


def test_a_correction_names_the_token_it_replaces() -> None:
    found = Reader(tokens_html([token(kind="correction", rejected='"<7>')])).elements[1][1]
    assert found["data-rejected"] == '"<7>'
    assert found["data-pr"] == "0.5"


def test_a_command_in_a_sentence_is_code_and_other_text_stays() -> None:
    html = components.notice("`fsd-lab task add <b>` takes larger ones, not `x`.")
    assert "<code>fsd-lab task add &lt;b&gt;</code> takes larger ones, not &#96;x&#96;." in html
