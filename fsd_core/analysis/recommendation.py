"""The conclusion of a comparison: the fastest setting that keeps the baseline's accuracy, in one sentence.

Nothing is computed here. Whether a run keeps the accuracy is its verdict (:mod:`fsd_core.statistics.noninferiority`),
which is fastest says :func:`fsd_core.evaluation.time_ranking.rank_by_time`, and how much faster
:func:`fsd_core.analysis.cells.speedup`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.analysis.cells import ratio_mixed, shared, speedup
from fsd_core.analysis.series import metrics
from fsd_core.evaluation.time_ranking import LEAST_TOLD_APART, rank_by_time
from fsd_core.formatting import count, decimals, number, percent
from fsd_core.statistics.noninferiority import Verdict
from fsd_core.storage.records import UNENDED

if TYPE_CHECKING:
    from fsd_core.storage.records import PromptCounts, Prompts, RunView

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
        if prompts.get(run.id) and run.pair == baseline.pair and run.config.load == baseline.config.load
        and not ratio_mixed(run, baseline) and shared(run, baseline, prompts)[0]
    }  # fmt: skip


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
    fastest_exact = rank_by_time({id: timed[id] for id in exact}).first if exact else None
    answer = _Answer({run.id: run for run in ended}, baseline, prompts, names, verdicts, margin, fastest_exact)
    allowed = [id for id in timed if id in kept or id in exact]
    shown = {id: timed[id] for id in allowed if answer.is_surely_faster(id, baseline.id)}
    best = rank_by_time(shown).first if shown else baseline.id
    if not shown and (busy := _busy(answer, timed, allowed)):
        return Recommendation(_joined(busy, still), best)
    if best in lossy:
        return Recommendation(_joined(f"Fastest {answer.reach}: {answer.named(best)}.", still), best)
    fallback = answer.lossless(best, alone=not lossy)
    if not lossy:
        return Recommendation(_joined(fallback, still), best)
    if kept & lossy.keys():
        return Recommendation(_joined(f"No lossy setting {answer.reach} is faster.", fallback, still), best)
    undecided = {id: verdict for id, verdict in lossy.items() if verdict and verdict.kind == "undecided"}
    promising = {
        id: verdict.prompts
        for id, verdict in undecided.items()
        if points.get(id, -margin) > -margin and answer.is_faster(id, best)
    }
    if decidable := {id: prompts for id, prompts in promising.items() if prompts}:
        id = min(decidable, key=lambda one: (decidable[one], answer.runs[one].decoding.acceptance.baseline))
        more = count(max(1, decidable[id] - undecided[id].n), "more prompt")
        sentence = f"No lossy setting is {answer.reach} yet: about {more} would decide on {names[id]}."
        return Recommendation(_joined(sentence, fallback, still), best, id, decidable[id])
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
        return f"{number(times.value, max(1, decimals(*times)))} × {self.short(other.id)}" if times else ""
