"""The review log of one use or of all as a file: CSV for a spreadsheet, JSON Lines for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from dashboard.tables.spreadsheet import download, harmless
from dashboard.ui.links import downloads
from dashboard.ui.templates import Html
from fsd_core.auth.identify import person_in
from fsd_core.errors import FsdError
from fsd_core.review.blinding import blinded
from fsd_core.roles import NOBODY
from fsd_core.storage.records import LoggedEvent
from fsd_core.storage.review_events import Proposed, written_text

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

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
