"""A calibration in words, read from its recorded runs.

Timing the finalists of a calibration again: the same prompts, for their times alone.

What was accepted, solved and said of accuracy stays: a text depends on the seed and its prompt, not on when it is
written. The runs take turns prompt by prompt, like all runs of an experiment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd_core.calibration.findings import Measurements, SettingResult
from fsd_core.calibration.planning import CLOSE, CalibrationStep, Outcome, next_step
from fsd_core.config import DecodingConfig, RunConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING, SIGNIFICANCE_LEVEL, CalibrationConfig
from fsd_core.errors import FsdError, NotApplicable, NotEnough, WrongState
from fsd_core.evaluation.versus import equal_text
from fsd_core.metrics import taken_sentence
from fsd_core.statistics.paired import about
from fsd_core.storage.records import Trial
from fsd_core.tasks.custom.custom_task import find_task
from fsd_core.texts import count, number_text

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, PromptCounts, RunView
    from fsd_core.storage.repository import Repository


_CONFIDENCE = f"{100 * (1 - SIGNIFICANCE_LEVEL):g} % confidence"


def goal_text(config: CalibrationConfig) -> str:
    """Return the promise, such as ``within 2 points of the target's accuracy``."""
    if config.goal == "accuracy":
        return within_text(config.margin)
    if config.goal == "acceptance":
        return f"at least {100 * config.acceptance:g} % of drafted tokens accepted"
    return "the fastest, whatever it costs"


def within_text(margin: float) -> str:
    """Return the promise to lose at most so many points."""
    return f"within {count(margin, 'point')} of the target's accuracy"


def use_text(label: str, over_exact: float | None, promise: str) -> str:
    """Return the sentence that names a setting, how fast it is and what it promises."""
    faster = "" if over_exact is None else f"{over_exact:.2g} × as fast as exact SD, "
    return f"Use {label}: {faster}{promise}."


def verdict(config: CalibrationConfig, outcome: Outcome) -> str:
    """Return how the calibration ended, and what to use."""
    target = f" {_target(config, outcome)}." if outcome.target and outcome.reason != "unsolved" else ""
    return f"{_verdict(config, outcome)}{target}{_times(outcome)}"


def _target(config: CalibrationConfig, outcome: Outcome) -> str:
    assert outcome.target is not None
    return f"The {'target alone' if config.endpoint is None else 'strict engine'} solves {outcome.target.text}"


def headline(config: CalibrationConfig, outcome: Outcome) -> str:
    """Return the one sentence that somebody takes along."""
    selected = outcome.chosen
    if outcome.reason == "unsolved":
        return f"{_target(config, outcome)}: too few to hold a setting against."
    if selected.decoding.acceptance.is_exact and config.goal != "acceptance":
        return f"{_use_exact(selected.decoding.label)}: no lossy setting is sure to be better."
    if not selected.sure:
        return f"No setting is sure to keep the promise yet: {goal_text(config)}."
    return use_text(selected.decoding.label, selected.over_exact, goal_text(config))


def _verdict(config: CalibrationConfig, outcome: Outcome) -> str:
    selected, promise = outcome.chosen, goal_text(config)
    if outcome.reason == "unsolved":
        return f"{headline(config, outcome)} The prompts may lack the form that the pair knows: read some answers."
    if selected.decoding.acceptance.is_exact and config.goal != "acceptance":
        use = f"{_use_exact(selected.decoding.label)}{_speeds_of_exact(selected)}."
        return f"{_why_not(config, outcome)} {use} {_more(outcome)}".rstrip()
    if not selected.sure:
        return f"{_why_not(config, outcome)} {_more(outcome)}".rstrip()
    sure = "" if config.goal == "speed" else f" with {_CONFIDENCE}"
    better = _better(config)
    more = {"minutes": f" The time ended before a {better} one was decided. {_more(outcome)}".rstrip(),
            "prompts": f" The prompts ended before a {better} one was decided. {_more(outcome)}".rstrip()}  # fmt: skip
    return (
        f"Use {selected.decoding.label}: {promise}{sure}, by {count(selected.prompts, 'fresh prompt')}. "
        f"It is {_speeds(selected)}."
        f"{more.get(outcome.reason, '')}{_close(outcome)}{_promised_for(config, outcome)}"
    )


def _promised_for(config: CalibrationConfig, outcome: Outcome) -> str:
    """Return the scope of the promise, as a sentence behind a space; empty if nothing is promised."""
    if config.goal == "speed":
        return ""
    these = "groups of prompts" if outcome.grouped else "prompts"
    return f" The promise is for {these} like these, drawn independently."


def _times(outcome: Outcome) -> str:
    """Return the settings that their times do not tell apart, and the share of time that other programs took."""
    sentences = []
    if outcome.equal:
        names = [decoding.label for decoding in (outcome.chosen.decoding, *outcome.equal)]
        is_told = outcome.chosen.decoding.acceptance.by_endpoint  # and an engine tells no passes
        why = (
            "what is chosen was the fastest"
            if is_told
            else "of those that may be the fastest, what is chosen needs the fewest target passes"
        )
        sentences.append(f"{equal_text(names, outcome.equal_within)}; {why}.")
    if outcome.timed_again:
        sentences.append("Its times are those of a second time.")
    sentences.append(taken_sentence(outcome.taken))
    return "".join(f" {sentence}" for sentence in sentences if sentence)


def so_far(config: CalibrationConfig, step: CalibrationStep) -> str:
    """Return the setting that already keeps the promise while others are tried; empty if none does."""
    if step.sure is None:
        return ""
    return f"{step.sure.label} keeps the promise already; what may be {_better(config)} is tried on"


def _better(config: CalibrationConfig) -> str:
    """Return the goal's preference among settings that keep the promise."""
    return "more accurate" if config.goal == "acceptance" else "faster"


def _close(outcome: Outcome) -> str:
    labels = ", ".join(decoding.label for decoding in outcome.close)
    return f" Tried no further, since they are less than {100 * CLOSE:g} % faster: {labels}." if labels else ""


def finding_text(finding: SettingResult) -> str:
    """Return the result of one finalist: ``-0.4 points of accuracy against the target (at least -1.7 with 95 %
    confidence), 92 % accepted, on 320 fresh prompts; 1.41 × as fast as exact SD …``."""
    parts, reference = [], "the strict engine" if finding.decoding.acceptance.by_endpoint else "the target"
    if finding.difference is not None:
        parts.append(f"{100 * finding.difference:+.1f} points of accuracy against {reference}")
    if finding.at_least is not None and not finding.decoding.acceptance.is_exact and parts:
        parts[0] += f" (at least {100 * finding.at_least:+.1f} with {_CONFIDENCE})"
    if finding.acceptance is not None:
        parts.append(f"{100 * finding.acceptance:.0f} % of drafted tokens accepted")
    text = f"{', '.join(parts)}, on {count(finding.prompts, 'fresh prompt')}; {_speeds(finding)}"
    return text.replace("-", "−")


def phase(config: CalibrationConfig, at: CalibrationStep | Outcome) -> str:
    """Return the phase: ``proposing`` draft lengths by replay, ``choosing`` finalists, ``trying`` them on fresh
    prompts, or ``ended``."""
    if isinstance(at, Outcome):
        return "ended"
    if at.lengths_open:
        return "proposing"
    return "choosing" if at.start < config.choosing else "trying"


def status_json(config: CalibrationConfig, at: CalibrationStep | Outcome) -> dict[str, Any]:
    """Return the status as plain data: the current step, or in the end :func:`as_json`."""
    data: dict[str, Any] = {"standing": phase(config, at), "promise": goal_text(config)}
    if isinstance(at, Outcome):
        return data | as_json(config, at)
    settings = [_named(config, decoding) for decoding in at.decodings]
    current = {"first_prompt": at.start + 1, "last_prompt": at.end, "settings": settings}
    sure = None if at.sure is None else _named(config, at.sure)
    return data | {"verdict": None, "sure_so_far": sure, "goal": config.goal, "task": config.task, "turn": current}


def as_json(config: CalibrationConfig, outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as plain data; shares from 0 to 1."""
    return {
        "verdict": verdict(config, outcome), "reason": outcome.reason, "goal": config.goal, "task": config.task,
        "chosen": _plain(config, outcome.chosen),
        "finalists": [_plain(config, finding) for finding in outcome.finalists],
        "more": outcome.more and outcome.more._asdict(),
        "equal_in_time": [_named(config, decoding) for decoding in outcome.equal], "equal_within": outcome.equal_within,
        "taken_share": outcome.taken, "timed_again": outcome.timed_again,
        "target": outcome.target and outcome.target._asdict(),
    }  # fmt: skip


def _plain(config: CalibrationConfig, finding: SettingResult) -> dict[str, Any]:
    ends = finding.over_exact_interval
    return _named(config, finding.decoding) | {
        "prompts": finding.prompts, "sure": finding.sure, "difference": finding.difference,
        "at_least": finding.at_least, "acceptance": finding.acceptance, "over_exact": finding.over_exact,
        "over_exact_low": ends and ends.low, "over_exact_high": ends and ends.high, "over_target": finding.over_target,
    }  # fmt: skip


def _named(config: CalibrationConfig, decoding: DecodingConfig) -> dict[str, Any]:
    setting = config.setting_of(decoding)
    return {"setting_id": setting.id, "label": decoding.label, "setting": setting.as_json()}


def _why_not(config: CalibrationConfig, outcome: Outcome) -> str:
    promise = goal_text(config)
    if outcome.reason == "nothing-faster" and config.goal == "speed":
        return "No setting is faster than exact SD."
    if outcome.reason == "nothing-faster" and config.goal == "acceptance":
        return f"No setting is likely to keep the promise ({promise})."
    if outcome.reason == "nothing-faster":
        return f"Of the settings that are likely to keep the promise ({promise}), none is faster than exact SD."
    ended = {
        "minutes": f"before the {count(config.all_minutes, 'minute')} ended",
        "prompts": f"by the {config.limit - config.choosing} fresh prompts that there are",
        "hopeless": "by what the fresh prompts showed, nor with those that are left",
    }  # fmt: skip
    if config.goal == "speed":
        return f"No setting did enough fresh prompts {ended[outcome.reason]}."
    return f"No setting was found to keep the promise ({promise}) {ended[outcome.reason]}."


def _more(outcome: Outcome) -> str:
    """Return the measurement that would decide; empty if neither time nor prompts ended it."""
    if outcome.reason not in ("minutes", "prompts"):
        return ""
    if outcome.more is None and outcome.lines is None:
        return "Prompts like those so far decide nothing, however many there are."
    if outcome.more is None:
        assert outcome.lines is not None
        return (
            f"If prompts go on like those so far, a task with about {count(about(outcome.lines), 'more line')} decides."
        )
    prompts, minutes = outcome.more
    return (
        f"If prompts go on like those so far, about {count(prompts, 'more fresh one')} make{'s' * (prompts == 1)} a "
        f"finalist sure, in {whole_minutes(minutes)} min of decoding."
    )


def whole_minutes(minutes: float) -> int:
    """Return the minutes rounded up, at least 1, as coarse as an estimate is."""
    return max(1, math.ceil(minutes))


def _use_exact(label: str) -> str:
    return f"Use exact {label}" if label.startswith("SD") else f"Use exact SD as {label}"


def _speeds_of_exact(finding: SettingResult) -> str:
    return "" if finding.decoding.acceptance.by_endpoint else f", {_over_target(finding)}"


def _speeds(finding: SettingResult) -> str:
    """Return how fast a setting is. An engine is held against itself alone: it never stops drafting."""
    is_told = finding.decoding.acceptance.by_endpoint
    if finding.decoding.acceptance.is_exact:
        return "the others are held against it" if is_told else _over_target(finding)
    ends = finding.over_exact_interval
    interval = f" [{ends.low:.2f}, {ends.high:.2f}]" if ends else ""
    over_exact = f"{number_text(finding.over_exact, 2)} ×{interval} as fast as exact SD"
    return f"{over_exact} there, by time per answer" if is_told else f"{over_exact} and {_over_target(finding)}"


def _over_target(finding: SettingResult) -> str:
    return f"{number_text(finding.over_target, 2)} × as fast as the target alone, by time per answer"


def calibration_status(
    repository: Repository, config: CalibrationConfig, runs: Sequence[RunView]
) -> CalibrationStep | Outcome:
    """Return the next step or the outcome that follows from the runs of a calibration so far.

    Raises as :func:`next_step`, and ``UnknownName`` for a task that no longer exists.
    """
    return next_step(config, measurements(repository, config, runs))


def measurements(repository: Repository, config: CalibrationConfig, runs: Sequence[RunView]) -> Measurements:
    """Return the measurements of a calibration's runs so far. Raises ``UnknownName`` as above."""
    done = repository.prompts(run.id for run in runs)
    counts: dict[DecodingConfig, dict[int, PromptCounts]] = {}
    again: dict[DecodingConfig, dict[int, PromptCounts]] = {}
    failed: dict[DecodingConfig, str] = {}
    for run in runs:
        if run.config.again:
            again.setdefault(run.decoding, {}).update(done[run.id])
            continue
        counts.setdefault(run.decoding, {}).update(done[run.id])
        if run.status == "failed":
            failed[run.decoding] = run.error or f"{run.label} failed."
        elif run.status == "finished":
            failed.pop(run.decoding, None)
    (run,) = config.round_runs([config.target], 0, config.limit)
    task = find_task(config.task, repository)
    order, examples = task.positions(run), task.all_examples()
    groups = {position: examples[position].group for position in order if examples[position].group}
    return Measurements(order, counts, failed, again, groups)


def ended(repository: Repository, id: str, only: str) -> tuple[CalibrationConfig, Sequence[RunView], Outcome]:
    """Return a calibration that has ended. ``only``: what is done with calibrations alone, as the end of a sentence.

    Raises as :func:`calibration_status`, and ``InvalidSetting`` for another kind of experiment and before the end.
    """
    experiment = repository.experiment(id)
    if not isinstance(experiment.config, CalibrationConfig):
        raise NotApplicable(f"The experiment {id} is no calibration: only {only}.")
    status = calibration_status(repository, experiment.config, experiment.runs)
    if not isinstance(status, Outcome):
        raise WrongState(f"The calibration {id} has not ended: resume it, or wait for its end.")
    return experiment.config, experiment.runs, status


def ended_by_time(repository: Repository, id: str) -> Outcome:
    """Return the outcome of a calibration that its minutes ended. Raises as :func:`ended`, and for another end."""
    config, _, outcome = ended(repository, id, "these are given time")
    if outcome.reason != "minutes":
        raise WrongState(f"The calibration {id} did not end for want of time: {verdict(config, outcome)}")
    return outcome


def latest_status(repository: Repository, experiment: ExperimentView) -> CalibrationStep | Outcome:
    """Return the status of a calibration, computed again once a run ends or is scored again, or time is given.

    It is too slow for every prompt and every poll. Raises as :func:`calibration_status`.
    """
    status, _ = _latest(repository, experiment.id, _stage(experiment))
    if isinstance(status, FsdError):
        raise status.with_traceback(None)
    return status


def trials(repository: Repository, experiment: ExperimentView) -> Mapping[DecodingConfig, Trial]:
    """Return what bets on each setting's fresh prompts in a calibration rest on. Nothing is where its task is gone."""
    config = experiment.config
    assert isinstance(config, CalibrationConfig)
    try:
        status, evidence = _latest(repository, experiment.id, _stage(experiment))
    except FsdError:
        return {}
    start, order, target = config.choosing, evidence.order, evidence.of(config.target)
    end = max((place for place, position in enumerate(order, 1) if position in target), default=0)
    fresh = tuple(filter(evidence.is_whole(start, end), order[start:end]))
    finalists = max(1, len(status.finalists)) if isinstance(status, Outcome) else config.finalists
    bets = fresh, evidence.groups, evidence.largest_cluster, config.accuracy_bound, finalists
    return {
        one: Trial({i: done[i] for i in order[:start] if i in done}, *bets) for one, done in evidence.counts.items()
    }


def _stage(experiment: ExperimentView) -> tuple[object, ...]:
    """Return what differs once a calibration has got further."""
    assert isinstance(experiment.config, CalibrationConfig)
    runs = ((run.status, (run.metrics or {}).get("accuracy")) for run in experiment.runs)
    return (experiment.config.all_minutes, *runs)


@lru_cache(32)
def _latest(repository: Repository, id: str, _: object) -> tuple[CalibrationStep | Outcome | FsdError, Measurements]:
    """Return the status, or why it cannot go on, and what its runs measured."""
    experiment = repository.experiment(id)
    assert isinstance(experiment.config, CalibrationConfig)
    evidence = measurements(repository, experiment.config, experiment.runs)
    try:
        return next_step(experiment.config, evidence), evidence
    except FsdError as error:
        return error, evidence


TIMED_SECONDS = 60.0
"""of decoding that timing again should take"""


def runs_again(repository: Repository, id: str) -> list[RunConfig]:
    """Return the runs that time the target, exact SD and the finalists of a calibration again, for about a minute.

    They are on fresh prompts if these settings did any. Raises as ``ended``, and ``InvalidSetting`` where one setting
    alone was timed.
    """
    config, runs, outcome = ended(repository, id, "the finalists of one are timed again")
    evidence = measurements(repository, config, runs)
    settings = outcome.timed
    start = 0 if evidence.lacks_any(settings, config.choosing, config.choosing + FEWEST_CHOOSING) else config.choosing
    seconds = sum(evidence.seconds_each(setting) for setting in settings)
    prompts = max(FEWEST_CHOOSING, int(TIMED_SECONDS / seconds) if seconds else FEWEST_CHOOSING)
    end = min(start + prompts, config.limit)
    while end > start and evidence.lacks_any(settings, start, end):
        end -= 1
    if end - start < FEWEST_CHOOSING:
        raise NotEnough(f"The finalists of the calibration {id} share too few prompts to be timed again.")
    return config.round_runs(settings, start, end, again=True)


FINALIST_COLUMNS = ("Finalist", "Prompts", "Points", "Points, at least", "Accepted, %", "× as fast as SD")


class FinalistRow(NamedTuple):
    """One finalist, in the order of ``FINALIST_COLUMNS``."""

    label: str
    certainty: str
    """``sure`` or ``not sure``, below the label"""
    prompts: str
    difference: str
    at_least: str
    accepted: str
    over_exact: str
    interval: str
    """of ``over_exact``, below it; empty without one"""


def finalist_row(result: SettingResult) -> FinalistRow:
    """Return the texts of one finalist."""
    ends = result.over_exact_interval
    return FinalistRow(
        label=result.decoding.label,
        certainty="sure" if result.sure else "not sure",
        prompts=str(result.prompts),
        difference=number_text(result.difference, 1, signed=True, times=100),
        at_least=number_text(result.at_least, 1, signed=True, times=100),
        accepted=number_text(result.acceptance, 0, times=100),
        over_exact=number_text(result.over_exact, 2),
        interval=f"{ends.low:.2f} to {ends.high:.2f}" if ends else "",
    )
