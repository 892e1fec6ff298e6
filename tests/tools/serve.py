"""Serves the pages of one home, without a worker: ``python -m tests.tools.serve PORT``, with FSD_HOME set."""

from __future__ import annotations

import sys

import uvicorn

from dashboard.web import build_app
from fsd_core.asgi.logs import bound_log_lines
from fsd_core.settings import get_settings
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.database.session import open_database


def serve(port: int) -> None:
    """Serves until it is ended."""
    bound_log_lines()
    settings = get_settings()
    repository = Repository(open_database(settings.resolved_database_url))
    uvicorn.run(build_app(repository, settings), port=port, log_level="warning")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
