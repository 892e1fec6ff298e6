"""Where the worker's process logs to."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path


def log_to(path: Path) -> None:
    """Sends the process's log to a rotating file of at most 4 MB, and to stderr."""
    file = logging.handlers.RotatingFileHandler(path, maxBytes=1_000_000, backupCount=3, encoding="utf-8")
    screen = logging.StreamHandler()
    if not sys.stderr.isatty():  # a file that the supervisor keeps, for what the log cannot hold
        screen.setLevel(logging.WARNING)
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[file, screen], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # tells of every look at the schema
