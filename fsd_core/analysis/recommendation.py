"""The conclusion of a comparison: the fastest setting that keeps the baseline's accuracy, or why none does.

Settings over the load: how fast each is when so many prompts are asked at once, and where speculation stops paying.

The load of a running engine is how many prompts it is asked at once, or how many arrive in a second. That of our own
loop is the batch size.

Nothing is computed here. Whether a run keeps the accuracy is its verdict (:mod:`fsd_core.statistics.paired`),
which is fastest says :func:`fsd_core.evaluation.versus.rank_by_time`, and how much faster
:func:`fsd_core.analysis.cells.speedup`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.analysis.cells import measured, metrics, ratio_mixed, run_names, shared, speedup, throughput_ratio
from fsd_core.evaluation.versus import LEAST_TOLD_APART, rank_by_time
from fsd_core.metrics import listed
from fsd_core.rules import Served
from fsd_core.statistics.intervals import quotient_interval
from fsd_core.statistics.paired import Verdict
from fsd_core.storage.records import UNENDED
from fsd_core.texts import count, decimals, number_text, percent

if TYPE_CHECKING:
    from fsd_core.statistics.intervals import Estimate
    from fsd_core.storage.records import PromptCounts, Prompts, RunView


LONGER, DRAFT, VERIFICATION, ACCEPTANCE = (
    "longer answers", "the draft is too dear", "the verification is too dear", "too little is accepted"
)  # fmt: skip


class Slowdown(NamedTuple):
    """A run's time per answer relative to its baseline's: ``length`` times the costs of a round, over its tokens."""

    time: float
    """ratio of seconds per answer to the baseline's; above 1"""
    length: float
    """ratio of tokens per answer"""
    tokens: float
    """per round"""
    draft: float
    """share of a round's time that goes to drafting"""
    verification: float
    """the rest of a round's time, relative to that of the baseline's rounds"""
    parts: tuple[str, ...]
    """the parts that would end the slowdown if they were as in the baseline; acceptance if no other would"""
    break_even: float
    """tokens per round at which both would take equally long per answer"""
    most: int | None
    """maximum tokens per round; ``None`` if the topology does not fix it"""
    acceptance: float | None
    """of each drafted token that is judged, to break even on a chain; ``None`` if no value does"""

    def sentence(self) -> str:
        """Return the text that pages show."""
        reach = f"{self.break_even:.2f} tokens per pass"
        if self.acceptance is not None:
            reach += f", an acceptance of {100 * self.acceptance:.0f} % for each drafted token"
        elif self.most is not None:
            reach += f", which {self.most} at most cannot reach"
        return (
            f"{self.time:.2f}× the baseline's time per answer: {', '.join(self.parts)}. "
            f"Answers are {self.length:.2f}× as long, a pass brings {self.tokens:.2f} tokens, drafting takes "
            f"{100 * self.draft:.0f} % of a round, and the rest {self.verification:.2f}× that of the baseline's. "
            f"It would break even at {reach}."
        )


def slowdown(run: RunView, baseline: RunView, prompts: Prompts) -> Slowdown | None:
    """Return why a run is slower. ``None`` for baselines, for times that cannot be compared, and if the interval over
    the shared prompts does not show it to be slower."""
    both = shared(run, baseline, prompts)
    done = [i for i in sorted(both[0]) if "failed" not in (both[0][i].outcome, both[1][i].outcome)]
    run_counts, baseline_counts = ([side[i] for i in done] for side in both)
    if (
        not run.decoding.drafter
        or run.id == baseline.id
        or not _times_compare(run, baseline)
        or not all(_sum(side, "tokens") for side in (run_counts, baseline_counts))
    ):
        return None
    if not all(_sum(side, "seconds") and _sum(side, "rounds") for side in (run_counts, baseline_counts)):
        return None
    time_ratio = quotient_interval(
        [(count.seconds, 1) for count in run_counts], [(count.seconds, 1) for count in baseline_counts]
    )
    if time_ratio is None or time_ratio.low <= 1:
        return None
    time, length = (_sum(run_counts, name) / _sum(baseline_counts, name) for name in ("seconds", "tokens"))
    draft, baseline_draft = _draft_share(run), _draft_share(baseline)
    run_round, baseline_round = (_sum(side, "seconds") / _sum(side, "rounds") for side in (run_counts, baseline_counts))
    verification = (1 - draft) * run_round / ((1 - baseline_draft) * baseline_round)
    tokens = _sum(run_counts, "tokens") / _sum(run_counts, "rounds")
    time_without = {
        LONGER: time / length,
        DRAFT: time * (1 - draft + min(draft, baseline_draft * baseline_round / run_round)),
        VERIFICATION: time * (draft + (1 - draft) * min(1.0, 1 / verification)),
    }
    break_even, most = time * tokens, _max_tokens(run)
    parts = tuple(part for part, ratio in time_without.items() if ratio <= 1) or (ACCEPTANCE,)
    acceptance = _acceptance(run, break_even)
    return Slowdown(time, length, tokens, draft, verification, parts, break_even, most, acceptance)


def _sum(counts: Sequence[PromptCounts], name: str) -> float:
    return sum(getattr(count, name) for count in counts)


def _draft_share(run: RunView) -> float:
    values = metrics(run)
    return min(1.0, values.get("draft_seconds", 0.0) / values["seconds"]) if values.get("seconds") else 0.0


def _max_tokens(run: RunView) -> int | None:
    topology = run.decoding.topology
    return topology.length + 1 if topology is not None and topology.kind == "chain" else None


def _acceptance(run: RunView, tokens: float) -> float | None:
    """Solve (1 − α^(γ+1))/(1 − α) = tokens for α: the expected tokens of a chain's round (Leviathan et al. 2023)."""
    from scipy.optimize import root_scalar

    most = _max_tokens(run)
    if most is None or not 1 < tokens < most:
        return None
    return float(root_scalar(lambda a: sum(a**i for i in range(most)) - tokens, bracket=(0, 1)).root)


class LoadPoint(NamedTuple):
    """A setting under one load."""

    load: float
    """prompts at once, or prompts that arrive in a second"""
    run: RunView
    ratio: Estimate | None
    """tokens per second over those of the baseline's setting under the same load, on the prompts that both have done"""
    left_out: str
    """why the ratio says nothing; empty if it does"""

    @property
    def verdict(self) -> int | None:
        """+1 if the interval of the ratio is above 1, -1 if it is below, 0 for neither; ``None``: not known."""
        if self.left_out or self.ratio is None or self.ratio.low is None or self.ratio.high is None:
            return None
        return (self.ratio.low > 1) - (self.ratio.high < 1)


class LoadLine(NamedTuple):
    """One setting over the load, lowest first."""

    name: str
    is_baseline: bool
    points: list[LoadPoint]

    @property
    def first(self) -> RunView:
        return self.points[0].run

    @property
    def by_rate(self) -> bool:
        """Whether the load is how many prompts arrive in a second, and not how many are asked at once."""
        return bool(self.first.config.rate)


def load_lines(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> list[LoadLine]:
    """Return the settings that were measured under two loads of a kind or more; empty if there are none."""
    groups: dict[tuple, dict[float, RunView]] = {}
    for run in measured(runs):
        groups.setdefault(_line(run), {}).setdefault(_load(run), run)
    groups = {line: by_load for line, by_load in groups.items() if len(by_load) > 1}
    names = run_names([next(iter(by_load.values())) for by_load in groups.values()])
    lines = []
    for line, by_load in groups.items():
        alone = {_load(baseline): baseline} if baseline and _kind(baseline) == line[-1] else {}
        pinned = groups.get(_like(line, baseline), alone) if baseline else {}
        points = [_point(load, by_load[load], pinned.get(load), prompts) for load in sorted(by_load)]
        name = names[next(iter(by_load.values())).id]
        lines.append(LoadLine(name, baseline is not None and line == _like(line, baseline), points))
    return lines


def load_sentences(lines: Sequence[LoadLine]) -> list[str]:
    """Return under which loads each setting is faster than the baseline, and where speculation stops paying."""
    of_kinds = ([line for line in lines if line.by_rate == by_rate] for by_rate in (False, True))
    return [sentence for some in of_kinds for sentence in _sentences(some)]


def _sentences(lines: Sequence[LoadLine]) -> list[str]:
    base = next((line for line in lines if line.is_baseline), None)
    if base is None:
        return ["The baseline was measured under one load alone: choose one that was measured under several."][
            : len(lines)
        ]
    sentences = [_sentence(line, base) for line in lines if not line.is_baseline]
    reasons = dict.fromkeys(point.left_out for line in lines for point in line.points if point.left_out)
    return [*filter(None, sentences), *reasons]


def _line(run: RunView) -> tuple:
    return run.pair, run.task, run.setting_id, run.seed, _kind(run)


def _like(line: tuple, run: RunView) -> tuple:
    """Return the line of a run's setting under loads of the same kind as those of another line."""
    return *_line(run)[:-1], line[-1]


def _kind(run: RunView) -> int:
    """Return the common limit of a line's loads: how many may be open where prompts arrive at a rate, else 0."""
    return run.config.batch if run.config.rate else 0


def _load(run: RunView) -> float:
    return run.config.rate or run.config.batch


def _point(load: float, run: RunView, baseline: RunView | None, prompts: Prompts) -> LoadPoint:
    if baseline is None or baseline.id == run.id:
        return LoadPoint(load, run, None, "")
    busy = [side for side in (run, baseline) if (metrics(side).get("engine") or {}).get("other_traffic") is True]
    varying = [name for name in ratio_mixed(run, baseline) if name != "engine"]
    left_out = ""
    if busy:
        left_out = f"{busy[0].label} at {run.config.load_text} wrote for others meanwhile, so it is not compared."
    elif varying:
        left_out = f"{run.label} at {run.config.load_text} was measured under other conditions ({listed(varying)})."
    return LoadPoint(load, run, throughput_ratio(run, baseline, prompts), left_out)


def drafts(run: RunView) -> bool:
    """Whether speculation wrote the texts: by the setting, or by what the engine counted."""
    if isinstance(run.decoding.acceptance, Served):
        return metrics(run).get("acceptance_rate") is not None
    return run.decoding.drafter is not None


def _engine(run: RunView) -> str:
    """Return the name of the engine, such as ``vLLM 0.32.0``; empty for our own loop."""
    if not isinstance(run.decoding.acceptance, Served):
        return ""
    return str((run.provenance or {}).get("engine") or run.decoding.acceptance.engine)


def _sentence(line: LoadLine, base: LoadLine) -> str:
    known = {point.load: point.verdict for point in line.points if point.verdict is not None}
    if not known:
        return ""
    loads, each = list(known), "a second" if line.by_rate else "at once"
    faster, slower = ([load for load in loads if known[load] == sign] for sign in (1, -1))
    pays = drafts(line.first) and not drafts(base.first) and _engine(line.first) == _engine(base.first)
    more = f"{line.name} writes more tokens per second than {base.name}"
    end, until = "", f"from {loads[0]:g} to {loads[-1]:g} {each}"
    if faster == loads:
        text, end = f"{more} under every load, {until}", f"speculation still pays at {loads[-1]:g}"
    elif not faster:
        text, end = f"{more} under no load, {until}", "speculation does not pay here"
    elif faster == loads[: len(faster)]:
        last, following = faster[-1], loads[len(faster)]
        text = f"{more} at {_numbers(faster)} {each}, and at {following:g} no longer beyond chance"
        end = f"speculation stops paying between {last:g} and {following:g}"
    else:
        text = f"{more} at {_numbers(faster)} {each}, and not at the other loads"
    if slower and faster:
        text += f" (at {_numbers(slower)} it is slower)"
    elif slower:
        text += f", and is slower at {_numbers(slower)}"
    return f"{text}: {end}." if pays and end else f"{text}."


def _numbers(loads: Sequence[float]) -> str:
    return listed([f"{load:g}" for load in loads])


_KEPT = ("identical", "non-inferior")


class Recommendation(NamedTuple):
    """The answer of a comparison, and what would settle it if it is open."""

    sentence: str
    run_id: str | None = None
    """the fastest run within the margin: lossless ones and the baseline count"""
    undecided_id: str | None = None
    """of the lossy runs that may prove to be within the margin and are faster, the one that needs the fewest prompts"""
    prompts: int | None = None
    """about how many prompts in all decide on it"""


def comparable_times(
    runs: Sequence[RunView], baseline: RunView, prompts: Prompts
) -> dict[str, Mapping[int, PromptCounts]]:
    """Return the counts of the runs whose times can be held against the baseline's, by id.

    Left out are runs of other pairs and batch sizes, of other conditions, and those that share no prompt with it.
    """
    return {
        run.id: prompts[run.id]
        for run in runs
        if prompts.get(run.id) and _times_compare(run, baseline) and shared(run, baseline, prompts)[0]
    }


def _times_compare(run: RunView, baseline: RunView) -> bool:
    return _asks_alike(run, baseline) and not ratio_mixed(run, baseline)


def _asks_alike(run: RunView, baseline: RunView) -> bool:
    return run.pair == baseline.pair and run.config.load == baseline.config.load


def recommend(
    runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts, names: Mapping[str, str],
    verdicts: Mapping[str, Verdict | None], points: Mapping[str, float], margin: float | None,
) -> Recommendation:  # fmt: skip
    """Return the fastest run that is within ``margin`` points of the baseline, or what is missing to name one.

    ``verdicts`` and ``points`` (accuracy less the baseline's) are by run. The verdicts of runs that have not ended must
    be ``None``, because a verdict that is looked up again after each prompt would be wrong too often.
    """
    ended = [run for run in runs if run.metrics and run.status not in UNENDED]
    still = _still([run for run in runs if run.status in UNENDED])
    if len(runs) == 1:
        return Recommendation("One run has nothing to be held against: choose another one, too.")
    if baseline is None or baseline.id not in {run.id for run in ended}:
        return Recommendation(_joined("Nothing can be said before the baseline is measured.", still))
    if still and len(ended) == 1:
        return Recommendation(f"Nothing can be said yet: {still}")
    if margin is None:
        return Recommendation(_joined("Without a margin of 0 to 20 points no setting can be named.", still))
    timed = comparable_times(ended, baseline, prompts)
    lossy = {run.id: verdicts.get(run.id) for run in ended if run.id != baseline.id and not is_lossless(run, baseline)}
    kept = {id for id, verdict in verdicts.items() if verdict and verdict.kind in _KEPT}
    exact = [run.id for run in ended if run.id in timed and run.decoding.drafter and is_lossless(run, baseline)]
    undecided = {id: verdict for id, verdict in lossy.items() if verdict and verdict.kind == "undecided"}
    apart = [
        run for run in ended
        if run.id not in timed and run.decoding.acceptance.kind != "autoregressive"
        and (run.id in kept or run.id in undecided or is_lossless(run, baseline))
        and prompts.get(run.id) and shared(run, baseline, prompts)[0]
    ]  # fmt: skip
    fastest_exact = rank_by_time({id: timed[id] for id in exact}).first if exact else None
    answer = _Answer({run.id: run for run in ended}, baseline, prompts, names, verdicts, margin, fastest_exact)
    allowed = [id for id in timed if id in kept or id in exact]
    shown = {id: timed[id] for id in allowed if answer.is_surely_faster(id, baseline.id)}
    best = rank_by_time(shown).first if shown else baseline.id
    if apart:
        still = _joined(answer.apart([run.id for run in apart]), still)
        if not shown:
            return Recommendation(_joined("Which setting is the fastest cannot be told.", still))
    if not shown and (busy := _busy(answer, timed, allowed)):
        return Recommendation(_joined(busy, still), best)
    if best in lossy:
        return Recommendation(_joined(f"Fastest {answer.reach}: {answer.named(best)}.", still), best)
    fallback = answer.lossless(best, alone=not lossy)
    if not lossy:
        return Recommendation(_joined(fallback, still), best)
    if kept & lossy.keys():
        none = "" if any(run.id in lossy for run in apart) else f"No lossy setting {answer.reach} is faster."
        return Recommendation(_joined(none, fallback, still), best)
    promising = {
        id: verdict.prompts
        for id, verdict in undecided.items()
        if id in timed and points.get(id, -margin) > -margin and answer.is_faster(id, best)
    }
    if decidable := {id: prompts for id, prompts in promising.items() if prompts}:
        id = min(decidable, key=lambda one: (decidable[one], answer.runs[one].decoding.acceptance.baseline))
        more = count(max(1, decidable[id] - undecided[id].n), "more prompt")
        sentence = f"No lossy setting is {answer.reach} yet: about {more} would decide on {names[id]}."
        return Recommendation(_joined(sentence, fallback, still), best, id, decidable[id])
    if any(run.id in lossy for run in apart):
        return Recommendation(_joined(fallback, still), best)
    several = len(lossy) > 1
    if tried := [id for id in promising if answer.runs[id].trial]:
        why = f"the calibration has not decided on {names[tried[0]]}"
    elif undecided:
        why = "what is undecided loses more so far, or is not faster"
    elif any(lossy.values()):
        why = "all of them are worse" if several else "it is worse"
    else:
        fresh = "fresh " * any(answer.runs[id].trial for id in lossy)
        why = f"no {fresh}prompt of {'theirs' if several else 'it'} is scored"
    sentence = f"No lossy setting is known to be {answer.reach}: {why}."
    return Recommendation(_joined(sentence, fallback, still), best)


def _busy(answer: _Answer, timed: Mapping[str, Mapping[int, PromptCounts]], allowed: Sequence[str]) -> str:
    """Return that a busy machine hides which is the fastest; empty if it does not, or nothing else is allowed."""
    if not any(answer.is_faster(id, answer.baseline.id) for id in allowed):
        return ""
    if (share := rank_by_time(timed).taken or 0.0) <= LEAST_TOLD_APART:
        return ""
    return (
        f"Too busy to tell: nothing is shown to be faster than {answer.short(answer.baseline.id)}, and other programs "
        f"took {percent(share, digits=0)} of the time. Measure again on a quiet machine."
    )


def _still(waiting: Sequence[RunView]) -> str:
    return f"{count(len(waiting), 'run')} {'is' if len(waiting) == 1 else 'are'} not finished." if waiting else ""


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def is_lossless(run: RunView, baseline: RunView) -> bool:
    """Return whether a run has the distribution of its target, sampled as the baseline's."""
    return run.decoding.acceptance.lossless and run.decoding.sampling == baseline.decoding.sampling


class _Answer(NamedTuple):
    """The parts of the sentence."""

    runs: Mapping[str, RunView]
    baseline: RunView
    prompts: Prompts
    names: Mapping[str, str]
    verdicts: Mapping[str, Verdict | None]
    margin: float
    fastest_exact: str | None

    @property
    def reach(self) -> str:
        name = self.short(self.baseline.id)
        return f"within {count(self.margin, 'point')} of {name}" if self.margin else f"more accurate than {name}"

    def is_faster(self, id: str, other: str) -> bool:
        """Return whether a run is the faster one of two, by time per answer, on the prompts that both have done."""
        times = speedup(self.runs[id], self.runs[other], self.prompts)
        return times is not None and times.value > 1

    def is_surely_faster(self, id: str, other: str) -> bool:
        """Return whether the interval of how many times as fast a run is lies above 1."""
        times = speedup(self.runs[id], self.runs[other], self.prompts)
        return times is not None and times.low is not None and times.low > 1

    def short(self, id: str) -> str:
        """Return the name of a run in the sentence."""
        return "the target" if self.runs[id].decoding.acceptance.kind == "autoregressive" else self.names[id]

    def named(self, id: str) -> str:
        """Return a run with its speed, its accuracy and its verdict."""
        run = self.runs[id]
        share, verdict = metrics(run).get("accuracy"), self.verdicts.get(id)
        low, high = metrics(run).get("accuracy_low"), metrics(run).get("accuracy_high")
        parts = [self._times(run), "" if share is None else f"{percent(share, low, high)} solved"]
        if verdict and verdict.kind in _KEPT:
            parts.append(verdict.kind if verdict.kind != "identical" else "identical texts")
        return ", ".join([self.names[id], *filter(None, parts)])

    def apart(self, ids: Sequence[str]) -> str:
        """Return that times of these runs are not held against the baseline's."""
        named = self.names[ids[0]] if len(ids) == 1 else f"{len(ids)} settings"
        were, their = ("was", "its") if len(ids) == 1 else ("were", "their")
        alike = all(_asks_alike(self.runs[id], self.baseline) for id in ids)
        return (
            f"{named} {were} measured under other conditions than {self.short(self.baseline.id)}, so {their} speed is "
            f"not compared{': measure them in one experiment' * alike}."
        )

    def lossless(self, best: str, *, alone: bool) -> str:
        """Return the fastest run that needs no margin. ``alone``: whether it is the whole answer."""
        if best != self.baseline.id:
            return f"Fastest without loss: {self.named(best)}."
        name = self.short(best)
        return f"Nothing here is faster than {name}." if alone else f"Without loss, nothing is faster than {name}."

    def _times(self, run: RunView) -> str:
        """Return how many times as fast as the fastest exact drafting run it is, or else as the baseline."""
        exact = self.fastest_exact
        other = self.runs[exact] if exact is not None and exact != run.id else self.baseline
        times = speedup(run, other, self.prompts) if other.id != run.id else None
        return f"{number_text(times.value, max(1, decimals(*times)))} × {self.short(other.id)}" if times else ""
