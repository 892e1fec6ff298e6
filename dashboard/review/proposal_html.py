"""A proposal as HTML: the evidence against each requirement, who stands where, what was said, the worst prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.review.use_html import asked
from dashboard.tables.company import machine
from dashboard.tables.review_log import setting_link
from dashboard.tables.weights_html import weights_html
from dashboard.ui.components import Column, Tile, escape, notice, pill, section, table, tiles
from dashboard.ui.links import copy_link
from dashboard.ui.quantities import DASH, ago, interval, percent, quantity
from fsd_core.analysis.cells import against, ratio_mixed
from fsd_core.errors import InvalidSetting
from fsd_core.formatting import count
from fsd_core.metrics import METRICS
from fsd_core.review.evidence import REQUIREMENT_TITLES, Evidence, overall
from fsd_core.review.measured_weights import certain_weights
from fsd_core.statistics.intervals import Estimate
from fsd_core.storage.review_events import Remarked

if TYPE_CHECKING:
    from dashboard.tables.prompt_pairs import Pairing
    from fsd_core.review.history import ProposalStatus
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.storage.records import LoggedEvent, RunView

_REQUIREMENTS = (Column("Requirement"), Column("Evidence", "wide"), Column("Outcome"), Column("Answered", "wide"))


def case_html(case: ProposalReview, label: str) -> str:
    """The whole proposal but for its conversation and its prompts."""
    proposal, use = case.proposal, case.use
    gone = [notice(f"{count(len(case.missing), 'run')} of its evidence was deleted.", "bad")] if case.missing else []
    return (
        f'<p class="run-back"><a href="/review?use={escape(use.id)}">{escape(use.name)}</a></p>'
        f'<h1 class="fsd-h1">{escape(label)} {pill(proposal.state)}</h1>'
        f'<p class="fsd-lead">Setting {setting_link(proposal.setting)}, proposed by {escape(proposal.author)} '
        f"{escape(ago(proposal.at))} for {escape(asked(proposal.requirements))}. "
        f"{copy_link()}</p>"
        + (f'<p class="rev-words">{escape(proposal.rationale)}</p>' if proposal.rationale else "")
        + "".join(gone)
        + _standing(case.standing, proposal.state)
        + section("Evidence")
        + _requirements(case)
        + _weights(case)
        + "".join(_measured(one) for one in case.evidence)
    )


def _standing(standing: ProposalStatus, state: str) -> str:
    said = [f"{len(standing.approved_by)} of {count(standing.needed, 'approval')}"]
    for words, people in (
        ("approved by", standing.approved_by), ("changes asked or declined by", standing.against),
        ("stale, of other evidence:", standing.stale), ("expired:", standing.expired),
    ):  # fmt: skip
        if people:
            said.append(f"{words} {', '.join(people)}")
    tone = "warn" if standing.stale or standing.expired or (standing.against and state == "open") else ""
    return notice("; ".join(said) + ".", tone)


def _requirements(case: ProposalReview) -> str:
    outcomes, rows = overall(case.evidence), []
    for name, outcome in outcomes.items():
        told = "; ".join(f.told for one in case.evidence for f in one.findings if f.requirement == name)
        waiver = case.proposal.waived(name, case.hash)
        words = f"{waiver.who}: {waiver.words}" if waiver else "–" if outcome == "met" else "open"
        rows.append((escape(REQUIREMENT_TITLES[name]), escape(told), pill(outcome), escape(words)))
    return table(_REQUIREMENTS, rows, "Requirements")


def _weights(case: ProposalReview) -> str:
    """What is approved with the setting; why nothing can be, where its runs do not agree."""
    runs = [run for one in case.evidence for run in (*one.ours.runs, *one.theirs.runs)]
    if not runs:
        return ""
    try:
        return f'<p class="rev-weights">Measured with {weights_html(certain_weights(runs))}</p>'
    except InvalidSetting as error:
        return notice(str(error), "bad")


def _measured(one: Evidence) -> str:
    run, baseline, prompts = one.run, one.baseline, one.prompts
    passes, length = (against(run, baseline, METRICS[key], prompts) for key in ("target_passes", "mean_tokens"))
    speed = against(run, baseline, METRICS["tokens_per_second"], prompts)
    m = run.metrics or {}
    mixed = ratio_mixed(run, baseline)
    shown = [_ratio("Speed", speed, mixed), _ratio("Answer length", length), _ratio("Target passes", passes)]
    runaways = percent(m.get("runaway_rate"), m.get("runaway_rate_low"), m.get("runaway_rate_high"))
    shown.append(Tile("Runaways", runaways, "answers stopped by the limit"))
    return f'<p class="rev-run">{_calibrated(one) if one.ours.calibration else _runs(one)}</p>{tiles(shown)}'


def _runs(one: Evidence) -> str:
    """Two runs, with the ways to them."""
    run, baseline = one.run, one.baseline
    ids = f"runs={run.id},{baseline.id}&baseline={baseline.id}"
    return (
        f'<a href="/runs?run={escape(run.id)}">{escape(run.label)}</a> beside '
        f'<a href="/runs?run={escape(baseline.id)}">{escape(baseline.label)}</a> on {escape(run.task)}, '
        f"{escape(count(run.prompts_done, 'prompt'))}, {_where(run)} · "
        f'<a href="/compare?{escape(ids)}">Compare</a>'
    )


def _calibrated(one: Evidence) -> str:
    """Turns of a calibration, with the way to it."""
    run, id = one.run, one.ours.calibration or ""
    link = f'<a href="/runs?experiment={escape(id)}">{escape(run.experiment_name or "without a name")}</a>'
    return (
        f"{escape(run.label)} beside {escape(one.baseline.label)} on {escape(run.task)}, from the calibration {link}: "
        f"{escape(count(one.shared, 'fresh prompt'))}, {_where(run)}. It ended by what it had shown, which flatters "
        "the intervals here a little; its own bound allows for that."
    )


def _where(run: RunView) -> str:
    return f"seed {run.seed}, {escape(machine(run) or 'unknown machine')}"


def _ratio(name: str, ratio: Estimate | None, mixed: Sequence[str] = ()) -> Tile:
    if ratio is None:
        return Tile(name, DASH)
    return Tile(name, quantity(*ratio, unit="×"), interval(ratio.low, ratio.high), mixed)


def conversation_html(remarks: Sequence[LoggedEvent]) -> str:
    """Comments, answers below what they answer."""
    if not remarks:
        return '<p class="fsd-faded">Nobody said anything yet.</p>'
    children: dict[int | None, list[LoggedEvent]] = {}
    for logged in remarks:
        assert isinstance(logged.act, Remarked)
        children.setdefault(logged.act.reply_to, []).append(logged)
    return f'<ol class="rev-thread">{"".join(_remark(one, children) for one in children.get(None, ()))}</ol>'


def _remark(logged: LoggedEvent, children: dict[int | None, list[LoggedEvent]]) -> str:
    act = logged.act
    assert isinstance(act, Remarked)
    where = ""
    if act.position is not None:
        where = f" on prompt {act.position + 1}"
    below = "".join(_remark(one, children) for one in children.get(logged.sequence, ()))
    return (
        f'<li><p class="rev-who"><b>{escape(logged.who)}</b>{escape(where)} <span class="fsd-faded">'
        f"{escape(ago(logged.at))} · #{logged.sequence}</span></p>"
        f'<p class="rev-words">{escape(act.words)}</p>{f"<ol>{below}</ol>" if below else ""}</li>'
    )


def prompts_html(pairing: Pairing | None) -> str:
    """What is read below: the prompts that speak most against the setting come first."""
    if pairing is None:
        return '<p class="fsd-faded">Runs of its evidence were deleted.</p>'
    if not pairing.filtered("text"):
        return '<p class="fsd-faded">Both answered every shared prompt alike.</p>'
    return '<p class="fsd-faded">First those that the baseline solves and the setting does not.</p>'
