"""Artifacts of a run for MLflow, written into a folder."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, fields
from pathlib import Path

from fsd_core.storage.database.repository import Repository
from fsd_core.storage.records import GenerationView, RunView
from fsd_core.tracking.run_page import write_figures

TABLE = "generations.json"


def write_artifacts(folder: Path, repository: Repository, run: RunView) -> list[GenerationView]:
    """Write configuration, metrics, figures, the table of generations and the traces. Returns the generations, whose
    metrics are logged as well."""
    generations = repository.generations(run.id)
    (folder / "config.json").write_text(run.config.model_dump_json(indent=2), encoding="utf-8")
    if run.metrics is not None:
        (folder / "metrics.json").write_text(json.dumps(run.metrics, indent=2), encoding="utf-8")
        write_figures(folder / "figures.html", run.metrics, run.decoding.divergence or "js")
    if generations:
        _write_table(folder / TABLE, generations)
        with gzip.open(folder / "traces.jsonl.gz", "wt", encoding="utf-8") as file:
            for position, records in repository.traces(run.id):
                line = {"position": position, "records": [asdict(record) for record in records]}
                file.write(json.dumps(line) + "\n")
    return generations


def _write_table(path: Path, generations: list[GenerationView]) -> None:
    """Write the format of MLflow's ``log_table``, which itself would append to the table of an earlier copy."""
    internal = ("id", "run_id", "sitting_id", "created_at")  # only meaningful in the database
    names = [field.name for field in fields(GenerationView) if field.name not in internal]
    rows = [[getattr(generation, name) for name in names] for generation in generations]
    path.write_text(json.dumps({"columns": names, "data": rows}), encoding="utf-8")
