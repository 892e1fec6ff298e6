"""Logging of the worker process."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path


def log_to(path: Path) -> None:
    """Send the process's log to stderr and to rotating files of at most 4 MB in total."""
    file = logging.handlers.RotatingFileHandler(path, maxBytes=1_000_000, backupCount=3, encoding="utf-8")
    screen = logging.StreamHandler()
    if not sys.stderr.isatty():  # stderr is a file of the supervisor, for output that the log misses
        screen.setLevel(logging.WARNING)
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[file, screen], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs every check of the schema
