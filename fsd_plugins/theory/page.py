"""Theory page: the most that several drafts per position can gain.

Computations of the theory page on two typed-in distributions.

Heavy imports are deferred until they are needed, so that the page opens at once.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from dashboard.tables.run_record import BOUNDS_PRIORITY, gaps_html, of_run, rates
from dashboard.ui.components import Tile, heading, notice, section, show, tiles
from dashboard.ui.fields import optional_number, read
from dashboard.ui.page import Page, absence_notice
from dashboard.ui.templates import Html, render
from dashboard.ui.view import Asked, Part, Updates, Values, View
from fsd_core.analysis.cells import PALETTE, metrics, ratio_mixed, run_names
from fsd_core.config import VERIFIERS
from fsd_core.errors import Contradiction, FsdError, Malformed, NotGiven, OutOfRange
from fsd_core.metrics import MIXED_MARK
from fsd_core.models.model_pairs import pair_title
from fsd_core.plots import acceptance
from fsd_core.plots.acceptance import OPTIMA
from fsd_core.plots.style import MUTED, TEXT, faint, figure, hover, mixed_lines, note
from fsd_core.rules import SpeculativeBeams
from fsd_core.storage.messages import BoundsJob
from fsd_core.storage.records import UNENDED
from fsd_core.texts import count, percent
from fsd_core.theory import (
    DRAFT_SAMPLINGS,
    MOST_DRAFTS,
    SAMPLING_TITLES,
    acceptance_counts,
    layer_width,
    rejected_shares,
)
from fsd_core.worker import lent_gpu

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import JobRow


ACCEPTED = "#0d9488"


def draw_coupling(names: Sequence[str], coupling: Mapping[tuple[int, ...], Sequence[float]]) -> go.Figure:
    """Return a figure with a column for each set of drafts and a row for each possible output token.

    ``names`` are those of the tokens. ``coupling`` maps drafts, in any order, to the weight of every token with them. A
    cell is teal if its token is one of the drafts.
    """
    merged: dict[tuple[int, ...], list[float]] = {}
    for drafts, weights in coupling.items():
        row = merged.setdefault(tuple(sorted(drafts)), [0.0] * len(names))
        merged[tuple(sorted(drafts))] = [a + float(b) for a, b in zip(row, weights, strict=True)]
    columns = sorted(merged, key=lambda drafts: -sum(merged[drafts]))
    labels = [" ".join(names[x] for x in drafts) for drafts in columns]
    chart = figure("The best coupling", "What was drafted, most often first", "Token written", height=430)
    top = max((max(weights) for weights in merged.values()), default=1.0) or 1.0
    for accepted, colour in ((True, ACCEPTED), (False, MUTED)):
        cells = [
            [merged[drafts][x] if (x in drafts) == accepted and merged[drafts][x] > 0 else None for drafts in columns]
            for x in range(len(names))
        ]
        chart.add_heatmap(
            x=labels, y=list(names), z=cells, zmin=0, zmax=top, xgap=1, ygap=1, showscale=False, hoverinfo="text",
            hoverongaps=False, colorscale=[[0, faint(colour, 0.08)], [1, colour]],
            hovertext=[
                [
                    hover(f"{name} written", f"drafted: {label}", f"{percent(cell or 0, digits=2)} of all positions",
                          "accepted" if accepted else "not among the drafts")
                    for label, cell in zip(labels, row, strict=True)
                ]
                for name, row in zip(names, cells, strict=True)
            ],
        )  # fmt: skip
    chart.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return chart.update_xaxes(type="category", showgrid=False)


_STEPS = 60


class MeasuredSpeedup(NamedTuple):
    """A run: its drafter, acceptance α of a judged drafted token, draft length γ, cost c of drafting one token in
    forwards of the target alone, and speed-up over the target alone."""

    name: str
    drafter: str
    acceptance: float
    length: int
    cost: float
    speedup: float
    mixed: tuple[str, ...] = ()
    """conditions that differ between and within the two runs, so that the speed-up is not one figure"""


def predicted(acceptance: float, length: int, cost: float) -> float:
    """Return (1 − α^(γ+1)) / ((1 − α)(γc + 1)), theorem 3.8 of Leviathan et al. 2023.

    It assumes a verification that costs as much as one token of the target alone.
    """
    tokens = length + 1 if acceptance >= 1 else (1 - acceptance ** (length + 1)) / (1 - acceptance)
    return tokens / (length * cost + 1)


def measured_speedups(runs: Sequence[RunView]) -> list[MeasuredSpeedup]:
    """Return the runs that draft chains and were measured with the target alone, on the same prompts."""
    targets = {_comparability_key(run): run for run in runs if run.decoding.acceptance.kind == "autoregressive"}
    points = []
    names = run_names(runs)
    for run in runs:
        m, target, topology = metrics(run), targets.get(_comparability_key(run)), run.decoding.topology
        base = metrics(target).get("tokens_per_second") if target else None
        if not (
            m.get("drafted") and m.get("draft_seconds") and target and base and topology and topology.kind == "chain"
        ):
            continue
        accepted = [share * m["rounds"] for share in m["acceptance_at_position"]]
        conditional = m["conditional_acceptance_at_position"]
        judged = sum(count / share for count, share in zip(accepted, conditional, strict=True) if share)
        if judged:
            cost = m["draft_seconds"] / m["drafted"] * base
            points.append(
                MeasuredSpeedup(
                    names[run.id],
                    run.decoding.drafter.kind if run.decoding.drafter else "",
                    min(sum(accepted) / judged, 1.0),
                    topology.length,
                    cost,
                    m["tokens_per_second"] / base,
                    ratio_mixed(run, target),
                )
            )
    return points


def _comparability_key(run: RunView) -> tuple:
    """Return the properties that comparable runs share."""
    return run.experiment_id, run.pair, run.task, run.seed, run.config.dtype, run.config.device, run.config.batch


def draw_speedup(points: Sequence[MeasuredSpeedup]) -> go.Figure:
    """Return a curve for each drafter and draft length at its runs' mean cost, with the runs."""
    chart = figure(
        "Speed-up, predicted and measured",
        "Acceptance of a judged token (%)",
        "Tokens per second, × the target's",
        height=430,
    )
    if not points:
        return note(chart, "No run that drafts a chain was measured beside the target alone.")
    groups = sorted({(point.drafter, point.length) for point in points})
    for (drafter, length), colour in zip(groups, PALETTE * 4, strict=False):
        members = [point for point in points if (point.drafter, point.length) == (drafter, length)]
        title = f"{drafter}, γ {length}"
        cost = sum(point.cost for point in members) / len(members)
        shares = [i / _STEPS for i in range(_STEPS + 1)]
        chart.add_scatter(
            x=[100 * share for share in shares], y=[predicted(share, length, cost) for share in shares],
            name=f"Predicted, {title}, a token costs {cost:.2f} of one of the target",
            mode="lines", line={"color": colour, "width": 2}, hoverinfo="skip",
        )  # fmt: skip
        chart.add_scatter(
            x=[100 * point.acceptance for point in members], y=[point.speedup for point in members],
            name=f"Measured, {title}", mode="markers", marker={"color": colour, "size": 9, "symbol": "circle-open"},
            hoverinfo="text",
            hovertext=[
                hover(
                    point.name,
                    f"{percent(point.acceptance)} of judged tokens kept",
                    f"measured {point.speedup:.2f} ×{MIXED_MARK * bool(point.mixed)}, predicted "
                    f"{predicted(point.acceptance, point.length, point.cost):.2f} ×",
                    *mixed_lines(point.mixed),
                )
                for point in members
            ],
        )  # fmt: skip
    return chart.update_layout(margin_b=120)


FILLED, EMPTY = "#be185d", "#9ca3af"


def draw_widths(p: Sequence[float], q: Sequence[float], drafts: int) -> go.Figure:
    """Return a bar for each number of beams: the chance that ``drafts`` drafts, drawn from ``q`` with replacement, fill
    them. Those up to DSBD's width at its default confidence are coloured."""
    confidence = SpeculativeBeams().confidence
    chances = acceptance_counts([float(share) for share in rejected_shares(np.array(p), np.array(q), drafts)])
    filled = np.cumsum(chances[::-1])[::-1][1:]
    width = layer_width(chances, confidence, 0, drafts)
    beams = list(range(1, drafts + 1))
    chart = figure("Beams that drafts fill", "Beams of a layer", "Chance that the drafts fill them (%)", height=380)
    chart.add_bar(
        x=beams, y=[100 * chance for chance in filled],
        marker_color=[FILLED if count <= width else EMPTY for count in beams], hoverinfo="text",
        hovertext=[
            hover(f"{count} of {drafts} drafts", f"{percent(float(chance), digits=2)} of all layers")
            for count, chance in zip(beams, filled, strict=True)
        ],
    )  # fmt: skip
    chart.add_hline(
        y=100 * confidence, line={"dash": "dot", "color": TEXT}, annotation_text=f"confidence {confidence:g}"
    )
    chart.update_xaxes(dtick=1)
    return chart.update_yaxes(range=[0, 104])


_MOST_TOKENS = 200
MOST_OUTCOMES = 400  # of the drafts, in a picture of their coupling
_BETWEEN = re.compile(r"[\s,;|]+")


@dataclass(frozen=True)
class AcceptanceCurves:
    """Acceptance by the number of drafts, from one on."""

    optima: dict[str, list[float]]
    """by the sampling of drafts"""
    verifiers: dict[str, tuple[str, str, Mapping[int, float]]]
    """title, sampling of drafts, and rates by the number of drafts"""


def read_weights(text: str, name: str) -> list[float]:
    """Return numbers separated by spaces or commas as shares of their sum. Raises ``InvalidSetting`` for anything
    else."""
    parts = [part for part in _BETWEEN.split(text.strip()) if part]
    try:
        weights = [float(part) for part in parts]
    except ValueError:
        bad = next(part for part in parts if not _is_number(part))
        raise Malformed(f"“{bad[:20]}” in {name} is not a number: expected numbers such as 0.5, 0.3, 0.2.") from None
    if not 1 <= len(weights) <= _MOST_TOKENS:
        raise OutOfRange(
            f"There are {len(weights)} numbers in {name}: expected 1 to {_MOST_TOKENS}, one for each token."
        )
    if not min(weights) >= 0 or not 0 < sum(weights) < float("inf"):
        raise OutOfRange(
            f"The numbers in {name} are not a distribution: expected finite numbers of at least 0, not all of them 0."
        )
    return [weight / sum(weights) for weight in weights]


def _is_number(part: str) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True


def read_pair(target: str, draft: str) -> tuple[list[float], list[float]]:
    """Return p and q of one vocabulary. Raises ``InvalidSetting``."""
    p, q = read_weights(target, "the target's distribution"), read_weights(draft, "the draft's distribution")
    if len(p) != len(q):
        raise Contradiction(
            f"The target has {len(p)} tokens and the draft {len(q)}: give both the same tokens, 0 for a missing one."
        )
    return p, q


def token_names(count: int) -> list[str]:
    """Return A, B, … for up to 26 tokens, and numbers for more."""
    return list(ascii_uppercase[:count]) if count <= len(ascii_uppercase) else [str(i + 1) for i in range(count)]


def curves(p: list[float], q: list[float]) -> AcceptanceCurves:
    """Return all optima and all verifiers, for 1 to ``MOST_DRAFTS`` drafts."""
    from fsd_core.rules.rates import acceptance_rate
    from fsd_core.theory import optimal_acceptance

    counts = range(1, MOST_DRAFTS + 1)
    optima = {sampling: [optimal_acceptance(p, q, n, sampling) for n in counts] for sampling in OPTIMA}
    verifiers: dict[str, tuple[str, str, Mapping[int, float]]] = {}
    for name, verifier in VERIFIERS.items():
        if verifier.optimal:  # equals the optimum of its drafts
            continue
        supported = counts if verifier.drafts is None else (verifier.drafts,)
        verifiers[name] = (verifier.title, verifier.sampling, {n: acceptance_rate(name, p, q, n) for n in supported})
    return AcceptanceCurves(optima, verifiers)


def coupling(p: list[float], q: list[float], drafts: int, sampling: str) -> dict[tuple[int, ...], list[float]] | None:
    """Return the optimal coupling of drafts and output token, or ``None`` if its picture would be too large."""
    import numpy as np

    from fsd_core.theory import joint_distribution, optimal_coupling

    if sampling != "greedy" and len(q) ** drafts > MOST_OUTCOMES:
        return None
    _, weights = optimal_coupling(np.array(p), joint_distribution(np.array(q), drafts, sampling))
    return {outcome: row.tolist() for outcome, row in weights.items()}


_MOST_LISTED = 100  # runs to choose from
PLOTS = 4
"""plots of bounds: one for each chosen run and temperature"""
_POLL_SECONDS = 1.0
_RUNS_LEAD = (
    "What several drafts could have gained in your runs. The worker asks a run's two models again at 48 positions of "
    "its texts, and computes every verifier and every optimum there. With a large vocabulary this takes a few minutes."
)
NONE = "No run has ended yet: start an experiment, and choose its runs here."
CHOOSE = "No run is chosen: choose up to four, of one pair or several."
NOT_YET = "No bounds of {} are known yet: choose a temperature and measure them."
TEMPERATURE = "above 0; empty takes the run's"


class RunTheory(Part):
    """The components as attributes, with :meth:`redraw` and what the button does."""

    def __init__(self, repository: Repository, executor: Executor) -> None:
        self.repository = repository
        self.executor: Executor = executor
        show(section("In your runs"))
        show(render("theory/runs.html", "lead", _RUNS_LEAD))
        with gr.Row(equal_height=False, elem_classes=["rev-forms"]):
            self.runs = gr.Dropdown(
                [], label="Runs", info="Those whose two models are asked", multiselect=True, max_choices=PLOTS,
                min_width=320, scale=3,
            )  # fmt: skip
            self.temperature = optional_number("Temperature", TEMPERATURE, "1")
            self.measure = gr.Button("Measure bounds", variant="primary", min_width=140)
        self.answer = show()
        self.progress = show()
        self.message = show()
        self.plots = []
        for _ in range(0, PLOTS, 2):
            with gr.Row(equal_height=False):
                self.plots += [gr.Plot(show_label=False, visible=False, min_width=400) for _ in range(2)]
        self.gaps = show()
        self.speedup = gr.Plot(show_label=False, visible=False)
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self.fields = [self.runs, self.temperature]
        self.outputs = [
            self.runs, self.measure, self.answer, self.progress, self.message, *self.plots, self.gaps, self.speedup,
            self.clock,
        ]  # fmt: skip

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.button(self.measure, "measure bounds", self.fields, self.start, self.answer)
        view.on(self.clock.tick)

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the chosen runs' bounds, and of the jobs that measure them."""
        ids, offered = self._offer(asked)
        runs = [self.repository.run(id) for id in ids]
        experiments = dict.fromkeys(run.experiment_id for run in runs)
        siblings = [run for run in runs if run.experiment_id is None]
        siblings += [run for id in experiments if id for run in self.repository.experiment(id).runs]
        jobs = self._jobs(ids)  # after the runs: a job that has ended has stored its bounds
        updates = offered | self._bounds(asked, runs, siblings) | self._progress(asked, jobs)
        unmeasured = [_name(run) for run in runs if not of_run(run)]
        if asked.differs("message", unmeasured, bool(runs)):
            none = CHOOSE if int(asked.shown["offered"]) else NONE
            message = NOT_YET.format(", ".join(unmeasured)) if unmeasured else "" if runs else none
            updates[self.message] = notice(message) if message else ""
        if asked.differs("answer", ids, asked[self.temperature]):
            updates[self.answer] = ""  # it was about another choice
        return updates

    def fail(self, error: FsdError) -> Updates:
        """Return an error in place of the bounds."""
        hidden = {plot: gr.Plot(visible=False) for plot in (*self.plots, self.speedup)}
        return {self.message: notice(str(error), "bad"), self.progress: "", self.gaps: "", **hidden}

    def _offer(self, asked: Asked) -> tuple[list[str], Updates]:
        """Return the ids of the chosen runs. A page that opens offers the newest runs, and chooses one."""
        ids = (asked[self.runs] or [])[:PLOTS]
        if asked.shown.get("offered", "").isdecimal():
            return ids, {}
        runs = [run for run in self.repository.runs(limit=_MOST_LISTED, archived=False) if run.metrics]
        names = [(_name(run), run.id) for run in runs]
        asked.shown["offered"] = str(len(runs))
        if not ids:
            drafted = (run for run in runs if run.decoding.drafter is not None)
            first = next((run for run in runs if of_run(run)), None) or next(drafted, None) or next(iter(runs), None)
            ids = [first.id] if first else []
            asked.fill(self.runs, ids)
        return ids, {self.runs: gr.Dropdown(names)}

    def _bounds(self, asked: Asked, runs: list[RunView], siblings: list[RunView]) -> Updates:
        """Return the bounds and speed-ups of runs, if they differ."""
        measured = [(run, bounds) for run in runs for bounds in of_run(run)][:PLOTS]
        titles = [_title(run, bounds) for run, bounds in measured]
        points = measured_speedups(siblings)
        shown = [bounds for _, bounds in measured]
        if not asked.differs("bounds", len(runs), titles, shown, points, slow=True):
            return {}
        figures = [
            acceptance.draw_acceptance_by_drafts(
                *rates(bounds), _title(run, bounds) if len(runs) > 1 else _measured_at(bounds)
            )
            for run, bounds in measured
        ]
        updates: Updates = {
            plot: gr.Plot(figures[i] if i < len(figures) else None, visible=i < len(figures))
            for i, plot in enumerate(self.plots)
        }
        return updates | {
            self.gaps: render("theory/runs.html", "gaps", list(zip(titles, map(gaps_html, shown), strict=True))),
            self.speedup: gr.Plot(draw_speedup(points) if points else None, visible=bool(points)),
        }

    def _jobs(self, ids: list[str]) -> list[JobRow]:
        """Return the newest job of each of these runs."""
        newest: dict[str, JobRow] = {}
        for job in self.repository.latest_jobs(BoundsJob.kind) if ids else ():
            newest.setdefault(job.payload.get("run_id", ""), job)
        return [newest[id] for id in ids if id in newest]

    def _progress(self, asked: Asked, jobs: list[JobRow]) -> Updates:
        """Return how far the jobs are, if it differs. The page asks again while one is under way."""
        waiting = [job for job in jobs if job.status in UNENDED]
        if waiting:
            worker = self.repository.worker()
            absent = absence_notice(worker, self.executor)
            begun = any(job.status == "running" for job in waiting)
            activity = worker.activity if worker and begun else "The worker will begin shortly."
            progress = absent or notice(f"Measuring, {len(waiting)} of {len(jobs)} to do. {activity}")
        else:
            errors = [job.error or "It was stopped." for job in jobs if job.status != "finished"]
            progress = notice(" ".join(dict.fromkeys(errors)), "bad") if errors else ""
        if not asked.differs("progress", progress, bool(waiting)):
            return {}
        return {
            self.progress: progress,
            self.clock: gr.Timer(active=bool(waiting)),
            self.measure: gr.Button(interactive=not waiting),
        }

    def start(self, values: Values, asked: Asked) -> Updates:
        """Queue a job for each chosen run, unless it is under way or was queued by the same click."""
        ids = list(dict.fromkeys(values[self.runs]))[:PLOTS]
        if not ids:
            raise NotGiven(CHOOSE)
        temperature = read(values[self.temperature], "Temperature")
        if temperature is not None and not 0 < temperature < math.inf:
            raise OutOfRange(f"The temperature is {temperature:g}: expected more than 0, where several drafts differ.")
        jobs = {_job_id(values.key, self.repository.run(id).id): BoundsJob(id, temperature) for id in ids}
        waiting = [job.payload for job in self.repository.latest_jobs(BoundsJob.kind) if job.status in UNENDED]
        for id, message in jobs.items():
            if message.as_json() not in waiting and not self.repository.find_job(id):
                self.repository.enqueue(message, BOUNDS_PRIORITY, id)
                lent_gpu.remember_requester(id)
        return {self.answer: ""}


def _job_id(key: str, run: str) -> str:
    return hashlib.blake2b(f"{key} {run}".encode(), digest_size=16).hexdigest()


def _name(run: RunView) -> str:
    return f"{run.label} · {run.task} · {pair_title(run.pair)} · {run.id[:6]}"


def _measured_at(bounds: dict[str, Any]) -> str:
    return f"At {bounds['positions']} positions, temperature {bounds['temperature']:g}"


def _title(run: RunView, bounds: dict[str, Any]) -> str:
    return f"{run.label} · {pair_title(run.pair)} · {_measured_at(bounds).lower()}"


_LEAD = (
    "How often can one of several drafted tokens be kept without changing the target's distribution? Type in two "
    "distributions to see the bound and what each verifier reaches."
)
COUPLING = (
    "Each column is one outcome of the drafts. A stronger cell is a more frequent token: teal if it is one of the "
    "drafts, grey if it is not."
)
NO_COUPLING = "The coupling has too many cells for a picture: choose fewer drafts, or fewer tokens."
WIDTHS = (
    "For beams, p and q are the joint distributions over all pairs of a beam and a token. The bars are those of "
    "drafts drawn with replacement, in turn. DSBD keeps as many beams as the coloured bars reach, before it looks at "
    "the drafts."
)
_EXAMPLE = ("0.45, 0.30, 0.15, 0.10", "0.20, 0.40, 0.10, 0.30")


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    TheoryPage(repository, settings.executor)


class TheoryPage:
    """Bounds of two distributions that are typed in, and below them those of runs."""

    def __init__(self, repository: Repository, executor: Executor) -> None:
        show(heading("Theory", _LEAD))
        self.typed = TypedBounds()
        self.runs = RunTheory(repository, executor)
        self.view = View(self.runs.answer, self.fail)
        self.runs.listen(self.view)
        fields, outputs = [*self.typed.fields, *self.runs.fields], [*self.typed.outputs, *self.runs.outputs]
        self.view.listen(self.redraw, fields, outputs, kept=fields)

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the page."""
        return self.typed.redraw(asked) | self.runs.redraw(asked)

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error in place of the runs' bounds. It cannot come from the distributions that were typed in."""
        return self.typed.redraw(asked) | self.runs.fail(error)


class TypedBounds:
    """Two distributions, the number of drafts and how they are drawn, with the bounds below."""

    def __init__(self) -> None:
        with gr.Row(equal_height=False):
            self.target = gr.Textbox(
                _EXAMPLE[0], label="Target p", info="A number for each token, in any scale", max_length=4000,
                min_width=260,
            )  # fmt: skip
            self.draft = gr.Textbox(
                _EXAMPLE[1], label="Draft q", info="The same tokens in the same order", max_length=4000, min_width=260
            )
            numbers = [str(n) for n in range(1, MOST_DRAFTS + 1)]
            self.drafts = gr.Radio(numbers, value="2", label="Drafts", min_width=200)
            titles = [(title, name) for name, title in SAMPLING_TITLES.items()]
            self.sampling = gr.Radio(titles, value=DRAFT_SAMPLINGS[0], label="Drawn", min_width=340)
        self.tiles = show()
        with gr.Row(equal_height=False):
            with gr.Column(min_width=340):
                self.rates = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.coupling = gr.Plot(show_label=False)
                self.note = show()
        self.widths = gr.Plot(show_label=False)
        self.widths_note = show()

    @property
    def fields(self) -> list[Any]:
        """Components that :meth:`redraw` reads."""
        return [self.target, self.draft, self.drafts, self.sampling]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` may change."""
        return [self.tiles, self.rates, self.coupling, self.note, self.widths, self.widths_note]

    def redraw(self, asked: Asked) -> Updates:
        """Return the bounds of the two distributions, or what is wrong with these, if they differ."""
        target, draft = asked[self.target] or "", asked[self.draft] or ""
        drafts, sampling = int(asked[self.drafts] or 1), asked[self.sampling] or DRAFT_SAMPLINGS[0]
        if not asked.differs("typed", target, draft, drafts, sampling):
            return {}
        try:
            html, rates, pairs, note, widths = _results(target, draft, drafts, sampling)
        except FsdError as error:
            hidden = gr.Plot(visible=False)
            plots = dict.fromkeys([self.rates, self.coupling, self.widths], hidden)
            return {self.tiles: notice(str(error), "bad"), self.note: "", self.widths_note: "", **plots}
        return {
            self.tiles: html,
            self.rates: gr.Plot(rates, visible=True),
            self.coupling: gr.Plot(pairs, visible=pairs is not None),
            self.note: note,
            self.widths: gr.Plot(widths, visible=True),
            self.widths_note: notice(WIDTHS),
        }


@lru_cache(maxsize=64)  # the same for everyone who opens the page
def _results(target: str, draft: str, drafts: int, sampling: str) -> tuple[Html, Figure, Figure | None, Html, Figure]:
    """Return tiles, curves, the coupling if it can be drawn, a note on it, and the beams that drafts fill. Raises
    ``InvalidSetting``."""
    p, q = read_pair(target, draft)
    rates, pairs = curves(p, q), coupling(p, q, drafts, sampling)
    return (
        _tiles(rates.optima, drafts),
        acceptance.draw_acceptance_by_drafts(rates.optima, rates.verifiers),
        draw_coupling(token_names(len(p)), pairs) if pairs else None,
        notice(COUPLING if pairs else NO_COUPLING),
        draw_widths(p, q, drafts),
    )


def _tiles(optima: dict[str, list[float]], drafts: int) -> Html:
    single = next(iter(optima.values()))[0]
    entries = [Tile("One draft", percent(single, digits=2), "speculative decoding, Σ min(p, q)")]
    for sampling, title in SAMPLING_TITLES.items():
        rate = optima[sampling][drafts - 1]
        entries.append(Tile(title.capitalize(), percent(rate, digits=2), f"at best, with {count(drafts, 'draft')}"))
    return tiles(entries)


PAGE = Page("Theory", "theory", build)
