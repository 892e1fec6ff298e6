"""A proposal as HTML: the evidence for each requirement, the verdicts, the comments, the worst prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dashboard.tables.review_log import deed_text, requirements_text, setting_link
from dashboard.tables.siblings import machine
from dashboard.tables.weights_html import weights_html
from dashboard.ui.components import Column, Tile, notice, pill, rough, table, tiles
from dashboard.ui.quantities import DASH, interval, percent, quantity
from dashboard.ui.templates import Html, joined, render
from fsd_core.analysis.cells import against, ratio_mixed, speedup
from fsd_core.errors import InvalidSetting
from fsd_core.formatting import count
from fsd_core.metrics import METRICS
from fsd_core.review.evidence import REQUIREMENT_TITLES, Evidence, overall, taken_of
from fsd_core.review.measured_weights import certain_weights
from fsd_core.roles import LOCAL, Person, same_name
from fsd_core.statistics.intervals import Estimate
from fsd_core.storage.review_events import written_text

if TYPE_CHECKING:
    from dashboard.tables.prompt_pairs import Pairing
    from fsd_core.review.history import Proposal
    from fsd_core.review.passages import Quoted
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.storage.records import AccountView, LoggedEvent

_REQUIREMENTS = (Column("Requirement"), Column("Outcome"), Column("Evidence", "wide"), Column("Answered", "wide"))


def proposal_html(review: ProposalReview, label: str, accounts: Sequence[AccountView] = ()) -> Html:
    """Return the proposed setting, its progress, and the outcome of each requirement on its evidence.

    A verdict of somebody who has lost the right to one since stays, and says so beside the name.
    """
    proposal = review.proposal
    missing = (
        notice(f"{count(len(review.missing), 'run')} of its evidence was deleted.", "bad") if review.missing else ""
    )
    return render(
        "review/proposal.html",
        "proposal",
        review.use,
        proposal,
        label=label,
        setting=setting_link(proposal.setting),
        requirements_text=requirements_text(proposal.requirements),
        notices=joined([missing, _status(review, accounts)]),
        requirements=_requirements(review),
    )


def evidence_html(review: ProposalReview) -> Html:
    """Return why it is proposed, what was measured, and with which weights."""
    measured = joined(_measured(evidence) for evidence in review.evidence)
    return render("review/proposal.html", "evidence", review.proposal, weights=_weights(review), measured=measured)


def _status(review: ProposalReview, accounts: Sequence[AccountView]) -> Html:
    status, state = review.status, review.proposal.state
    parts = [f"{len(status.approved_by)} of {count(status.needed, 'approval')}"]
    for label, people in (
        ("approved by", status.approved_by), ("changes asked or declined by", status.against),
        ("stale, of other evidence:", status.stale), ("expired:", status.expired),
    ):  # fmt: skip
        if people:
            parts.append(f"{label} {', '.join(name + _lost_since(name, accounts) for name in people)}")
    tone = "warn" if status.stale or status.expired or (status.against and state == "open") else ""
    return notice(f"{'; '.join(parts)}. {review.note}".rstrip(), tone)


def _lost_since(name: str, accounts: Sequence[AccountView]) -> str:
    account = next((account for account in accounts if same_name(account.name, name)), None)
    if account is None:
        return " (no account now)" if accounts and name != LOCAL.name else ""
    may = Person(account.name, account.role).may("reviewer")
    return " (disabled now)" if account.disabled else "" if may else f" ({account.role} now)"


def _requirements(review: ProposalReview) -> Html:
    outcomes, rows = overall(review.evidence), []
    for name, outcome in outcomes.items():
        findings = "; ".join(
            finding.text for evidence in review.evidence for finding in evidence.findings if finding.requirement == name
        )
        waiver = review.proposal.waived(name, review.hash)
        answer = f"{waiver.who}: {waiver.reason}" if waiver else "" if outcome == "met" else "open"
        rows.append((REQUIREMENT_TITLES[name], pill(outcome), findings, answer))
    return table(_REQUIREMENTS, rows, "Requirements")


def _weights(review: ProposalReview) -> Html:
    """Return the weights that are approved with the setting, or why none can be if its runs disagree."""
    runs = [run for evidence in review.evidence for run in (*evidence.setting_pool.runs, *evidence.baseline_pool.runs)]
    if not runs:
        return Html()
    try:
        return render("review/proposal.html", "weights", weights_html(certain_weights(runs)))
    except InvalidSetting as error:
        return notice(str(error), "bad")


def _measured(evidence: Evidence) -> Html:
    run, baseline, prompts = evidence.run, evidence.baseline, evidence.prompts
    passes, length = (against(run, baseline, METRICS[key], prompts) for key in ("target_passes", "mean_tokens"))
    speed = speedup(run, baseline, prompts)
    m = run.metrics or {}
    mixed = ratio_mixed(run, baseline)
    entries = [
        _ratio("Times as fast", speed, mixed, "by time per answer"),
        _ratio("Answer length", length),
        _ratio("Target passes", passes),
    ]
    if (share := taken_of(prompts)) is not None:
        entries.append(Tile("Taken by other programs", percent(share, digits=0), "of the decoding time"))
    runaways = percent(m.get("runaway_rate"), m.get("runaway_rate_low"), m.get("runaway_rate_high"))
    entries.append(Tile("Runaways", runaways, _stopped(evidence)))
    caption = f"seed {run.seed}, {machine(run) or 'unknown machine'}"
    return render("review/proposal.html", "measured", evidence, caption, tiles(entries))


def _stopped(evidence: Evidence) -> str:
    rare = evidence.runaways
    return f"answers stopped by the limit; {rare.sentence}" if rare else "answers stopped by the limit"


def _ratio(name: str, ratio: Estimate | None, mixed: Sequence[str] = (), by: str = "") -> Tile:
    if ratio is None:
        return Tile(name, DASH)
    below = "; ".join(filter(None, (by, interval(ratio.low, ratio.high))))
    return Tile(name, rough(quantity(*ratio, unit="×"), ratio.low is None), below, mixed)


def conversation_html(proposal: Proposal, quoted: Mapping[int, Quoted]) -> Html:
    """Return all that was said, numbered from 1, with replies below it. ``quoted``: the passages of comments."""
    if not proposal.said:
        return render("review/discussion.html", "faded", "Nobody said anything yet.")
    answers: dict[int | None, list[tuple[int, LoggedEvent, str, str]]] = {}
    for number, logged in enumerate(proposal.said, start=1):
        entry = number, logged, deed_text(logged.event), written_text(logged.event)
        answers.setdefault(getattr(logged.event, "reply_to", None), []).append(entry)
    return render("review/discussion.html", "conversation", proposal, answers, quoted)


def prompts_html(pairing: Pairing | None) -> Html:
    """Return how the prompts below are sorted: those that speak most against the setting come first."""
    if pairing is None:
        text = "Runs of its evidence were deleted."
    elif not pairing.filtered("text"):
        text = "Both answered every shared prompt alike."
    else:
        text = "First those that the baseline solves and the setting does not."
    return render("review/discussion.html", "faded", text)
