"""Answers of routes that give files: the file, or why there is none, as a sentence."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Response
from fastapi.responses import PlainTextResponse

from fsd_core.errors import DatabaseUnavailable, FsdError, UnknownName


def answered(answer: Callable[[], Response], otherwise: int) -> Response:
    """Return an answer, or the sentence of its error: with 404 for what is not there, 503 for a database that does not
    answer, and the status ``otherwise`` for any other."""
    try:
        return answer()
    except UnknownName as error:
        return PlainTextResponse(str(error), 404)
    except DatabaseUnavailable as error:
        return PlainTextResponse(str(error), 503)
    except FsdError as error:
        return PlainTextResponse(str(error), otherwise)
