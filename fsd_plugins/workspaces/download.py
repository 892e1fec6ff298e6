"""The file in the browser: its address, the link to it, and what visitors of a Space read of it."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse
from starlette.background import BackgroundTask

from fsd_core.accounts import person_in
from fsd_core.errors import FsdError, Refused
from fsd_core.roles import NOBODY, Person, require
from fsd_plugins.workspaces.exporting import export

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


def links(person: Person) -> list[tuple[str, str]]:
    """Return the link to the file, or nothing for people who would be refused."""
    return [("export/workspace.zip", "Export everything")] if person.may("admin") else []


def note(settings: Settings) -> str:
    """Return how work outlives a Space that forgets it."""
    return "An admin takes all of it along as one file, on the page Runs." if settings.is_ephemeral else ""


def routes(repository: Repository, settings: Settings) -> APIRouter:
    """Return the route ``GET /export/workspace.zip``. It needs the role admin, because it holds what everybody
    wrote."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/workspace.zip")
    def workspace(request: Request) -> Response:
        folder = None
        try:
            require(person_in(request.scope) or NOBODY, "admin", "Exporting the workspace")
            # Deleted after it was sent, whether it arrives or not.
            folder = tempfile.TemporaryDirectory(prefix=".export-", dir=settings.home, ignore_cleanup_errors=True)
            path = Path(folder.name) / "workspace.zip"
            export(settings.resolved_database_url, path, settings.home)
        except Refused as error:
            return PlainTextResponse(str(error), 403)
        except FsdError as error:
            if folder is not None:
                folder.cleanup()
            return PlainTextResponse(str(error), 503)
        name = f"fsd-lab-{datetime.now(UTC):%Y-%m-%d}.zip"
        return FileResponse(
            path, media_type="application/zip", filename=name, background=BackgroundTask(folder.cleanup)
        )

    return router
