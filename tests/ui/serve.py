"""Serves the pages of one home, without a worker: ``python -m tests.ui.serve PORT``, with FSD_HOME set."""

from __future__ import annotations

import os
import sys

import uvicorn

from app import POLITENESS
from dashboard.web import build_app
from fsd_core.asgi.logs import bound_log_lines
from fsd_core.settings import get_settings
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.database.session import open_database

if __name__ == "__main__":
    bound_log_lines()
    os.nice(POLITENESS)
    settings = get_settings()
    repository = Repository(open_database(settings.resolved_database_url))
    uvicorn.run(build_app(repository, settings), port=int(sys.argv[1]), log_level="warning")
