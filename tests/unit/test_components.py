"""Pieces and templates of pages: data is shown literally, and hints hold with the documents."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.ui import components, templates
from dashboard.ui.components import Column, Tile, table, term, tiles, tokens_html
from dashboard.ui.templates import MEANINGS, Html, escape, explained, joined, render
from fsd_core.config.options import OPTIONS
from fsd_core.metrics import METRICS
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


ROOMS = Path(templates.__file__).parents[1]
FILES = sorted(f"{path.parents[1].name}/{path.name}" for path in ROOMS.glob("*/templates/*.html"))
SCRIPTS = sorted(f"{path.parent.name}/{path.name}" for path in ROOMS.glob("*/*.js"))
PYTHON = {path: path.read_text(encoding="utf-8") for path in ROOMS.rglob("*.py")}
SOURCES = {file: (ROOMS / file.replace("/", "/templates/")).read_text(encoding="utf-8") for file in FILES}


@pytest.mark.parametrize("file", FILES)
def test_every_template_can_be_read(file: str) -> None:
    assert templates._PAGES.get_template(file).module


@pytest.mark.parametrize("file", FILES)
def test_every_macro_is_used(file: str) -> None:
    others = "".join(text for other, text in SOURCES.items() if other != file) + "".join(PYTHON.values())
    for macro in re.findall(r"{%-? macro (\w+)\(", SOURCES[file]):
        inside = len(re.findall(rf"\b{macro}\(", SOURCES[file])) > 1
        assert inside or re.search(rf'"{macro}"|\.{macro}\(', others), f"{file}: {macro}"


@pytest.mark.parametrize("file", FILES)
def test_no_template_makes_html_of_text(file: str) -> None:
    assert not re.search(r"\|\s*safe|autoescape|Markup|{%\s*set .*~", SOURCES[file])


def test_links_of_pages_are_relative() -> None:
    """So that they hold below whatever path a proxy serves the application."""
    absolute = re.compile(
        r"""(href|action|src)="/|["'`]/(runs|compare|settings|review|experiments|export|theory|logout)\b"""
    )
    scripts = {file: (ROOMS / file).read_text(encoding="utf-8") for file in SCRIPTS}
    pages = {path.name: text for path, text in PYTHON.items() if path.parent.name not in ("server", ROOMS.name)}
    for file, text in (SOURCES | scripts | pages).items():
        links = [line for line in text.splitlines() if absolute.search(line) and "Router(" not in line]
        assert file == "server/pages.html" or not [line for line in links if "@router." not in line], file


def test_what_folds_what_is_framed_and_tables_are_each_of_one_kind() -> None:
    templates = "".join(SOURCES.values())
    assert set(re.findall(r'<details class="([^"]*)"', templates)) == {"pick"}, "the list of runs is a field that folds"
    assert {kinds.split()[0] for kinds in re.findall(r'<table class="([^"]*)"', templates)} == {"fsd-table"}
    framed = re.compile(r"^(\.\S+) \{ display: inline-block;[^}]*border: 1px solid", re.MULTILINE)
    sheets = [path.read_text(encoding="utf-8") for path in ROOMS.glob("*/*.css")]
    assert [kind for sheet in sheets for kind in framed.findall(sheet)] == [".fsd-chip"]


def test_runs_of_which_the_same_is_said_share_a_sentence() -> None:
    rare = [(name, SimpleNamespace(sentence=said)) for name, said in (("A", "few"), ("B", "more"), ("C", "few"))]
    said = render("compare/comparison.html", "comparison", [], [], 0.05, True, [], [], rare)
    assert "by the rule of three, A, C: few; B: more. 299" in said


def test_no_html_is_written_in_python() -> None:
    tag = re.compile(r"""["'>]</?(a|b|p|div|span|h1|h2|h3|ul|li|table|td|th|tr|button|form|section|details|small)\b""")
    found = {path.name for path, text in PYTHON.items() if tag.search(text)}
    assert found == set()


@pytest.mark.parametrize("file", SCRIPTS)
def test_every_script_is_used_and_told_its_values(file: str) -> None:
    room, name = file.split("/")
    used = [text for text in PYTHON.values() if f'"{file}"' in text or (f'"{name}"' in text and room == "ui")]
    assert used
    for value in re.findall(r"\$([A-Z_]+)\$", (ROOMS / file).read_text(encoding="utf-8")):
        assert any(f"{value}=" in text for text in used), value


def test_what_is_joined_or_rendered_shows_data_literally() -> None:
    for made in (joined([HOSTILE, Html("<b>x</b>"), HOSTILE]), render("ui/components.html", "notice", HOSTILE, "")):
        assert HOSTILE in Reader(made).text
        assert not {"img"} & {tag for tag, _ in Reader(made).elements}
    assert escape(escape(HOSTILE)) == escape(HOSTILE)
    assert Reader(render("ui/components.html", "notice", str(escape(HOSTILE)), "")).text == escape(HOSTILE)


TERMS = (Path(__file__).parents[2] / "docs/terms.md").read_text(encoding="utf-8").casefold()


def test_every_metric_and_every_option_is_explained() -> None:
    for metric in METRICS.values():
        assert explained(metric.title)
        assert not metric.listed or explained(metric.listed)
    assert all(explained(option.title) for option in OPTIONS.values())


@pytest.mark.parametrize("word", MEANINGS)
def test_a_hint_is_one_sentence(word: str) -> None:
    assert 10 < len(MEANINGS[word]) <= 130
    assert not MEANINGS[word].endswith(".")


@pytest.mark.parametrize("word", ["Setting", "Experiment", "Run", "Use", "Outcome", "Evidence"])
def test_words_of_the_pages_are_in_the_docs(word: str) -> None:
    assert f"| {word.casefold()} |" in TERMS


def test_tables_and_tiles_carry_hints_and_show_no_markup() -> None:
    shown = table([Column("Accuracy", "num"), Column("<b>")], [["1", "2"]], "Table") + tiles([Tile("Overlong", "0 %")])
    assert shown.count('class="fsd-term"') == 2
    assert METRICS["accuracy"].explanation in shown
    assert "<b>" not in shown
    assert "${" not in term("x", "${alert(1)}")
