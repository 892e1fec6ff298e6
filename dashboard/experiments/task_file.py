"""The lines of a custom task as a file, in the version that a link names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from fsd_core.errors import FsdError, UnknownName

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def task_routes(repository: Repository) -> APIRouter:
    """Return the route ``GET /export/task.jsonl``. ``task=`` names a version, such as ``support@0123456789abcdef``."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/task.jsonl")
    def task_file(task: str = "") -> Response:
        name, _, version = task.partition("@")
        try:
            content = repository.task_content(name, version)
        except UnknownName as error:
            return PlainTextResponse(str(error), 404)
        except FsdError as error:
            return PlainTextResponse(str(error), 503)
        # The name of a stored task has only letters, digits and hyphens.
        headers = {"Content-Disposition": f'attachment; filename="{name}-{version}.jsonl"'}
        return Response(content, media_type="application/jsonl", headers=headers)

    return router
