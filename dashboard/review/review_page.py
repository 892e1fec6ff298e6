"""Review page: uses and their approved settings.

``?use=`` opens a use, ``?proposal=`` a proposal, and ``?propose=`` a new proposal of a setting, with the fresh prompts
of ``&calibration=`` as evidence if it is given.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import gradio as gr
from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from dashboard.review.opened_proposal import OpenedProposal
from dashboard.review.propose_form import ProposeForm, UseForm
from dashboard.tables.list_page import Listing, ListPage, held
from dashboard.tables.logs import DECISIONS, Decision, download, harmless, requirements_text, setting_link
from dashboard.tables.run_record import weights_html
from dashboard.ui.components import Column, dead_end, heading, notice, section, show
from dashboard.ui.templates import Html, downloads, joined, render
from dashboard.ui.view import Asked, Part, Updates, Values, View, count_in, together
from fsd_core.accounts import person_in
from fsd_core.errors import FsdError, UnknownName
from fsd_core.review.approvals import approval_of, unapproved
from fsd_core.review.blinding import blinded
from fsd_core.review.history import waiting_for
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import NOBODY
from fsd_core.storage.records import LoggedEvent
from fsd_core.storage.review_events import LONGEST_TEXT, Proposed, written_text
from fsd_core.texts import DASH

if TYPE_CHECKING:
    from fsd_core.review.approvals import Approval
    from fsd_core.review.history import Awaited, Proposal, Use
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


_COLUMNS = ("use", "sequence", "at", "who", "role", "kind", "proposal", "words", "act", "pair", "owner")


def links_html(use_id: str) -> Html:
    """Return a link for each format."""
    formats = (("csv", "CSV"), ("jsonl", "JSON Lines"))
    return downloads((f"export/review.{name}?use={quote(use_id)}", f"Export {title}") for name, title in formats)


def csv_text(log: Sequence[LoggedEvent], pairs: Sequence[str]) -> str:
    """Return a row per event. The column ``act`` has all of it as JSON. ``pairs``: that of each event, or empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for logged, pair in zip(log, pairs, strict=True):
        event = json.dumps(logged.event.as_json(), ensure_ascii=False)
        row = (
            *_common_fields(logged).values(),
            logged.event.kind,
            logged.event.about or "",
            written_text(logged.event),
            event,
            pair,
            logged.owner or "",
        )
        writer.writerow([harmless(value) for value in row])
    return out.getvalue()


def json_lines(log: Sequence[LoggedEvent], pairs: Sequence[str]) -> str:
    """Return a line per event. ``pairs``: that of each event, or empty."""
    lines = (
        _common_fields(logged)
        | {"act": logged.event.as_json(), "owner": logged.owner}
        | ({"pair": pair} if pair else {})
        for logged, pair in zip(log, pairs, strict=True)
    )
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _common_fields(logged: LoggedEvent) -> dict[str, Any]:
    return {
        "use": logged.use_id, "sequence": logged.sequence, "at": logged.at.isoformat(), "who": logged.who,
        "role": logged.role,
    }  # fmt: skip


def _pairs(repository: Repository, log: Sequence[LoggedEvent]) -> list[str]:
    """Return the pair of each event's setting, or of the proposal that it concerns; empty for those of a use alone."""
    proposed = {
        logged.event.proposal: logged.event.setting for logged in log if isinstance(logged.event, Proposed)
    }  # fmt: skip
    settings = [getattr(logged.event, "setting", None) or proposed.get(logged.event.about or "") for logged in log]
    names = repository.setting_names({setting for setting in settings if setting})
    return [names[setting][1] if setting in names else "" for setting in settings]


_WRITERS: dict[str, tuple[Callable[[Sequence[LoggedEvent], Sequence[str]], str], str]] = {
    "csv": (csv_text, "text/csv"),
    "jsonl": (json_lines, "application/jsonl"),
}


def log_routes(repository: Repository) -> APIRouter:
    """Return the routes ``GET /export/review.csv`` and ``.jsonl``, for the use that ``use=`` names or for all."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/review.{extension}")
    def export(extension: str, request: Request, use: str = "") -> Response:
        write, media_type = _WRITERS[extension]
        try:
            log = blinded(repository, person_in(request.scope) or NOBODY, repository.review_log(use or None))
            pairs = _pairs(repository, log)
        except FsdError as error:
            return PlainTextResponse(str(error), 503)
        if use and not log:
            return PlainTextResponse("There is no such use: the link is incomplete, or of another database.", 404)
        name = f"review-{use}" if use else "review"  # the id of a stored use has only letters, digits and dashes
        return download(write(log, pairs), media_type, f"{name}.{extension}")

    return router


_FILE = "review/use.html"
_USES = {
    "use": Column("Use", "wide"), "asks": Column("Asks for", "wide"), "approved": Column("Approved", "wide"),
    "open": Column("Under review", "num"), "last": Column("Last act"),
}  # fmt: skip
_WAITING = {
    "setting": Column("Setting", "wide"), "use": Column("Use", "wide"), "awaited": Column("Waits for"),
    "by": Column("By"), "proposed": Column("Proposed"),
}  # fmt: skip
_PROPOSALS = {
    "setting": Column("Setting", "wide"), "by": Column("By"), "proposed": Column("Proposed"),
    "evidence": Column("Evidence", "num"), "state": Column("State"),
}  # fmt: skip


def uses_html(uses: Sequence[Use], labels: Mapping[str, str]) -> Html:
    """Return all uses. ``labels`` maps ids of settings to their labels."""
    cell = partial(render, _FILE, "listed", labels=labels, text=requirements_text)
    return Listing("Uses", _USES, cell, render(_FILE, "no_uses")).html(uses)


def waiting_html(waiting: Sequence[tuple[Use, Proposal, Awaited]], labels: Mapping[str, str]) -> Html:
    """Return the proposals that wait for somebody's verdict or changes; nothing if none does."""
    lines = Listing("Waiting for me", _WAITING, partial(render, _FILE, "waiting", labels=labels), Html()).html(waiting)
    return joined([section("Waiting for me"), lines]) if waiting else lines


def _setting_named(setting: str | None, labels: Mapping[str, str]) -> str:
    return DASH if setting is None else joined([labels.get(setting, ""), " ", setting_link(setting)])


def use_html(use: Use, labels: Mapping[str, str], approval: Approval | None) -> Html:
    """Return one use with all that was decided for it. ``approval``: the one in force."""
    measured = use.in_force[-1].weights if use.in_force else {}
    return render(
        _FILE,
        "use",
        use,
        requirements_text=requirements_text(use.requirements),
        approved=_setting_named(use.named("approved"), labels) if use.named("approved") else str(unapproved(use)),
        weights=weights_html(measured) if measured else "",
        approval=approval,
        candidate=_setting_named(use.named("candidate"), labels),
        proposals=_proposals(use, labels),
        exports=links_html(use.id),
    )


def _proposals(use: Use, labels: Mapping[str, str]) -> Html:
    """Return a use's proposals, newest first."""
    proposals = sorted(use.proposals.values(), key=lambda proposal: proposal.at, reverse=True)
    cell = partial(render, _FILE, "proposal", labels=labels)
    return Listing("Proposals", _PROPOSALS, cell, render(_FILE, "no_proposals")).html(proposals)


class UseChange:
    """The form's components as attributes.

    ``seen`` is the number of the log entry that the form was filled in from. A later description fills in only the
    fields that nobody has changed.
    """

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        with gr.Accordion("Change what it asks for", open=False):
            self.form = UseForm()
            self.change = gr.Button("Change the use")
            self.answer = show()
        self.seen = gr.Textbox(visible="hidden")
        self.forms: list[Any] = [self.seen, *self.form.fields]

    def listen(self, view: View) -> None:
        """Attach the event."""
        view.button(self.change, "change the use", self.forms, self.change_use, self.answer)

    def redraw(self, asked: Asked, use: Use) -> None:
        """Fill in what the use asks for, where the form holds what it asked for before."""
        seen = count_in(asked[self.seen])
        if seen == use.described_at:
            return
        former = self.form.texts(described) if (described := use.description_at(seen)) else None
        for field, text in self.form.texts(use.described).items():
            if former is None or asked[field] == former[field]:
                asked.fill(field, text)
        asked.fill(self.seen, str(use.described_at))

    def change_use(self, values: Values, asked: Asked) -> Updates:
        """Change the use that the address names."""
        changes, seen = self.form.read(values), count_in(values[self.seen])
        self.service.change_use(asked.person, asked.address.get("use", ""), changes, seen, values.key)
        return {self.answer: notice("Changed, with your name in the log.")}


_LEAD = "What settings are wanted for, which one is approved, and why."
_ROLLED_BACK, _TAKEN_BACK = "Why it is rolled back", "Why the approval is taken back"
_NAMED = ("proposal", "propose", "use")
"""query parameters that select a panel, in order of precedence"""


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    ReviewPage(repository)


class ReviewPage:
    """All uses, one of them, a proposal or the form for a new one, as the address names it."""

    def __init__(self, repository: Repository) -> None:
        service, self.message = ReviewService(repository), show()
        with gr.Column(visible=False) as overview_part:
            self.overview = Overview(service)
        with gr.Column(visible=False) as use_part:
            self.use = OpenedUse(service)
        with gr.Column(visible=False) as propose_part:
            self.form = ProposeForm(service)
        with gr.Column(visible=False) as proposal_part:
            self.proposal = OpenedProposal(service)
        self._parts = {"": overview_part, "use": use_part, "propose": propose_part, "proposal": proposal_part}
        view = self._view = View(self.message, self.fail)
        panels = self.overview, self.use, self.form, self.proposal
        for panel in panels:
            panel.listen(view)
        view.listen(self.redraw, *together(panels, outputs=self._parts.values()))

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the panel that the address names."""
        named = _named(asked)
        panels = {"": self.overview, "use": self.use, "propose": self.form, "proposal": self.proposal}
        try:
            updates = panels[named].redraw(asked, asked.address.get(named, ""))
        except UnknownName as error:
            return self._view.only(asked, self._parts.values(), None, _nothing(error))
        return updates | self._view.only(asked, self._parts.values(), self._parts[named])

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        if asked.opening:
            return {self.message: _nothing(error)}
        if _named(asked) == "proposal":
            return self.proposal.fail(error)
        return {self.message: notice(str(error), "bad")}


def _named(asked: Asked) -> str:
    return next((name for name in _NAMED if asked.address.get(name)), "")


def _nothing(error: FsdError) -> Html:
    return dead_end(str(error), "review", "See all uses")


class Overview(Part):
    """All uses, and a form for a new one."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        show(heading("Review", _LEAD))
        self.waiting = show()
        self.uses = show()
        show(section("Make a use"))
        self.form = UseForm()
        self.make = gr.Button("Make the use", variant="primary")
        self.answer = show()
        self.forms = self.form.typed
        self.outputs = [self.waiting, self.uses]

    def listen(self, view: View) -> None:
        """Attach the event."""
        view.button(self.make, "make a use", self.form.fields, self.describe, self.answer)

    def redraw(self, asked: Asked, _id: str) -> Updates:
        """Return all uses, if they differ."""
        uses = self.service.uses()
        labels = self.service.labels(uses)
        html, waiting = uses_html(uses, labels), waiting_html(waiting_for(uses, asked.person), labels)
        return {self.waiting: waiting, self.uses: html} if asked.differs("uses", html, waiting) else {}

    def describe(self, values: Values, asked: Asked) -> Updates:
        """Make a use."""
        use = self.form.make(self.service, values, asked, values.key)
        return {self.answer: notice(f"“{use.name}” is made: open a setting and propose it.")}


class OpenedUse(Part):
    """One use with its log, and the way back to what was approved before, or to nothing where nothing was."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        self.use = show()
        count, rows = held(
            DECISIONS, lambda use: [Decision(use, logged) for logged in use.log], lambda decision: decision.logged
        )
        self.log = ListPage("log", "event", DECISIONS, count, rows, "Who, what or words")
        with gr.Column(visible=False) as self.way_back:
            with gr.Row(elem_classes=["rev-forms"]):
                self.comment = gr.Textbox(label=_ROLLED_BACK, max_length=LONGEST_TEXT, scale=3)
                self.back = gr.Button(variant="stop")
            self.barred = show()
        self.answer = show()
        self.change = UseChange(service)
        self.seen = gr.Textbox(visible="hidden")  # the number of the last act on the page
        self.forms = [self.comment, *self.change.forms]
        self.fields = self.log.fields
        self.outputs = [self.use, self.way_back, self.back, self.barred, self.comment, self.seen, *self.log.outputs]

    def listen(self, view: View) -> None:
        """Attach the event."""
        self.change.listen(view)
        self.log.listen(view)
        view.button(self.back, "roll back", [self.seen, self.comment], self.roll_back, self.answer, barred=self.barred)

    def redraw(self, asked: Asked, use_id: str) -> Updates:
        """Return the use, if it differs."""
        use = self.service.use(use_id)
        self.change.redraw(asked, use)
        html = use_html(use, self.service.labels([use]), approval_of(self.service.repository, use))
        updates = self.log.redraw(asked, use=use)
        if not asked.differs("use", html, use.sequence):
            return updates
        back, why = "Take the approval back", _TAKEN_BACK
        if len(use.in_force) > 1:
            back, why = "Roll back to what was approved before", _ROLLED_BACK
        return updates | {
            self.use: html,
            self.way_back: gr.Column(visible=use.named("approved") is not None),
            self.back: gr.Button(back),
            self.comment: gr.Textbox(label=why),
            self.seen: str(use.sequence),
        }

    def roll_back(self, values: Values, asked: Asked) -> Updates:
        """Point the alias ``approved`` back to the setting that it named before, or to none if there was none."""
        use, seen = asked.address.get("use", ""), count_in(values[self.seen])
        setting = self.service.roll_back(asked.person, use, values[self.comment], seen, values.key)
        asked.used(values, self.comment)
        return {self.answer: notice("Rolled back." if setting else "The approval is taken back.")}
