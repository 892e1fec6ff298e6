"""Errors for programs over HTTP, as problem documents (RFC 9457)."""

from __future__ import annotations

from typing import NamedTuple

from fastapi.responses import JSONResponse

from fsd_core.errors import FsdError, NoEquivalent, UnknownName


class ErrorKind(NamedTuple):
    """A kind of error: what stays the same from one answer to the next."""

    status: int
    name: str
    title: str


_KINDS: dict[type[FsdError], ErrorKind] = {
    NoEquivalent: ErrorKind(409, "no-equivalent", "The engine cannot run this setting"),
    UnknownName: ErrorKind(404, "not-found", "There is no such thing"),
}
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
    return JSONResponse(content, kind.status, {"Cache-Control": "no-store"}, "application/problem+json")
