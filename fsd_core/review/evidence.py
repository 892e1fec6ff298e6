"""Requirements of a use checked against runs: met, not met, or undecided, each with its figures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fsd_core.analysis.cells import accuracy_difference, against, ratio_mixed, shared, speedup, unseen_runaways
from fsd_core.analysis.comparability import read_differently, rendered_differently, same_distribution
from fsd_core.calibration.summary import trials
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.model_names import MODELS
from fsd_core.errors import FsdError, UnfitEvidence
from fsd_core.evaluation.aggregate import Runaways, cost_per_solved_task, price_of, summarise
from fsd_core.evaluation.versus import answered
from fsd_core.metrics import METRICS, MOST_TAKEN, taken
from fsd_core.models.model_pairs import get_pair, named_models
from fsd_core.models.sources import HubModel, PairSpec
from fsd_core.statistics.intervals import Estimate, with_runaways
from fsd_core.statistics.paired import identical_verdict, verdict
from fsd_core.storage.records import READING_VERSIONS, Trial, same_model, same_weights
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import count, decimals, number_text

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.records import PromptCounts, Prompts, RunView
    from fsd_core.storage.repository import Repository


def worst_length(
    ratio: Estimate | None, rare: Runaways | None, run: RunView, baseline: RunView, prompts: Prompts
) -> float | None:
    """Return (1 − u)·high + u·L/b: ``u`` is the share of runaways, ``L`` the limit, ``b`` the baseline's mean length.

    ``None`` without an interval or without runaways to reckon with.
    """
    if ratio is None or ratio.high is None or rare is None:
        return None
    run_counts, baseline_counts = shared(run, baseline, prompts)
    keys = answered(run_counts, baseline_counts)
    length = sum(baseline_counts[key].tokens for key in keys) / len(keys)
    return with_runaways(ratio.high, rare.most, run.decoding.max_new_tokens / length)


def worst_speed(
    ratio: Estimate | None, rare: Runaways | None, run: RunView, baseline: RunView, prompts: Prompts
) -> float | None:
    """Return 1 / ((1 − u)/low + u·L·s/b): ``s`` is the run's time per token, ``b`` the baseline's time per answer.

    ``None`` as for :func:`worst_length`, and if nothing was timed.
    """
    if ratio is None or ratio.low is None or rare is None:
        return None
    run_counts, baseline_counts = shared(run, baseline, prompts)
    keys = answered(run_counts, baseline_counts, timed=True)
    tokens = sum(run_counts[key].tokens for key in keys)
    per_answer = sum(baseline_counts[key].seconds for key in keys) / len(keys) if keys else 0
    if not tokens or not per_answer:
        return None
    runaway = run.decoding.max_new_tokens * sum(run_counts[key].seconds for key in keys) / tokens
    return 1 / with_runaways(1 / ratio.low, rare.most, runaway / per_answer)


class Pool(NamedTuple):
    """One measurement: a run, or all rounds of one setting in a calibration."""

    run: RunView
    """the only run, or the first of several with the figures of all their prompts"""
    runs: tuple[RunView, ...]
    prompts: Mapping[int, PromptCounts]
    """by position in the task; each prompt once"""
    writers: Mapping[int, str]
    """id of the run that did the prompt, by position"""

    @property
    def calibration(self) -> str | None:
        """Id of the calibration of these rounds; ``None`` for an ordinary run."""
        return self.run.experiment_id if is_calibration_round(self.run) else None


def is_calibration_round(run: RunView) -> bool:
    """Whether the run is a calibration round. Only those take their prompts in a random order."""
    return run.config.shuffled and run.experiment_id is not None


def on_fresh_prompts(repository: Repository, runs: Iterable[RunView]) -> list[RunView]:
    """Return the runs without rounds on prompts that chose finalists, where the chosen settings look better than they
    are.

    Raises ``UnknownName`` if a calibration was deleted meanwhile.
    """
    runs = list(runs)
    calibrations = {run.experiment_id for run in runs if run.experiment_id is not None and is_calibration_round(run)}
    configs = {id: repository.experiment(id).config for id in calibrations}
    first_fresh = {id: config.choosing for id, config in configs.items() if isinstance(config, CalibrationConfig)}
    return [run for run in runs if run.config.first >= first_fresh.get(run.experiment_id or "", 0)]


def fresh_rounds(repository: Repository, calibration: str, setting_id: str) -> list[RunView]:
    """Return the measured rounds of a setting in a calibration that can be evidence; empty for any other experiment."""
    runs = repository.runs(experiment_id=calibration, setting_id=setting_id, limit=None)
    return on_fresh_prompts(repository, (run for run in runs if run.metrics and is_calibration_round(run)))


def whole_rounds(repository: Repository, runs: Sequence[RunView]) -> list[RunView]:
    """Return the runs with every round of a calibration that counts with one of them: of its setting, and on fresh
    prompts, or on those that chose. Beside rounds on fresh prompts those that chose are left out."""
    ids = dict.fromkeys(run.experiment_id for run in runs if is_calibration_round(run))
    rounds = [run for id in ids if id is not None for run in repository.experiment(id).runs]
    fresh = {run.id for run in on_fresh_prompts(repository, rounds)}
    tried = {run.experiment_id for run in runs if run.id in fresh}
    result: list[RunView] = []
    for run in runs:
        key = run.experiment_id, run.setting_id, run.id in fresh
        if not is_calibration_round(run):
            result.append(run)
        elif run.id in fresh or run.experiment_id not in tried:
            result += [other for other in rounds if (other.experiment_id, other.setting_id, other.id in fresh) == key]
    return result


def grouped(runs: Sequence[RunView]) -> list[tuple[RunView, ...]]:
    """Return the runs to pool, in the order of each group's first run, and rounds in the order of their prompts.

    Runs of another calibration are a separate measurement, even on the same prompts.
    """
    groups: dict[tuple[object, ...], dict[str, RunView]] = {}
    for run in runs:
        key = (run.experiment_id, run.setting_id, run.task, run.seed)
        groups.setdefault(key if is_calibration_round(run) else (run.id,), {})[run.id] = run
    return [tuple(sorted(group.values(), key=lambda run: run.position)) for group in groups.values()]


def pooled(repository: Repository | None, runs: Sequence[RunView], prompts: Prompts) -> list[Pool]:
    """Return the measurements of the runs. A prompt that was done twice counts as in the later run.

    Where a calibration timed its finalists again, only the times of that time count. Without a ``repository`` no run is
    of a calibration. Raises ``UnknownName`` as above.
    """
    ids = dict.fromkeys(run.experiment_id for run in runs if is_calibration_round(run))
    trial_of: dict[str | None, Mapping[DecodingConfig, Trial]] = {}
    for id in filter(None, ids):
        assert repository is not None
        trial_of[id] = trials(repository, repository.experiment(id))
    pools = [_pool(group, prompts) for group in grouped(runs)]
    return [pool._replace(run=_tried(pool, trial_of[pool.calibration])) if pool.calibration else pool for pool in pools]


def _tried(pool: Pool, trial_of: Mapping[DecodingConfig, Trial]) -> RunView:
    trial = trial_of.get(pool.run.decoding, Trial())
    return replace(pool.run, trial=trial, rounds=tuple(run.id for run in pool.runs))


def _pool(runs: tuple[RunView, ...], prompts: Prompts) -> Pool:
    counted: dict[int, PromptCounts] = {}
    writers: dict[int, str] = {}
    for run in runs:
        done = prompts.get(run.id, {})
        if run.config.again and done:  # from here on only these times count
            counted = {position: replace(counts, timed=False) for position, counts in counted.items()}
        counted |= done
        writers |= dict.fromkeys(done, run.id)
    first, *later = runs
    if not later:
        return Pool(first, runs, counted, writers)
    combined = replace(
        first,
        status=next((run.status for run in runs if run.status != "finished"), "finished"),
        metrics=summarise(list(counted.values()), None) if counted else None,
        provenance=(first.provenance or {})
        | {READING_VERSIONS: str({i for run in runs for i in run.reading_versions})},
        prompts_done=len(counted),
        prompts_total=sum(run.prompts_total for run in runs if not run.config.again),
        decoding_seconds=sum(run.decoding_seconds for run in runs),
        measurement_sessions=tuple(
            measurement_session for run in runs for measurement_session in run.measurement_sessions
        ),
    )
    return Pool(combined, runs, counted, writers)


_HUB_ORIGIN = re.compile(r"https://huggingface\.co/(?P<repo>[\w.-]+/[\w.-]+)/tree/(?P<revision>\w+)")


def weights(runs: Iterable[RunView]) -> dict[str, str]:
    """Return the weights that the runs were measured with, by role (target, draft, head, adapter), and the files
    beside them as ``configuration``. Each is a
    fingerprint and an origin, which includes the commit at the hub. Empty if no run has it recorded.

    Raises ``InvalidSetting`` if two runs differ.
    """
    seen: dict[str, str] = {}
    for run in runs:
        for role, origin in run.weights.items():
            if not same_model(seen.setdefault(role, origin), origin):
                raise UnfitEvidence(
                    f"The runs were measured with different models: the {role} was {seen[role]} and {origin}. Choose "
                    "runs of the same."
                )
    return seen


def certain_weights(runs: Iterable[RunView]) -> dict[str, str]:
    """Like :func:`weights`, for an approval: also raises if a run has no recorded weights.

    A running engine tells none: its setting says which model it was asked for, and where.
    """
    runs = list(runs)
    if unknown := next((run for run in runs if not run.weights and not run.decoding.acceptance.by_endpoint), None):
        raise UnfitEvidence(
            f"The weights with which the run {unknown.label} ({unknown.id[:8]}) was measured were not recorded, so "
            "nobody could tell which models are approved: measure it again with a pair that is loaded by its name."
        )
    return weights(runs)


def by_weights(runs: Iterable[RunView]) -> list[tuple[dict[str, str], list[RunView]]]:
    """Group runs by their measured weights, in order of first appearance. Returns at least one group.

    Runs that have measured nothing yet join the first group.
    """
    runs = list(runs)
    distinct: list[dict[str, str]] = []
    for run in runs:
        if (run.weights or run.metrics) and not any(same_weights(recorded, run.weights) for recorded in distinct):
            distinct.append(run.weights)
    groups: list[tuple[dict[str, str], list[RunView]]] = [(recorded, []) for recorded in distinct or [{}]]
    for run in runs:
        matching = next((group for group in groups if same_weights(group[0], run.weights)), groups[0])
        matching[1].append(run)
    return groups


def hub_model_of(fingerprint_origin: str) -> HubModel | None:
    """Return the hub name and commit in a recorded origin, or ``None`` if the model came from elsewhere."""
    match = _HUB_ORIGIN.fullmatch(fingerprint_origin.partition(" ")[2])
    return HubModel(match["repo"], match["revision"]) if match else None


def pinned(pair: str, weights: Mapping[str, str]) -> PairSpec | None:
    """Return a pair with its hub models at the measured commits, or ``None`` for an unknown pair. Folders that it names
    one by one may be on another machine."""
    try:
        spec = named_models(pair, here=False) if pair.startswith(MODELS) else get_pair(pair)
    except FsdError:
        return None
    for role in ("target", "draft", "head"):
        measured = hub_model_of(weights.get(role, ""))
        if measured is not None and isinstance(getattr(spec, role), HubModel):
            changed: dict[str, Any] = {role: measured}
            spec = replace(spec, **changed)
    return spec


def pinned_name(pair: str, weights: Mapping[str, str]) -> str:
    """Return the name by which ``load_pair`` loads the measured weights: the pair's own, or its commits at the hub."""
    spec = pinned(pair, weights)
    models = (
        [] if spec is None or spec.adapter else [("target", spec.target), ("draft", spec.draft), ("head", spec.head)]
    )
    parts = [
        f"{model.repo}@{model.revision}"
        for role, model in models
        if isinstance(model, HubModel) and hub_model_of(weights.get(role, ""))
    ]
    complete = len(parts) == sum(model is not None for _, model in models)
    return f"hub:{'+'.join(parts)}" if parts and complete else pair


_EXACT = "Lossless: it writes what the target says, however many prompts there are"
Outcome = Literal["met", "not met", "undecided"]
REQUIREMENT_TITLES = {name: field.title or name for name, field in Requirements.model_fields.items()}


class RequirementCheck(NamedTuple):
    """One requirement against one pair of runs."""

    requirement: str
    """its field in ``Requirements``"""
    outcome: Outcome
    text: str
    """result as text, with the interval"""


class Evidence(NamedTuple):
    """A measurement of the proposed setting and one of the baseline on the same prompts."""

    setting_pool: Pool
    baseline_pool: Pool
    findings: tuple[RequirementCheck, ...]

    @property
    def run(self) -> RunView:
        return self.setting_pool.run

    @property
    def baseline(self) -> RunView:
        return self.baseline_pool.run

    @property
    def prompts(self) -> Prompts:
        """Prompts of both, by the ids of :attr:`run` and :attr:`baseline`."""
        return _prompts(self.setting_pool, self.baseline_pool)

    @property
    def shared(self) -> int:
        """Number of prompts that both completed."""
        return len(self.setting_pool.prompts.keys() & self.baseline_pool.prompts.keys())

    @property
    def runaways(self) -> Runaways | None:
        """Runaways that were seen, and how many more there may be; ``None`` for a lossless setting."""
        return unseen_runaways(self.run, self.baseline, self.prompts)


def evidence(
    requirements: Requirements, runs: Sequence[RunView], baselines: Sequence[RunView], prompts: Prompts,
    repository: Repository | None = None,
) -> list[Evidence]:  # fmt: skip
    """Pair each run with the baseline of its task and seed and check the requirements. The rounds of a calibration
    count as one run, paired with the baseline's rounds of the same calibration.

    A run without such a baseline is paired with the first one. They share no prompt, so everything is undecided.
    ``repository`` says which texts are identical, and when a calibration ended.
    """
    results = []
    for pool, reference in matched_pools(repository, runs, baselines, prompts):
        both = pool.run, reference.run, _prompts(pool, reference)
        same = repository is not None and _same_texts(repository, pool, reference)
        results.append(Evidence(pool, reference, tuple(_findings(requirements, *both, same_texts=same))))
    return results


def matched_pools(
    repository: Repository | None, runs: Sequence[RunView], baselines: Sequence[RunView], prompts: Prompts
) -> list[tuple[Pool, Pool]]:  # fmt: skip
    """Return each measurement of the setting with that of the baseline which is compared with it."""
    references = pooled(repository, baselines, prompts)
    return [
        (pool, max(references, key=partial(_similarity, pool)))  # the first of equally similar ones
        for pool in (pooled(repository, runs, prompts) if references else ())
    ]


def _same_texts(repository: Repository, pool: Pool, reference: Pool) -> bool:
    """Return whether every prompt that both did was answered with the same text."""
    ids = ([run.id for run in side.runs] for side in (pool, reference))
    differing = repository.differing_texts(*ids) if pool.run.task == reference.run.task else {}
    return bool(differing) and not any(differing.values())


def _similarity(pool: Pool, other: Pool) -> tuple[bool, bool, bool]:
    run, baseline = pool.run, other.run
    task, seed = run.task == baseline.task, run.seed == baseline.seed
    return task, task and seed, task and seed and pool.calibration == other.calibration


def _prompts(pool: Pool, reference: Pool) -> Prompts:
    return {pool.run.id: pool.prompts, reference.run.id: reference.prompts}


def overall(results: Sequence[Evidence]) -> dict[str, Outcome]:
    """Return the outcome per requirement: met if all runs meet it, not met if one does not, else undecided."""
    outcomes: dict[str, set[Outcome]] = {}
    for result in results:
        for check in result.findings:
            outcomes.setdefault(check.requirement, set()).add(check.outcome)
    return {
        requirement: "not met" if "not met" in seen else "undecided" if "undecided" in seen else "met"
        for requirement, seen in outcomes.items()
    }


def evidence_hash(requirements: Requirements, runs: Sequence[RunView], baselines: Sequence[RunView]) -> str:
    """Return 16 hex digits that identify what an approval rests on: the requirements and the measurement of each run.

    The hash changes when runs continue, are rescored or deleted.
    """
    measurements = [
        [role, run.id, run.status, run.prompts_done, round(run.decoding_seconds, 6)]
        + [(run.metrics or {}).get(key) for key in ("correct", "wrong", "truncated", "failed", "tokens")]
        for role, group in (("run", runs), ("baseline", baselines))
        for run in group
    ]
    text = json.dumps([requirements.as_json(), measurements], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _findings(
    requirements: Requirements, run: RunView, baseline: RunView, prompts: Prompts, *, same_texts: bool = False
) -> list[RequirementCheck]:
    checks, both = [], (run, baseline, prompts)
    rare = unseen_runaways(run, baseline, prompts)
    if requirements.margin is not None:
        checks.append(_accuracy(requirements.margin, run, baseline, prompts, same_texts=same_texts))
    if requirements.least_speedup is not None:
        ratio = speedup(run, baseline, prompts)
        text, outcome = _ratio(
            ratio,
            "as fast",
            requirements.least_speedup,
            1,
            rare,
            worst_speed(ratio, rare, *both),
            " by time per answer",
        )
        if mixed := ratio_mixed(run, baseline):
            outcome, text = "undecided", f"{text}, but measured under other conditions ({', '.join(mixed)})"
        elif (share := taken_of(prompts)) is not None and share > MOST_TAKEN:
            outcome, text = "undecided", f"{text}, but other programs took {100 * share:.0f} % of the time"
        checks.append(RequirementCheck("least_speedup", outcome, text))
    if requirements.longest_answers is not None:
        ratio = against(run, baseline, METRICS["mean_tokens"], prompts)
        text, outcome = _ratio(
            ratio, "as long", requirements.longest_answers, -1, rare, worst_length(ratio, rare, *both)
        )
        checks.append(RequirementCheck("longest_answers", outcome, text))
    if requirements.highest_cost is not None:
        checks.append(_cost(requirements.highest_cost, run, prompts))
    same_template = run.decoding.template == baseline.decoding.template
    if same_template and (positions := rendered_differently([run, baseline], prompts)):
        told = f", but {len(positions):,} of the prompts were not rendered to the same tokens"
        checks = [RequirementCheck(check.requirement, "undecided", check.text + told) for check in checks]
    return checks


def _cost(bound: float, run: RunView, prompts: Prompts) -> RequirementCheck:
    """Check the cost per solved task of the setting alone, at the price of the machine that measured it."""
    price, counts = price_of(run), [*prompts[run.id].values()]
    if price is None:
        text = "no price per hour is known: set FSD_PRICE_PER_HOUR, or measure it with --price-per-hour"
        return RequirementCheck("highest_cost", "undecided", text)
    cost = cost_per_solved_task(counts, price)
    at_price = f"at {price:g} per hour"
    if cost is None:
        return RequirementCheck("highest_cost", "undecided", f"no prompt is known to be solved, {at_price}")
    digits = decimals(*cost)
    text, outcome = f"{number_text(cost.value, digits)} per solved task", "undecided"
    if cost.low is None or cost.high is None:
        return RequirementCheck("highest_cost", outcome, f"{text} {at_price}, by too few prompts for an interval")
    text += f" [{number_text(cost.low, digits)}, {number_text(cost.high, digits)}] {at_price}"
    if run.speed_mixed:
        text += f", but measured under conditions that differ in {', '.join(run.speed_mixed)}"
    elif (share := taken_of({run.id: prompts[run.id]})) is not None and share > MOST_TAKEN:
        text += f", but other programs took {100 * share:.0f} % of the time"
    else:
        outcome = "met" if cost.high <= bound else "not met" if cost.low > bound else "undecided"
    return RequirementCheck("highest_cost", outcome, text)


def taken_of(prompts: Prompts) -> float | None:
    """Return the share of the time of the prompts of all runs that other programs took; ``None`` if unknown."""
    counts = (count for side in prompts.values() for count in side.values() if count.timed)
    return taken((count.seconds, count.cpu_seconds) for count in counts)


def _accuracy(
    margin: float, run: RunView, baseline: RunView, prompts: Prompts, *, same_texts: bool
) -> RequirementCheck:
    paired = accuracy_difference(run, baseline, prompts)
    if paired is None:
        return RequirementCheck("margin", "undecided", "no scored prompt in common with the baseline")
    if same_texts and same_distribution(run, baseline):
        return RequirementCheck("margin", "met", f"{identical_verdict(paired).sentence(margin)}. {_EXACT}")
    result = verdict(paired, margin)
    outcome: Outcome = {"non-inferior": "met", "worse": "not met"}.get(result.kind, "undecided")  # pyright: ignore[reportAssignmentType]
    if readings := read_differently([run, baseline]):
        outcome = "undecided"
    if outcome == "undecided" and same_distribution(run, baseline):
        return RequirementCheck("margin", "met", f"{paired.text}: {_EXACT}")
    text = f"{paired.text}: {result.sentence(margin)}"
    return RequirementCheck("margin", outcome, f"{text}. {readings}" if readings else text)


def _ratio(
    ratio: Estimate | None, comparison: str, bound: float, better: int, rare: Runaways | None, worst: float | None,
    by: str = "",
) -> tuple[str, Outcome]:  # fmt: skip
    """Return text and outcome for a ratio that should be at least (``better`` 1) or at most (−1) ``bound``.

    Its interval cannot know of runaways that no prompt showed. So it is met only on so many prompts that runaways of
    1 % would have been seen, or if it would hold with all that may be unseen (``worst``). Runaways only make a setting
    slower and its answers longer, so what is not met needs no more prompts. ``rare``: the setting's runaways, ``None``
    where it has those of the baseline. ``by`` names the quantity of the ratio.
    """
    if ratio is None:
        return "no prompt in common with the baseline", "undecided"
    digits = decimals(*ratio)
    text = f"{number_text(ratio.value, digits)} times {comparison}"
    if ratio.low is None or ratio.high is None:
        return f"{text}{by}, decided by too few prompts for an interval", "undecided"
    text += f" [{number_text(ratio.low, digits)}, {number_text(ratio.high, digits)}]{by}"
    met, failed = (ratio.low >= bound, ratio.high < bound) if better > 0 else (ratio.high <= bound, ratio.low > bound)
    if rare is not None and worst is not None:
        text += f"; {rare.sentence}, with them {number_text(worst, digits)} times"
        if met and rare.prompts_lacking and better * worst < better * bound:
            return (
                f"{text}. {count(rare.prompts_lacking, f'more {rare.unit}')} would show 1 % of overlong answers",
                "undecided",
            )
    return text, "met" if met else "not met" if failed else "undecided"
