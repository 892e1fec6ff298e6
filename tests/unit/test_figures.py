"""What figures show on the pages and on paper: safe, complete, and with labels that cover nothing."""

from __future__ import annotations

import io
import json
import random
import re
from dataclasses import replace
from itertools import combinations
from typing import Any
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
from fsd_core.analysis.cells import families, run_names, speedup
from fsd_core.config import ChainTopology, DecodingConfig, FuzzyReducible, Speculative
from fsd_core.errors import NotApplicable, UnknownChoice, UnknownName
from fsd_core.plots import acceptance, curves, style, trade_offs
from fsd_core.plots.printed import marker_style, plain_title, print_colour, printed
from fsd_core.plots.style import AXIS, FIGURE_SIZES, MUTED, PLACES, TEXT, WIDE, _boxes, _mark, figure, places
from fsd_core.plots.trade_offs import COMPARISON_FIGURES, FIGURE_NAMES, comparison_figures, named_figure
from fsd_core.rules import RULES
from fsd_core.statistics.intervals import Estimate
from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished, new_repository
from tests.tools.run_views import decoding, metrics, prompts, run_view
from tests.tools.sizes import some

TARGET = run_view(decoding("autoregressive"), metrics(47, speed=100))
DRAFT = run_view(decoding("draft-only"), metrics(20, speed=400))
SD = run_view(decoding("speculative"), metrics(47, speed=180, acceptance=0.7))
JS = [
    run_view(decoding("fsd-reducible", divergence="js", threshold=t), metrics(correct, speed=speed, acceptance=rate))
    for t, correct, speed, rate in ((0.3, 38, 260, 0.93), (0.05, 46, 210, 0.8), (0.1, 44, 205, 0.85))
]
RUNS = [TARGET, DRAFT, SD, *JS]
PROMPTS = prompts(*RUNS)
BASIC_TRACES = {"scatter", "bar"}


def by_name(info: trade_offs.TradeoffInfo) -> dict[str, style.Line[trade_offs.TradeoffPoint]]:
    return {group.name: group for group in info.groups}


def test_runs_that_differ_in_threshold_and_seed_alone_are_one_family_sorted_by_threshold():
    again = run_view(JS[1].decoding, metrics(acceptance=0.8), seed=1)
    found = families([*JS, again, SD])
    assert [family.name for family in found] == ["FSD reducible · js · γ 5", "SD · γ 5"]
    assert [(run.decoding.threshold, run.seed) for run in found[0].runs] == [(0.05, 0), (0.05, 1), (0.1, 0), (0.3, 0)]
    assert found[0].colour != found[1].colour


def test_a_family_has_the_marks_of_its_rule():
    found = families(RUNS)
    rules = [family.runs[0].decoding.acceptance for family in found]
    assert [family.symbol for family in found] == [rule.symbol for rule in rules]
    assert all(family.colour == rule.colour for family, rule in zip(found, rules, strict=True) if rule.colour)


def test_families_with_one_label_are_told_apart():
    method = decoding("speculative")
    nucleus = method.model_copy(update={"sampling": method.sampling.model_copy(update={"top_p": 0.9})})
    names = [family.name for family in families([SD, run_view(nucleus, metrics(acceptance=0.7))])]
    assert len(set(names)) == 2


def test_run_names_are_as_long_as_they_must_be_and_never_equal():
    assert run_names([SD])[SD.id] == SD.label
    seeds = [run_view(SD.decoding, metrics(), seed=seed) for seed in (0, 1)]
    assert [run_names(seeds)[run.id] for run in seeds] == [f"{SD.label} · seed 0", f"{SD.label} · seed 1"]
    twice = [run_view(SD.decoding, metrics(), id=letter * 32) for letter in "ab"]
    assert len(set(run_names(twice).values())) == 2


def test_tradeoff_takes_percent_and_marks_the_pareto_front():
    info = trade_offs.tradeoff_info(RUNS)
    point = by_name(info)["Target alone"].points[0]
    assert (point.speed.value, point.quality.value) == (100, 94)
    assert point.quality.low < 94 < point.quality.high <= 100  # type: ignore[operator]
    # SD is as accurate as the target and faster; T = 0.1 is slower and less accurate than T = 0.05.
    assert [p.name for p in info.front] == [SD.label, JS[1].label, JS[0].label, "Draft alone"]
    assert not point.on_front


def test_points_are_labelled_with_what_tells_them_apart_and_the_legend_has_the_rest():
    def drawn(*runs: Any, marked: str | None = None) -> tuple[set[str], set[str]]:
        """The labels, and the names in the legend."""
        fig = trade_offs.draw_tradeoff(trade_offs.tradeoff_info(runs), marked)
        labels = {re.sub("<[^>]*>", "", note.text) for note in fig.layout.annotations}
        return labels, {trace.name for trace in fig.data if trace.showlegend is not False}

    slow, fast = metrics(47, speed=100), metrics(20, speed=400)
    target, near = run_view(decoding("autoregressive"), slow), run_view(decoding("speculative"), metrics(46, speed=200))
    loose = run_view(decoding("fsd-reducible", divergence="js", threshold=0.1), fast)
    assert drawn(target, near, loose, marked=near.id) == (
        {"Target alone", "SD · γ 5", "js ≤ 0.1 · γ 5"}, {"Pareto front", "The answer"}
    )  # fmt: skip
    other = run_view(decoding("fsd", divergence="js", threshold=0.1), metrics(30, speed=300))
    labels, legend = drawn(target, near, loose, other)
    assert labels == {"Target alone", "SD · γ 5", "js ≤ 0.1 · γ 5"}
    assert legend == {"Pareto front", "FSD reducible · js · γ 5", "FSD · js · γ 5"}, "the label is that of both"
    many = [run_view(decoding("speculative"), slow, seed=seed) for seed in range(style.MOST_LABELLED)]
    assert drawn(target, *many) == (set(), {"Pareto front", "Target alone", "SD · γ 5"}), (
        "what has no label is named below"
    )


def test_where_nothing_is_scored_likeness_to_the_target_stands_for_accuracy():
    unscored = {"accuracy": None, "accuracy_low": None, "accuracy_high": None}
    likeness = {"same_text": 0.8, "same_text_low": 0.7, "same_text_high": 0.9}
    loose = run_view(decoding("fsd", threshold=0.3), metrics(1, speed=200) | unscored | likeness)
    alone = run_view(decoding("autoregressive"), metrics(1, speed=100) | unscored)
    drafted = run_view(decoding("draft-only"), metrics(1, speed=900) | unscored)
    info = trade_offs.tradeoff_info([alone, loose, drafted])
    qualities = {point.run.id: point.quality for group in info.groups for point in group.points}
    assert (qualities[alone.id].value, *qualities[loose.id][:2]) == (100, 80, 70)
    assert info.left_out == 1
    drawn = trade_offs.draw_tradeoff(info).layout.yaxis
    assert drawn.title.text == "Same text as the greedy target (% of prompts)"
    assert drawn.range[1] == 100, "no share is above"
    assert trade_offs.tradeoff_info([alone, loose, TARGET]).measure is trade_offs.ACCURACY_AXIS


def test_tradeoff_leaves_out_what_was_not_scored_and_counts_it():
    unscored = run_view(decoding("speculative"), metrics() | {"accuracy": None})
    info = trade_offs.tradeoff_info([TARGET, unscored, run_view(decoding("fsd"))])
    assert info.left_out == 2
    assert list(by_name(info)) == ["Target alone"]


def test_threshold_lines_have_references_without_a_threshold_and_no_baselines():
    info = trade_offs.threshold_info(RUNS, trade_offs.ACCEPTANCE_RATE)
    (line,) = info.lines
    assert [(mark.at, mark.value.value) for mark in line.points] == [(0.05, 80), (0.1, 85), (0.3, 93)]
    assert all(low < value < high for _, _, (value, low, high), _ in line.points)
    assert [reference.name for reference in info.references] == ["SD · γ 5"]


def test_a_threshold_that_is_off_or_infinite_has_no_place_on_the_axis():
    extremes = [
        run_view(decoding("fsd", divergence="kl", threshold=t), metrics(acceptance=rate))
        for t, rate in ((None, 0.7), (0.5, 0.8), (float("inf"), 1.0))
    ]
    info = trade_offs.threshold_info(extremes, trade_offs.ACCEPTANCE_LENGTH)
    assert [line.name for line in info.lines] == ["FSD · kl · γ 5"]
    assert [line.name for line in info.references] == ["FSD · kl · γ 5, T off", "FSD · kl · γ 5, T = ∞"]
    assert trade_offs.draw_threshold(info).layout.xaxis.range == (0.45, 0.55)


def test_every_seed_is_a_point_and_the_line_passes_through_their_mean():
    runs = [run_view(JS[0].decoding, metrics(acceptance=rate), seed=seed) for seed, rate in ((0, 0.8), (1, 0.9))]
    (line,) = trade_offs.threshold_info(runs, trade_offs.ACCEPTANCE_RATE).lines
    assert len(line.points) == 2
    assert trade_offs.means(line) == [(0.3, pytest.approx(85))]


def test_speedup_is_a_ratio_over_the_prompts_that_both_have():
    counts = prompts(SD, TARGET)
    noisy = {i: replace(one, seconds=one.seconds * (1.3 if i % 7 else 0.8)) for i, one in counts[SD.id].items()}
    ratio = speedup(SD, TARGET, counts | {SD.id: noisy})
    assert ratio is not None
    assert 1.3 < ratio.low < ratio.value < ratio.high < 1.6  # type: ignore[operator]
    assert speedup(TARGET, TARGET, counts) == (1, None, None)
    assert speedup(SD, TARGET, {}) is None


def test_throughput_without_a_measured_baseline_is_empty():
    assert trade_offs.throughput_info(RUNS, run_view(decoding("fsd")), PROMPTS).bars == []
    assert trade_offs.throughput_info(RUNS, None, PROMPTS).bars == []
    assert [bar.run.id for bar in trade_offs.throughput_info(RUNS, TARGET, PROMPTS).bars] == [run.id for run in RUNS]


def test_the_mark_at_one_is_at_the_bars_alone_and_the_labels_name_the_ratios():
    drawn = trade_offs.draw_throughput(trade_offs.throughput_info(RUNS, TARGET, PROMPTS))
    bar, labels = drawn.data
    marks = [(shape.x0, shape.x1, shape.y0, shape.y1) for shape in drawn.layout.shapes]
    assert marks == [(1, 1, i + trade_offs.MARK_PLACE[0], i + trade_offs.MARK_PLACE[1]) for i in range(len(RUNS))]
    assert trade_offs.MARK_PLACE[0] < bar.offset < bar.offset + bar.width < trade_offs.MARK_PLACE[1]
    told = [text.split("<br>") for text in labels.text[:2]]  # on two lines, since a name is too long for one
    assert told == [["Target alone", "100 tokens/s · baseline"], ["Draft alone", "400 tokens/s · 4.00×"]]


def test_positions_are_of_runs_that_draft():
    lines = acceptance.positions_info(RUNS)
    assert [line.name for line in lines] == [run.label for run in (SD, JS[1], JS[2], JS[0])]
    assert lines[0].points[1][0] == pytest.approx(0.49)


def test_answers_are_relative_to_the_baseline_and_a_draft_alone_asks_no_target():
    info = acceptance.answers_info(RUNS, TARGET, PROMPTS)
    assert info.baseline == "Target alone"
    assert list(info.rows) == ["Draft alone", SD.label, *(run.label for run in JS)]
    assert [set(info.rows[name]) for name in ("Draft alone", SD.label)] == [
        {"mean_tokens"},
        {"mean_tokens", "target_passes"},
    ]
    assert info.rows[SD.label]["mean_tokens"] == (1, None, None)  # no answer differs
    passes = info.rows[SD.label]["target_passes"]
    assert passes.value == pytest.approx(1 / 4.5, rel=0.03)
    assert passes.low < passes.value < passes.high  # type: ignore[operator]
    assert acceptance.answers_info(RUNS, TARGET, {}).rows == acceptance.answers_info(RUNS, None, PROMPTS).rows == {}


def test_requests_are_of_runs_that_draft_from_the_least_to_the_most():
    assert [line.name for line in acceptance.requests_info(RUNS)] == [run.label for run in (SD, JS[1], JS[2], JS[0])]
    drawn = acceptance.draw_requests(acceptance.requests_info([SD]))
    assert (drawn.data[0].x[0], drawn.data[0].x[-1]) == pytest.approx((35, 70))
    assert (drawn.data[0].y[0], drawn.data[0].y[-1]) == (0, 100)
    earlier = run_view(SD.decoding, {key: value for key, value in (SD.metrics or {}).items() if "deciles" not in key})
    assert acceptance.requests_info([earlier]) == []


def test_divergence_colours_the_bars_below_the_threshold():
    drawn = acceptance.draw_divergence(acceptance.divergence_info(JS[2]))  # threshold 0.1
    assert list(drawn.data[0].marker.color) == [acceptance.BELOW, acceptance.ABOVE, acceptance.ABOVE]
    assert drawn.layout.shapes[0].x0 == 0.1


@pytest.mark.parametrize(
    "drawn",
    [
        *comparison_figures(RUNS, TARGET, PROMPTS),
        *comparison_figures([], None, {}),
        *comparison_figures([run_view(decoding("fsd"))], None, {}),
        acceptance.draw_divergence(acceptance.divergence_info(SD)),
        acceptance.draw_divergence(acceptance.divergence_info(TARGET)),
    ],
    ids=lambda drawn: drawn.layout.title.text,
)
def test_figures_have_title_axes_height_and_only_basic_traces(drawn):
    assert drawn.layout.title.text
    assert drawn.layout.height >= 260
    assert drawn.layout.xaxis.title.text
    assert {trace.type for trace in drawn.data} <= BASIC_TRACES
    assert drawn.data or drawn.layout.annotations
    json.loads(drawn.to_json())


def test_names_are_shown_literally_never_as_markup():
    evil = '<a href="javascript:alert(1)">x</a> & %{x}'
    runs = [
        run_view(decoding(kind), metrics(acceptance=rate), label=evil, pair=evil)
        for kind, rate in (("speculative", 0.7), ("fsd", 0.8))
    ] + [TARGET]
    drawn = [
        *comparison_figures(runs, runs[0], prompts(*runs)),
        acceptance.draw_divergence(acceptance.divergence_info(runs[0])),
    ]
    text = "".join(figure.to_json() for figure in drawn)
    assert "javascript:alert" in text  # it is there, escaped
    assert "<a " not in text.replace("\\u003c", "<")
    assert all(trace.hovertemplate is None for figure in drawn for trace in figure.data)


def test_escape_leaves_plain_text_alone():
    assert style.escape("FSD · js ≤ 0.1") == "FSD · js ≤ 0.1"
    assert style.escape("<b>&") == "&lt;b&gt;&amp;"


def point(threshold: float, length: int, passes: float) -> curves.Point:
    decoding = DecodingConfig(acceptance=FuzzyReducible(threshold=threshold), topology=ChainTopology(length=length))
    return decoding, Estimate(passes, passes - 1, passes + 1), Estimate(passes + 0.5)


def test_settings_with_a_draft_length_each_are_one_line_over_the_knob() -> None:
    exact = DecodingConfig(acceptance=Speculative()), Estimate(9.0), Estimate(9.0)
    (rule,) = curves.by_rule([point(0.3, 16, 5.0), exact, point(0.1, 8, 7.0)])
    assert list(rule.curves) == [None]
    assert [(one.knob, one.length) for one in rule.curves[None]] == [(0.1, 8), (0.3, 16)]
    band, line, points = curves.draw_predicted([rule]).data
    assert list(line.y) == [7.0, 5.0]
    assert list(points.y) == [7.5, 5.5]
    assert (max(band.y), min(band.y)) == (8.0, 4.0)
    assert "predicted: 7 (6 to 8) target passes per answer" in points.hovertext[0]


def test_several_draft_lengths_of_a_knob_are_a_line_each() -> None:
    (rule,) = curves.by_rule([point(0.1, 8, 7.0), point(0.1, 4, 8.0), point(0.3, 8, 5.0)])
    assert {length: len(held) for length, held in rule.curves.items()} == {4: 1, 8: 2}
    drawn = curves.draw_predicted([rule])
    assert [trace.name for trace in drawn.data if trace.showlegend] == [
        "Predicted, γ 4", "Measured, γ 4", "Predicted, γ 8", "Measured, γ 8"
    ]  # fmt: skip


def test_without_predictions_it_says_where_they_come_from() -> None:
    assert "calibration" in curves.draw_predicted(curves.info([])).layout.annotations[0].text


@pytest.mark.parametrize("seed", range(12))
def test_no_label_and_no_leader_covers_another_or_a_mark(seed: int) -> None:
    rng = random.Random(seed)
    points = [(rng.random(), rng.choice((rng.random(), 0.9))) for _ in range(16)]
    texts = [rng.choice(("js ≤ 0.02 · γ 14", "SD · γ 5", "")) for _ in points]
    found = places(points, texts)
    assert places(points, texts) == found
    assert all(place is None or place._replace(wide=False) in PLACES for place in found)
    assert not any(place for place, text in zip(found, texts, strict=True) if not text)
    assert sum(bool(place) for place in found) >= 5
    for size in FIGURE_SIZES:
        placed = {i: place for i, place in enumerate(found) if place and (size in WIDE or not place.wide)}
        boxes = {i: _boxes(points[i], texts[i], place, size) for i, place in placed.items()}
        for i, j in combinations(placed, 2):
            assert not any(one.meets(other) for one in boxes[i] for other in boxes[j])
        marks = [_mark(point, size) for point in points]
        assert not [
            (i, j) for i in placed for j, mark in enumerate(marks) if i != j and any(b.meets(mark) for b in boxes[i])
        ]


def test_near_points_are_labelled_on_different_sides_then_by_leaders_and_one_without_room_not_at_all() -> None:
    assert places([(0.5, 0.5)], ["T 0.1"]) == [PLACES[0]]
    assert not PLACES[0].has_leader
    near = places([(0.5, 0.5), (0.5, 0.52)], ["T 0.1", "T 0.2"])
    assert None not in near
    assert len(set(near)) == 2
    crowd = places([(0.5, 0.5)] * 60, ["js ≤ 0.05 · γ 14"] * 60)
    assert crowd[0] == PLACES[0]
    assert crowd[-1] is None
    crowd = places([(0.4 + 0.01 * i, 0.5 + 0.02 * (i % 3)) for i in range(16)], ["js ≤ 0.05 · γ 14"] * 16)
    assert any(place and place.has_leader for place in crowd)
    long = "Typical acceptance · ε 0.3 · δ 0.09 · γ 5 · lenient in thoughts"
    assert [place and place.wide for place in places([(0.5, 0.5)], [long])] == [True], "a phone has no room for it"
    assert places([(0.5, 0.5)], [long * 4]) == [None]
    assert not any(places([(i / 100, 0.5) for i in range(100)], ["SD"] * 100)), "too many to tell apart"


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
