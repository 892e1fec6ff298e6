"""Errors for programs over HTTP, as problem documents (RFC 9457)."""

from __future__ import annotations

from typing import NamedTuple

from fastapi.responses import JSONResponse

from fsd_core.errors import FsdError, InvalidSetting, NoEquivalent, Overtaken, Refused, UnderReview, UnknownName


class ErrorKind(NamedTuple):
    """A kind of error: what stays the same from one answer to the next."""

    status: int
    name: str
    title: str


_KINDS: dict[type[FsdError], ErrorKind] = {
    NoEquivalent: ErrorKind(409, "no-equivalent", "The engine cannot run this setting"),
    UnknownName: ErrorKind(404, "not-found", "There is no such thing"),
    Refused: ErrorKind(403, "refused", "This is not for whoever asks"),
    Overtaken: ErrorKind(409, "overtaken", "Somebody else acted first"),
    UnderReview: ErrorKind(409, "under-review", "The setting is under review already"),
    InvalidSetting: ErrorKind(422, "invalid", "This cannot be done as it was asked"),
}
PROBLEM_TYPE = "application/problem+json"
_UNAVAILABLE = ErrorKind(503, "unavailable", "This cannot be answered now")


def problem_document(error: FsdError) -> JSONResponse:
    """Return the error as ``application/problem+json``. Its ``detail`` is the sentence, its ``type`` for programs."""
    kind = next((kind for error_type, kind in _KINDS.items() if isinstance(error, error_type)), _UNAVAILABLE)
    content = {
        "type": f"urn:fsd-lab:problem:{kind.name}",
        "title": kind.title,
        "status": kind.status,
        "detail": str(error),
    }
    return JSONResponse(content, kind.status, {"Cache-Control": "no-store"}, PROBLEM_TYPE)
