"""Work of the command line, seen from the pages."""

from __future__ import annotations

from pathlib import Path

from dashboard.experiments.experiments_page import experiments_html
from dashboard.ui.components import perform
from fsd_core import system
from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.roles import LOCAL
from fsd_core.storage.repository import Repository
from fsd_core.worker.run_actions import exclusive_writing, with_actual_status, with_actual_statuses


def test_what_a_process_left_is_stopped_and_can_be_gone_on_with_or_deleted(repository: Repository, home: Path) -> None:
    id = repository.create_experiment(SweepConfig(name="Alone", decodings=(DecodingConfig(),)), enqueue=False)
    repository.start_run(repository.experiment(id).runs[0].id, {})

    def card() -> tuple[str, str]:
        seen = with_actual_status(repository.experiment(id), home)
        return seen.status, experiments_html([seen], {})

    status, html = card()  # of a process elsewhere, as far as anybody knows
    assert status == "running"
    assert 'data-act="resume"' not in html
    with exclusive_writing(repository, home, "experiment", id):
        assert card()[0] == "running"
    (home / "runs" / f"{id}.lock").touch()  # as a kill leaves it
    status, html = card()
    assert status == "stopped"
    runs = repository.experiment(id).runs
    assert [run.status for run in with_actual_statuses(repository, runs, home)] == ["stopped"]
    for act in ("resume", "archive", "delete"):
        assert f'data-act="{act}"' in html
    assert perform(repository, home, LOCAL, "resume", "experiment", id) == "Alone continues at its next prompt."
    assert with_actual_status(repository.experiment(id), home).status == "queued"
    assert system.holder(home / "runs" / f"{id}.lock") is None
