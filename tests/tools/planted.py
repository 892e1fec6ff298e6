"""Text that would be a program if a page took it for anything but text, planted in every column that holds text."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from sqlalchemy import String, select, update

from dashboard.compare.compared_runs import compare
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.catalogue import LONGEST_VIEW_NAME, VIEW_PAGES
from fsd_core.storage.messages import Chunk, EmittedToken, PlaygroundJob, StreamFigures
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import Base, MeasurementSessionRow, RunRow
from fsd_core.tasks.custom.custom_task import CustomTask, keep
from fsd_core.tasks.custom.reading import check
from fsd_plugins.reports.section import PARTS, frozen_comparison
from tests.tools.every_page import EVERY_TAB
from tests.tools.plausible import add_finished

SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    f"\"'>{SCRIPT}<img src=x onerror=alert(2)><svg onload=alert(3)></svg><a href='javascript:alert(4)'>x</a>"
    "[x](javascript:alert(5)) ${alert(6)} {{alert(7)}} `alert(8)` \\input{x}</textarea></style></title>"
)
NAME = HOSTILE[:100]
PLANTED = "img[src='x'], svg[onload], a[href^='javascript:'], script:text-is('alert(1)')"
"""what a browser would make of it, as a selector"""

# Columns whose words the program chooses itself, and columns that a hash or a key ties to others.
CHOSEN = {
    "kind", "status", "outcome", "stop_reason", "acceptance", "role", "pair", "task", "claim_token", "sha256", "digest",
    "password", "mlflow_run_id",
}  # fmt: skip
UNCHANGED = {"review_log", "users", "sign_ins", "api_tokens", "tasks", "reports", "saved_views"}
"""tables of which the log is filled act by act, and the others by a name, or a title, that is hostile itself"""


def plant(repository: Repository) -> dict[str, str]:
    """Fills the database, and every text in it. Returns what the addresses need."""
    experiment = add_finished(repository, HOSTILE)
    runs = repository.experiment(experiment).runs
    ann, bob = Person(NAME, "author"), Person(f"{NAME[:-1]}!", "admin")
    service = ReviewService(repository)
    use = service.describe(ann, NAME, HOSTILE, Requirements(margin=20)).id
    proposal = service.propose(ann, use, [runs[3].id], [runs[0].id], HOSTILE, Requirements(margin=20))
    service.comment(ann, service.review(proposal), HOSTILE, position=1)
    service.waive(bob, service.review(proposal), "margin", HOSTILE)
    review = service.review(proposal)
    service.submit_review(bob, review, "approve", HOSTILE, review.use.sequence)
    asked = PlaygroundJob.of("bundled", HOSTILE, 0, [run.decoding for run in runs[2:4]], NAME)
    job = repository.enqueue(asked)
    mine = CustomTask.of("mine", check(json.dumps({"prompt": HOSTILE}).encode()), HOSTILE)
    keep(repository, mine, NAME)
    repository.append_chunks(job, [_chunk(0, [HOSTILE, *HOSTILE]), _chunk(1, [], error=HOSTILE)])
    claimed = repository.claim(("playground",), 60)
    assert claimed is not None
    assert claimed.claim_token is not None
    repository.finish_job(job, claimed.claim_token, "finished")
    comparison = compare(repository, [run.id for run in runs], None)
    report = job[::-1]
    repository.add_report(report, frozen_comparison(comparison, HOSTILE[:200], HOSTILE, list(PARTS)), NAME)
    for page in VIEW_PAGES:
        repository.save_view(page.ljust(32, "0"), page, NAME[:LONGEST_VIEW_NAME], f"runs={quote(HOSTILE)}", bob)
    repository.report_worker(1, HOSTILE, HOSTILE, HOSTILE)
    with repository._database.session() as session:
        for table in Base.metadata.sorted_tables:
            texts = {
                column.name: HOSTILE
                for column in table.columns
                if isinstance(column.type, String) and not (column.primary_key or column.foreign_keys or column.unique)
            }
            texts = {name: text for name, text in texts.items() if name not in CHOSEN}
            if texts and table.name not in UNCHANGED:
                session.execute(update(table).values(texts))
        for run in session.scalars(select(RunRow)):
            run.provenance = _hostile(run.provenance)
        for sitting in session.scalars(select(MeasurementSessionRow)):
            sitting.conditions = _hostile(sitting.conditions)
    return {"run": runs[3].id, "first": runs[0].id, "setting": runs[3].setting_id, "use": use, "proposal": proposal,
            "job": job, "report": report}  # fmt: skip


def _hostile(told: dict[str, Any] | None) -> dict[str, Any]:
    new = {name: HOSTILE if isinstance(value, str) else value for name, value in (told or {}).items()}
    return {name: _hostile(value) if isinstance(value, dict) else value for name, value in new.items()}


def _chunk(setting: int, texts: list[str], error: str | None = None) -> Chunk:
    tokens = tuple(
        EmittedToken(text, ord(text[-1]), "correction", 0.1, 0.5, 0.75, 0.6, rejected=SCRIPT) for text in texts
    )
    figures = StreamFigures(len(tokens), 2, 0.1, 100.0 + 31 * setting, 0.8, 3.0)
    return Chunk(setting, tokens, figures, True, "eos", error)


# Address, and whether planted text is to be seen there: a door that shows none would prove nothing.
DOORS = {
    "playground": True,
    "experiments": True,
    **{"compare?runs={first},{run}&baseline={first}" + tab: True for tab in EVERY_TAB},
    "runs": True,
    "runs?search=" + quote(HOSTILE): True,
    "runs?run={run}": True,
    "runs?run={run}&prompts=wrong": True,
    "settings": True,
    "settings?setting={setting}": True,
    "review": True,
    "review?use={use}": True,
    "review?proposal={proposal}": True,
    "review?propose={setting}": True,
    "reports": True,
    "reports?report={report}": True,
    "reports?report=" + quote(HOSTILE): True,
    "people": True,
    "": True,
    "playground?setting={setting}&prompt=" + quote(HOSTILE): True,
    "theory": True,  # the name of who looks, at least
    "nosuch?" + quote(HOSTILE): False,
    "runs?run=" + quote(HOSTILE): True,
    "review?proposal=" + quote(HOSTILE): True,
    "settings?setting=" + quote(HOSTILE): True,
    "compare?runs=" + quote(HOSTILE): True,
}
