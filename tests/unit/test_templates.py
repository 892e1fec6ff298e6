"""Templates and scripts: data is shown literally, and nothing lies there that no page uses."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from dashboard.ui import templates
from dashboard.ui.templates import Html, escape, joined, render
from tests.unit.test_components import HOSTILE, Reader

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
