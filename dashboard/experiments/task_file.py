"""The lines of a custom task as a file, in the version that a link names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Response

from dashboard.ui.file_answers import answered

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def task_routes(repository: Repository) -> APIRouter:
    """Return the route ``GET /export/task.jsonl``. ``task=`` names a version, such as ``support@0123456789abcdef``."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/task.jsonl")
    def task_file(task: str = "") -> Response:
        def answer() -> Response:
            name, _, version = task.partition("@")
            content = repository.task_content(name, version)
            # The name of a stored task has only letters, digits and hyphens.
            headers = {"Content-Disposition": f'attachment; filename="{name}-{version}.jsonl"'}
            return Response(content, media_type="application/jsonl", headers=headers)

        return answered(answer, 503)

    return router
