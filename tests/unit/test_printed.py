"""Figures as files for paper: white, complete, with their fonts, and at addresses that only read."""

from __future__ import annotations

import io
import re
from urllib.parse import urlencode
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
from fastapi import FastAPI
from PIL import Image
from starlette.testclient import TestClient

from dashboard.compare.compared_runs import ComparedRuns, compare, experiment_runs
from dashboard.compare.export import FRAME_POLICY, figure_routes
from dashboard.server.requests import ResponseHeaders, content_policy
from fsd_core.errors import NotApplicable, UnknownChoice, UnknownName
from fsd_core.plots.printed import marker_style, plain_title, print_colour, printed
from fsd_core.plots.style import AXIS, MUTED, TEXT, figure
from fsd_core.plots.trade_offs import COMPARISON_FIGURES, FIGURE_NAMES, named_figure
from fsd_core.rules import RULES
from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished, new_repository
from tests.tools.sizes import some

HOSTILE = "$x^{2$ _a <b>${alert(1)}</b> <script>alert(1)</script>"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return new_repository(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def comparison(repository: Repository) -> ComparedRuns:
    return compare(repository, experiment_runs(repository, add_finished(repository, "Print", limit=12)), None)


def named(comparison: ComparedRuns, name: str) -> go.Figure:
    return named_figure(name, comparison.runs, comparison.baseline, comparison.prompts)


def letters(svg: bytes) -> str:
    """The texts of a figure, which are outlines; each has a comment that says it."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", svg.decode()))


@pytest.mark.parametrize("name", some(FIGURE_NAMES, "tradeoff", "matched"))
def test_each_figure_is_dark_on_white_with_every_name_of_its_legend(comparison: ComparedRuns, name: str):
    drawn = named(comparison, name)
    pixels = np.asarray(Image.open(io.BytesIO(printed(drawn, "png"))).convert("RGBA"), dtype=int)
    assert (pixels[..., 3] == 255).all()
    assert (pixels[[0, 0, -1, -1], [0, -1, 0, -1], :3] == 255).all()
    assert pixels.shape[1] == 6.5 * 300
    assert (pixels[..., :3].max(axis=2) < 60).sum() > 500  # the text is dark
    svg = printed(drawn, "svg")
    root = ElementTree.fromstring(svg)
    assert not list(root.iter("{http://www.w3.org/2000/svg}text"))  # no font is needed to read it
    written = letters(svg)
    in_legend = [trace.name for trace in drawn.data if trace.name and trace.showlegend is not False]
    assert all(name in written.replace("\n", " ") for name in in_legend)
    assert plain_title(drawn).split("\n")[0] in written


@pytest.mark.wide
def test_a_pdf_embeds_its_fonts_and_the_same_figure_is_the_same_file(comparison: ComparedRuns):
    drawn = named(comparison, "tradeoff")
    pdf = printed(drawn, "pdf")
    assert pdf.startswith(b"%PDF-")
    fonts = set(re.findall(rb"/FontName /(?:[A-Z]{6}\+)?([\w-]+)", pdf))
    assert fonts == {b"DejaVuSans", b"DejaVuSans-Bold"}
    assert pdf.count(b"/FontFile2") == pdf.count(b"/FontName")
    for form in ("pdf", "svg", "png"):
        assert printed(drawn, form) == printed(drawn, form)


@pytest.mark.wide
def test_a_name_is_neither_a_formula_nor_markup_and_a_long_legend_is_whole():
    drawn = figure("Title", "x", "y")
    names = [f"{HOSTILE.replace('<', '&lt;')} {i} {'long ' * 20}" for i in range(30)]
    for i, name in enumerate(names):
        drawn.add_scatter(x=[0, 1], y=[i, i + 1], mode="lines", name=name)
    short = printed(figure("Title", "x", "y").add_scatter(x=[0, 1], y=[0, 1], name="a"), "png")
    whole = printed(drawn, "png")
    assert Image.open(io.BytesIO(whole)).height > Image.open(io.BytesIO(short)).height + 30 * 40
    svg = printed(drawn, "svg")
    assert b"<script" not in svg
    assert letters(svg).count("$x^{2$ _a") == 30


def test_what_is_grey_on_a_page_is_dark_on_paper_and_each_rule_has_a_mark_of_its_own():
    def contrast(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)

    for grey in (TEXT, MUTED):
        assert contrast(print_colour(grey)) > 7 > contrast(grey)
    assert print_colour("#0d9488") == "#0d9488"
    assert print_colour(AXIS)[3] == pytest.approx(0.55)
    marks = {kind: str({**marker_style(rule.symbol, "#000000")}) for kind, rule in RULES.items()}
    symbols = {rule.symbol for rule in RULES.values()}
    assert len(set(marks.values())) == len(symbols)


def test_what_cannot_be_printed_is_a_sentence(comparison: ComparedRuns):
    with pytest.raises(UnknownChoice, match="png, svg, pdf"):
        printed(named(comparison, "tradeoff"), "jpg")
    with pytest.raises(NotApplicable):
        printed(figure("t", "x", "y").add_heatmap(z=[[1]]), "svg")
    with pytest.raises(UnknownChoice, match="nothing"):
        named(comparison, "nothing")
    with pytest.raises(UnknownName, match="nothing"):
        named_figure("matched", comparison.runs, comparison.baseline, comparison.prompts, cost="nothing")


@pytest.fixture(scope="module")
def client(repository: Repository) -> TestClient:
    app = FastAPI()
    app.add_middleware(ResponseHeaders, policy=content_policy())
    app.include_router(figure_routes(repository))
    return TestClient(app)


@pytest.mark.wide
def test_a_figure_has_an_address_for_each_kind_of_file(client: TestClient, comparison: ComparedRuns):
    query = urlencode({"figure": "tradeoff", "runs": ",".join(run.id for run in comparison.runs)})
    for form, kind, begins in (
        ("png", "image/png", b"\x89PNG"), ("svg", "image/svg+xml", b"<?xml"), ("pdf", "application/pdf", b"%PDF"),
        ("html", "text/html", b"<!doctype html>"),
    ):  # fmt: skip
        answer = client.get(f"/export/figure.{form}?{query}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] == kind
        assert answer.content.startswith(begins)
        name = f'attachment; filename="accuracy-against-throughput.{form}"'
        assert answer.headers["content-disposition"] == name
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
    run = comparison.runs[3].id
    one = client.get(f"/export/figure.svg?figure=divergences&runs={run}")
    assert one.headers["content-disposition"].endswith(f'divergence-at-judged-tokens-run-{run[:8]}.svg"')


def test_only_the_figure_itself_may_be_framed_and_it_reaches_nothing(client: TestClient, comparison: ComparedRuns):
    runs = ",".join(run.id for run in comparison.runs)
    answer = client.get(f"/embed/figure?figure=positions&runs={runs}")
    policy = answer.headers["content-security-policy"]
    assert policy == FRAME_POLICY
    assert {"frame-ancestors *", "default-src 'none'", "sandbox allow-scripts allow-downloads"} <= {*policy.split("; ")}
    assert "allow-same-origin" not in policy
    assert "Bundled arithmetic pair, arithmetic, n = 12 prompts. FSD Lab." in answer.text
    assert answer.text.count("plotly.js v") == 1
    assert 'src="http' not in answer.text
    assert '"paper_bgcolor":"#ffffff"' in answer.text
    assert "content-disposition" not in answer.headers


@pytest.mark.parametrize("path", ["/embed/figure", "/export/figure.svg"])
def test_an_address_of_no_figure_says_what_is_wrong(client: TestClient, comparison: ComparedRuns, path: str):
    run = comparison.runs[0].id
    for query, status, sentence in (
        ("figure=tradeoff", 400, "No run is named"),
        (f"figure=tradeoff&runs={'0' * 32}", 404, "None of these runs is in this database"),
        (f"figure=nothing&runs={run}", 400, "There is no figure 'nothing'"),
        (f"figure=matched&runs={run}&cost=money", 404, "There is no cost 'money'"),
    ):
        answer = client.get(f"{path}?{query}")
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
        assert answer.text.startswith(sentence)


def test_the_gallery_names_all_figures_of_a_comparison():
    assert set(COMPARISON_FIGURES) < set(FIGURE_NAMES)
    assert len(set(FIGURE_NAMES)) == len(FIGURE_NAMES)
