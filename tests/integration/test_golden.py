"""What earlier versions wrote is read by this one: settings and their hashes, and a whole database.

``tests/golden`` was written by commit e8ad2da: settings over every rule, divergence, drafter and shape with their
hashes and labels, and the database of a sweep and two runs, as SQL. Labels name top-k, top-p and min-p
since then.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dashboard.compare.compared_runs import compare
from dashboard.tables.run_record import settings_table
from fsd_core.config import RunConfig, SettingConfig, SweepConfig, content_hash
from fsd_core.settings import sqlite_url
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository

GOLDEN = Path(__file__).parents[1] / "golden"
KNOWN: dict[str, Any] = json.loads((GOLDEN / "settings.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("known", KNOWN["settings"], ids=lambda known: f"{known['label']} {known['id'][:4]}")
def test_a_setting_keeps_its_hash_and_its_label(known: dict[str, Any]) -> None:
    setting = SettingConfig.model_validate(known["setting"])
    assert setting.as_json() == known["setting"]
    assert setting.id == known["id"]
    assert content_hash(RunConfig(setting=setting, limit=7, seed=3)) == known["run"]
    assert (setting.decoding.label, setting.decoding.family("0 to 1")) == (known["label"], known["family"])


def test_an_experiment_keeps_its_hash_and_its_runs() -> None:
    sweep = SweepConfig.model_validate(KNOWN["sweep"]["config"])
    assert content_hash(sweep) == KNOWN["sweep"]["hash"]
    assert [content_hash(run) for run in sweep.runs()] == KNOWN["sweep"]["runs"]


def test_a_database_of_an_earlier_version_is_opened_and_compared(tmp_path: Path) -> None:
    file = tmp_path / "fsd.db"
    with sqlite3.connect(file) as old:
        old.executescript((GOLDEN / "database.sql").read_text(encoding="utf-8"))
    old.close()
    upgrade(sqlite_url(file))
    repository = Repository(open_database(sqlite_url(file)))
    runs = repository.runs(limit=10)
    labels = sorted(run.label for run in runs)
    assert labels == [
        "FSD reducible · js off · γ 5", "FSD reducible · js ≤ 0.1 · γ 5", "FSD · top-k-kl ≤ 0.3 · tree 60 · γ 6",
        "SD · γ 5", "SpecHub · 2 drafts · γ 5 · t 1", "Target alone",
    ]  # fmt: skip
    for run in runs:
        assert run.decoding.label == run.label
        assert SettingConfig(pair=run.pair, decoding=run.decoding).id == run.setting_id
        assert run.status == "finished"
        generations = repository.generations(run.id)
        traces = dict(repository.traces(run.id))
        for generation in generations:
            assert sum(len(step.emitted) for step in traces[generation.position]) == generation.tokens > 0
    compared = compare(repository, [run.id for run in runs], None)
    assert len(compared.rows) == len(runs)
    assert len(settings_table(runs, differences_only=False).rows) == len(runs)
    (experiment,) = repository.experiments(limit=5, offset=0)
    assert (experiment.name, len(experiment.runs)) == ("Golden sweep", 4)
