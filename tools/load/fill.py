"""A large database of 301 runs: ``python -m tools.load.fill FOLDER --experiments 43 --prompts 200``."""

from __future__ import annotations

import argparse
from pathlib import Path

from sqlalchemy import func, insert, select, update

from fsd_core.decoding.trace import pack_rounds
from fsd_core.evaluation.aggregate import summarise
from fsd_core.storage.records import GenerationRecord, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import GenerationRow, RunRow, TraceRow
from fsd_plugins.training import generators
from tests.tools import plausible


def fill(repository: Repository, experiments: int, prompts: int) -> None:
    """Finished experiments of seven runs each."""
    problems = generators.held_out_long(prompts)
    for number in range(experiments):
        sweep = plausible.sweep(f"Series {number}", limit=prompts, seeds=(number,))
        id = repository.create_experiment(sweep, enqueue=False)
        for run in repository.experiment(id).runs:
            repository.start_run(run.id, plausible.PROVENANCE)
            generations = [plausible.generation(run, i, problem) for i, problem in enumerate(problems)]
            _record(repository, run, generations)
            repository.finish_run(run.id, summarise(generations, (g.records for g in generations)))


def _record(repository: Repository, run: RunView, generations: list[GenerationRecord]) -> None:
    """As ``record_generation`` writes them, in one transaction instead of one each."""
    with repository._database.session() as session:
        first = 1 + (session.scalar(select(func.max(GenerationRow.id))) or 0)
        rows = [{"id": i, "run_id": run.id, **g.columns()} for i, g in enumerate(generations, first)]
        traces = [dict(zip(("data", "sha256"), pack_rounds(g.records), strict=True)) for g in generations]
        session.execute(insert(GenerationRow), rows)
        session.execute(insert(TraceRow), [{"generation_id": i, **trace} for i, trace in enumerate(traces, first)])
        done = {"prompts_done": len(generations), "decoding_seconds": sum(g.seconds for g in generations)}
        session.execute(update(RunRow).where(RunRow.id == run.id).values(done))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="becomes the FSD_HOME of the database")
    parser.add_argument("--experiments", type=int, default=43)
    parser.add_argument("--prompts", type=int, default=200)
    arguments = parser.parse_args()
    repository = plausible.new_repository(arguments.folder)
    fill(repository, arguments.experiments, arguments.prompts)
    print(f"{repository.count_runs()} runs in {arguments.folder / 'fsd.db'}")
