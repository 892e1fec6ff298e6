"""Messages on a review and their recipients, from an event of the log or the end of an approval."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from fsd_core.review.approvals import expiry_of
from fsd_core.review.history import Proposal, Use
from fsd_core.roles import same_name
from fsd_core.storage.outbox_message import NoticeContent, NoticeKind
from fsd_core.storage.records import LoggedEvent
from fsd_core.storage.review_events import AliasMoved, Judged, Proposed, ReviewersAsked, Verdict, written_text

_VERDICTS: dict[Verdict, tuple[NoticeKind, str]] = {
    "approve": ("approved", "approves"),
    "request changes": ("changes-requested", "asks for changes to"),
    "decline": ("declined", "declines"),
}
_DEEDS: dict[str, tuple[NoticeKind, str]] = {
    "remarked": ("commented", "comments on"), "evidence-chosen": ("evidence-chosen", "chooses other evidence for"),
    "waived": ("waived", "answers for a requirement of"), "withdrawn": ("withdrawn", "withdraws"),
}  # fmt: skip
"""by the kind of the event"""


class Telling(NamedTuple):
    """A message for everybody whom it concerns."""

    content: NoticeContent
    people: tuple[str, ...]
    """names, but for whoever did it"""
    source: str
    """key of the event that it is about, always the same for one event"""


def of_event(use: Use, logged: LoggedEvent, labels: dict[str, str]) -> Telling | None:
    """Return the message on an event of a use, or ``None`` if it needs none. ``labels``: the settings' names, by their
    ids."""
    event = logged.event
    proposal = use.proposals.get(event.about or "")
    if isinstance(event, AliasMoved):
        return _rolled_back(use, logged, event, labels) if event.alias == "approved" and not event.proposal else None
    if proposal is None:
        return None
    named = f"{labels.get(proposal.setting, proposal.setting)} for {use.name}"
    if isinstance(event, Proposed | ReviewersAsked):
        new = tuple(name for name in event.reviewers if _asked_by(use, logged, name))
        if isinstance(event, ReviewersAsked) and not new:
            return None
        whom = ", ".join(new) or "somebody"
        text = f"{logged.who} asks {whom} to review {named}."
        return _telling(use, logged, "review-requested", text, proposal, new, new)
    deed = _VERDICTS[event.verdict] if isinstance(event, Judged) else _DEEDS.get(event.kind)
    if deed is None:
        return None
    kind, verb = deed
    more = " It is the approved setting now." if kind == "approved" and _moved(use, logged) else ""
    return _telling(use, logged, kind, f"{logged.who} {verb} {named}.{more}", proposal, _concerned(proposal))


def of_expiry(use: Use, labels: dict[str, str], at: datetime) -> tuple[Telling, datetime] | None:
    """Return the message on the expiry of the approval in force for a use, and its time."""
    expired = expiry_of(use)
    if expired is None or expired > at:
        return None
    moved = use.aliases["approved"].moved
    proposal = use.proposals[use.in_force[-1].proposal or ""]
    named = f"{labels.get(proposal.setting, proposal.setting)} for {use.name}"
    content = NoticeContent(
        kind="approval-expired", at=_text(expired), use=use.id, use_name=use.name, who="", proposal=proposal.id,
        setting=proposal.setting, text=f"The approval of {named} has expired: have it reviewed again.",
        page=f"review?proposal={proposal.id}",
    )  # fmt: skip
    return Telling(content, _concerned(proposal), f"expiry of event {moved.id} at {content.at}"), expired


def _rolled_back(use: Use, logged: LoggedEvent, event: AliasMoved, labels: dict[str, str]) -> Telling:
    proposals = [proposal for proposal in use.proposals.values() if proposal.setting == event.former]
    former = labels.get(event.former or "", event.former)
    now = labels.get(event.setting or "", event.setting) if event.setting else "nothing"
    content = NoticeContent(
        kind="rolled-back", at=_text(logged.at), use=use.id, use_name=use.name, who=logged.who, setting=event.setting,
        text=f"{logged.who} takes back the approval of {former} for {use.name}: {now} is approved now.",
        words=event.comment, page=f"review?use={use.id}",
    )  # fmt: skip
    people = tuple(name for proposal in proposals for name in _concerned(proposal))
    return Telling(content, _but(people, logged.who), _source(logged))


def _telling(
    use: Use, logged: LoggedEvent, kind: NoticeKind, text: str, proposal: Proposal, people: Iterable[str],
    reviewers: tuple[str, ...] = (),
) -> Telling:  # fmt: skip
    content = NoticeContent(
        kind=kind, at=_text(logged.at), use=use.id, use_name=use.name, who=logged.who, text=text,
        proposal=proposal.id, setting=proposal.setting, words=written_text(logged.event),
        reviewers=reviewers, page=f"review?proposal={proposal.id}", waits_for=tuple(proposal.waits_for),
    )  # fmt: skip
    return Telling(content, _but(people, logged.who), _source(logged))


def _concerned(proposal: Proposal) -> tuple[str, ...]:
    """Return the people whom a proposal concerns: for whom it waits, who made it, who is asked, and who said
    something."""
    return (
        *proposal.waits_for,
        proposal.owner or proposal.author,
        *proposal.reviewers,
        *(logged.who for logged in proposal.said),
    )


def _but(people: Iterable[str], who: str) -> tuple[str, ...]:
    """Return each name once, without one."""
    names: list[str] = []
    for name in people:
        if not same_name(name, who) and not any(same_name(name, other) for other in names):
            names.append(name)
    return tuple(names)


def _asked_by(use: Use, logged: LoggedEvent, name: str) -> bool:
    """Whether this event is the one that asked somebody, who was not asked right before."""
    before: tuple[str, ...] = ()
    for entry in use.about(logged.event.about or ""):
        if entry.sequence == logged.sequence:
            break
        if isinstance(entry.event, Proposed | ReviewersAsked):
            before = entry.event.reviewers
    return name not in before


def _moved(use: Use, logged: LoggedEvent) -> bool:
    """Whether a verdict moved the alias ``approved``. Both are stored at once."""
    after = [entry.event for entry in use.log if 0 < entry.sequence - logged.sequence <= 2]
    return any(
        isinstance(event, AliasMoved) and event.alias == "approved" and event.proposal == logged.event.about
        for event in after
    )


def _source(logged: LoggedEvent) -> str:
    return f"event {logged.id}"


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
