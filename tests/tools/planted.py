"""Text that would be a program if a page took it for anything but text, planted in every column that holds text."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from sqlalchemy import String, select, update

from dashboard.compare.compared_runs import compare
from dashboard.compare.report_parts import PARTS, frozen_comparison
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.database.tables import Base, MeasurementSessionRow, RunRow
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.playground_chunks import Chunk, EmittedToken, StreamFigures
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.saved_views import LONGEST_VIEW_NAME, VIEW_PAGES
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.lookup import keep
from fsd_core.tasks.custom.reading import check
from tests.tools.folded import EVERY_FOLD
from tests.tools.plausible import add_finished

