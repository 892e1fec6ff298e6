"""Which runs can be compared, with what, and on which prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fsd_core.evaluation.versus import cluster_numbers
from fsd_core.metrics import listed
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.tradeoff import MARGINS_LISTED, Measured
from fsd_core.storage.records import same_weights
from fsd_core.tasks.readings import READING_VERSION
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.storage.records import PromptCounts, Prompts, RunView


def same_distribution(run: RunView, baseline: RunView) -> bool:
    """Return whether both decode the same target losslessly with the same sampling."""
    decoding, reference = run.decoding, baseline.decoding
    return (
        decoding.acceptance.lossless and reference.acceptance.lossless
        and (run.pair, run.config.dtype, decoding.shared) == (baseline.pair, baseline.config.dtype, reference.shared)
        and same_weights(run.weights, baseline.weights)
    )  # fmt: skip


def rendered_differently(runs: Sequence[RunView], prompts: Prompts) -> list[int]:
    """Return the positions at which runs of one pair and task were fed different token ids.

    Another template, its arguments, its date or another tokenizer does that. Prompts whose hashes were not recorded are
    left out, and so are later turns of conversations: these follow what each run wrote before.
    """
    hashes: dict[tuple[str, str, int], set[str]] = {}
    for run in runs:
        for position, counts in prompts.get(run.id, {}).items():
            if counts.prompt_hash is not None and not counts.turn:
                hashes.setdefault((run.pair, run.task, position), set()).add(counts.prompt_hash)
    return sorted({position for (_, _, position), seen in hashes.items() if len(seen) > 1})


def count_context_ends(runs: Sequence[RunView], prompts: Prompts) -> dict[str, int]:
    """Return by run how many answers the context ended, of the prompts that all runs have done.

    Empty if it ended equally many of each: then no run had more room than another.
    """
    done = [prompts[run.id] for run in runs if prompts.get(run.id)]
    shared = set.intersection(*(set(counts) for counts in done)) if done else set()
    ended = {
        run.id: sum(prompts[run.id][position].stop_reason == "context" for position in shared)
        for run in runs
        if prompts.get(run.id)
    }
    return ended if len(set(ended.values())) > 1 else {}


def read_differently(runs: Sequence[RunView]) -> str:
    """Return which versions of the reading scored the runs' answers, and how to make it one; empty if it is one."""
    versions = [str(version) for version in sorted({version for run in runs for version in run.reading_versions})]
    told = f"Answers were scored by versions {listed(versions)} of the reading: not one accuracy. {_again(runs)}"
    return told if len(versions) > 1 else ""


def note_on_verdict(runs: Sequence[RunView], *, rescored: bool) -> str:
    """Return the note on a verdict that stays where the answers it rests on were ``rescored`` since, or scored before
    the current version of the reading; empty for any other."""
    if rescored:
        return f"Its answers were scored again since by version {READING_VERSION} of the reading: the verdict stays."
    if not {version for run in runs for version in run.reading_versions} - {READING_VERSION}:
        return ""
    return f"Scored before version {READING_VERSION} of the reading: the verdict stays. {_again(runs)}"


def _again(runs: Iterable[RunView]) -> str:
    outdated = [run for run in runs if {*run.reading_versions} - {READING_VERSION}]
    commands = [f"`rescore {id[:8]}`" for id in dict.fromkeys(run.experiment_id or run.id for run in outdated)]
    return f"Without generating, {listed(commands[:4])}{' and others' * (len(commands) > 4)} scores them again."


class Quality(NamedTuple):
    """How a quality is displayed. In a difference between a setting and the target, more is better."""

    key: str
    equal: str
    """noun after ``at equal``"""
    lost: str
    """noun before ``at equal target passes``"""
    title: str
    in_words: str
    """the unit in words"""
    unit: str
    """the unit after a number, with the space between"""
    sign: int
    """-1 if a larger displayed value is worse"""
    scale: float
    """units per difference of 1"""
    digits: int
    """decimals in a figure"""
    margins: tuple[float, ...]
    """default margins of loss, in hundredths"""
    note: str = ""
    """an explanation after other sentences"""
    is_ranked: bool = True
    """whether more is always better"""

    @property
    def is_share(self) -> bool:
        """Whether it is accuracy."""
        return self.scale == 100

    def recorded(self, difference: Estimate) -> Estimate:
        """Return accuracy less the target's, -1 to 1, or excess NLL, with the lower end first."""
        value, low, high = difference
        if self.sign > 0 or low is None or high is None:
            return Estimate(self.sign * value, low, high)
        return Estimate(-value, -high, -low)

    def displayed(self, difference: Estimate) -> Estimate:
        """Return :meth:`recorded` in the displayed unit."""
        value, low, high = self.recorded(difference)
        if low is None or high is None:
            return Estimate(self.scale * value)
        return Estimate(self.scale * value, self.scale * low, self.scale * high)

    def within(self, hundredths: float) -> str:
        """Return a text such as ``within 2 points``."""
        margin = hundredths * self.scale / 100
        return f"within {margin:g} {'point' if self.is_share and margin == 1 else self.in_words}"


ACCURACY_QUALITY = Quality(
    key="accuracy", equal="accuracy", lost="Accuracy lost", title="Accuracy to the target's", in_words="points",
    unit=" pts", sign=1, scale=100.0, digits=1, margins=MARGINS_LISTED,
)  # fmt: skip
EXCESS_NLL = Quality(
    key="excess_nll", equal="excess NLL", lost="Excess NLL", title="Excess NLL", in_words="nats a token",
    unit=" nats", sign=-1, scale=1.0, digits=3, margins=(2.0, 5.0, 10.0),
    note=" Nothing is scored here. Excess NLL is how much less likely, per token, the target finds the texts than its "
    "own.",
)  # fmt: skip
NOT_RANKED = "Not ranked: sampled texts below 0 are likelier than the target's own samples, so less varied, not better."
EXCESS_NLL_SAMPLED = EXCESS_NLL._replace(note=f"{EXCESS_NLL.note} {NOT_RANKED}", is_ranked=False)


class Cost(NamedTuple):
    """A cost of an answer."""

    key: str
    title: str
    fewer: str
    """text after a factor, such as ``fewer target passes``"""
    read: Callable[[PromptCounts], float]
    of_target: bool = False
    """whether a draft alone lacks this cost"""
    timed: bool = False


COSTS: Mapping[str, Cost] = {
    cost.key: cost
    for cost in (
        Cost("target_passes", "Target passes", "fewer target passes", lambda counts: counts.rounds, of_target=True),
        Cost("seconds", "Time per answer", "less time per answer", lambda counts: counts.seconds, timed=True),
    )
}


def on_one_ground(runs: Sequence[RunView], baseline: RunView, cost: Cost) -> tuple[list[RunView], list[str]]:
    """Return the finished runs that are comparable to the baseline, and sentences about the rest. The target alone may
    be sampled with another truncation."""
    finished = [run for run in runs if run.metrics and run.status == "finished"]
    drafting = (run.decoding.sampling for run in finished if run.decoding.drafter is not None)
    expected = baseline.decoding.sampling
    if baseline.decoding.drafter is None:  # the baseline may be the target with the truncation of one rule
        expected = next((sampling for sampling in drafting if sampling.temperature == expected.temperature), expected)

    def is_alike(run: RunView) -> bool:
        sampling, is_target = run.decoding.sampling, run.decoding.acceptance.kind == "autoregressive"
        keys = [
            (side.pair, side.task, side.decoding.max_new_tokens, side.config.load if cost.timed else 0)
            for side in (run, baseline)
        ]
        return keys[0] == keys[1] and (
            sampling == expected or (is_target and sampling.temperature == expected.temperature and not expected.greedy)
        )

    same = [run for run in finished if is_alike(run)]
    notes = []
    if unfinished := len(runs) - len(finished):
        notes.append(f"{count(unfinished, 'run')} without all figures left out.")
    if excluded := len(finished) - len(same):
        criteria = "pair, task, sampling, length limit" + (" and batch size" if cost.timed else "")
        notes.append(f"{count(excluded, 'run')} left out: only runs with the baseline's {criteria} are matched.")
    return same, notes


def untruncated(runs: Sequence[RunView]) -> list[str]:
    """Return sentences about rules whose truncation no sampling option has, so that no target can match them."""
    decodings = (run.decoding for run in runs)
    titles = dict.fromkeys(
        decoding.acceptance.title
        for decoding in decodings
        if not decoding.sampling.greedy and decoding.acceptance.truncation is None
    )
    return [
        f"{title} keeps tokens of a set that no option of sampling has: no target sampled alike stands beside it."
        for title in titles
    ]


def target_of(runs: Sequence[RunView]) -> RunView | None:
    """Return the target alone with the sampling of the drafting runs, else exact SD, which has its distribution."""
    sampling = next((run.decoding.sampling for run in runs if run.decoding.drafter is not None), None)
    targets = [run for run in runs if run.decoding.acceptance.kind == "autoregressive"]
    same_sampling = [run for run in targets if sampling is None or run.decoding.sampling == sampling]
    return next(iter([*same_sampling, *exact(runs)]), None)


def exact(runs: Iterable[RunView]) -> list[RunView]:
    """Return the runs of exact SD."""
    return [run for run in runs if run.decoding.acceptance.kind == "speculative"]


def reference_of(runs: Sequence[RunView], baseline: RunView) -> RunView | None:
    """Return the run whose cost is 1: exact SD (the baseline if it is one), else the target alone."""
    exact_runs = exact(runs)
    return next((run for run in exact_runs if run.id == baseline.id), next(iter(exact_runs), target_of(runs)))


def by_setting(runs: Sequence[RunView]) -> dict[str, list[RunView]]:
    """Group the runs by setting, whatever their seeds."""
    groups: dict[str, list[RunView]] = {}
    for run in runs:
        groups.setdefault(run.setting_id, []).append(run)
    return groups


def comparable(runs: Sequence[RunView], prompts: Prompts) -> tuple[Quality, dict[str, list[RunView]], list[int]]:
    """Return the quality to compare, the runs that have it by setting, and the prompt positions that every setting has
    it for.

    The quality is accuracy if some prompt is scored in every setting, else excess NLL. A draft alone has no excess NLL,
    since it never runs the target.
    """
    settings = by_setting(runs)
    if scored := _shared(settings, prompts, lambda counts: counts.outcome != "unscored"):
        return ACCURACY_QUALITY, settings, scored
    settings = by_setting([run for run in runs if run.decoding.acceptance.kind != "draft-only"])
    written = _shared(settings, prompts, lambda counts: counts.outcome == "unscored" and counts.tokens > 0)
    greedy = all(run.decoding.sampling.greedy for run in runs)
    return EXCESS_NLL if greedy else EXCESS_NLL_SAMPLED, settings, written


def _shared(
    settings: Mapping[str, Sequence[RunView]], prompts: Prompts, has: Callable[[PromptCounts], bool]
) -> list[int]:
    positions = [
        {position for run in runs for position, counts in prompts.get(run.id, {}).items() if has(counts)}
        for runs in settings.values()
    ]
    return sorted(set.intersection(*positions)) if positions else []


def measured_of(
    settings: Mapping[str, Sequence[RunView]], target: str, reference: str, places: Sequence[int], prompts: Prompts,
    cost: Cost, quality: Quality,
) -> Measured:  # fmt: skip
    """Return the gain and cost of each setting, one column each, on the prompts at ``places``. ``target`` and
    ``reference`` are keys of ``settings``."""

    def per_prompt(runs: Sequence[RunView], read: Callable[[PromptCounts], float]) -> np.ndarray:
        """Return a value per prompt, averaged over seeds; NaN if no run has it. → [n]"""
        rows = [[read(c) if (c := prompts[run.id].get(i)) else np.nan for i in places] for run in runs]
        table = np.array(rows, float)
        is_present = ~np.isnan(table)
        with np.errstate(invalid="ignore"):
            return np.where(is_present, table, 0).sum(0) / is_present.sum(0)

    def solved(counts: PromptCounts) -> float:
        return float(counts.outcome == "correct")

    def spent(runs: Sequence[RunView]) -> np.ndarray:
        if cost.of_target and runs[0].decoding.acceptance.kind == "draft-only":
            return np.full(len(places), np.nan)
        return per_prompt(runs, lambda counts: np.nan if counts.outcome == "failed" else cost.read(counts))

    any_run = {i: counts for runs in settings.values() for run in runs for i, counts in prompts[run.id].items()}
    clusters = cluster_numbers([any_run[i] for i in places])
    spending = np.column_stack([spent(runs) for runs in settings.values()])
    if quality.is_share:
        base = per_prompt(settings[target], solved)
        gained = np.column_stack([per_prompt(runs, solved) - base for runs in settings.values()])
        return Measured(gained, spending, spent(settings[reference]), clusters=clusters)
    likelihood, tokens = (
        np.column_stack([per_prompt(runs, read) for runs in settings.values()])
        for read in (lambda counts: -counts.negative_log_likelihood, lambda counts: counts.tokens)
    )
    return Measured(likelihood, spending, spent(settings[reference]), tokens, list(settings).index(target), clusters)
