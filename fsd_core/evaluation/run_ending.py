"""The end of a run: its metrics, and the comparison with the target alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from fsd_core.engines.engine_counters import engine_figures
from fsd_core.errors import DataDamaged, FsdError
from fsd_core.evaluation.aggregate import published_figures, summarise
from fsd_core.evaluation.fidelity import ComparedText, fidelity, text_fidelity
from fsd_core.evaluation.run_costs import cost_figures
from fsd_core.evaluation.served_runs import readings_of, served_by
from fsd_core.evaluation.versus import versus_target
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.records import GenerationView, RunView
from fsd_core.tasks import TASKS


def target_alone(run: RunView, runs: Sequence[RunView]) -> str | None:
    """Return the id of another run here in which the target alone answered the same prompts with the same sampling.

    Return ``None`` also for a draft alone, which never uses the target.
    """

    def comparison_key(run: RunView) -> tuple:
        return run.pair, run.task, run.seed, run.decoding.shared

    if run.decoding.acceptance.kind == "draft-only":
        return None
    candidates = [other for other in runs if other.decoding.acceptance.kind == "autoregressive"]
    candidates.sort(key=lambda other: other.config.load != run.config.load)  # its speed is compared as well
    baseline_id = next((other.id for other in candidates if comparison_key(other) == comparison_key(run)), None)
    return None if baseline_id == run.id else baseline_id


def finish(
    repository: Repository, run: RunView, baseline_id: str | None, texts: Callable[[str], dict[int, ComparedText]]
) -> None:
    """Write a run's metrics and end it. Raises ``FsdError`` if every prompt failed.

    ``baseline_id``: the run of the target alone that it is compared with. ``texts`` returns what that wrote.
    """
    if run.ended:
        return
    generations = repository.generations(run.id)
    if all(g.outcome == "failed" for g in generations):
        raise FsdError(f"Every prompt of the run failed. The first error: {generations[0].error}")
    figures = _summary(repository, run.id, generations)
    if baseline_id is not None:
        alone, greedy = repository.generations(baseline_id), run.decoding.sampling.greedy
        figures |= versus_target(generations, alone)
        groups = {g.position: g.group for g in generations if g.group}
        figures |= (
            text_fidelity(_whole_texts(generations), _whole_texts(alone), greedy=greedy, groups=groups)
            if served_by(run)
            else fidelity(written_texts(repository, run.id), texts(baseline_id), greedy=greedy, groups=groups)
        )
    repository.finish_run(run.id, figures)


def written_texts(repository: Repository, run_id: str) -> dict[int, ComparedText]:
    """Return the written texts, by position, without the prompts that failed. All turns of a conversation are one text,
    at the position of the first. A conversation with a failed turn is left out."""
    generations = {g.position: g for g in repository.generations(run_id)}
    failed = {g.position - g.turn for g in generations.values() if g.outcome == "failed"}
    texts: dict[int, ComparedText] = {}
    for position, records in repository.traces(run_id):
        generation = generations[position]
        first, tokens = position - generation.turn, [token for record in records for token in record.emitted]
        if first in failed:
            continue
        before = texts.get(first, ComparedText([], 0.0))
        nats = before.negative_log_likelihood + generation.negative_log_likelihood
        texts[first] = ComparedText([*before.tokens, *tokens], nats)
    return texts


def _whole_texts(generations: Sequence[GenerationView]) -> dict[int, str]:
    """Return the texts as :func:`written_texts` does, by their characters."""
    failed = {g.position - g.turn for g in generations if g.outcome == "failed"}
    texts: dict[int, str] = {}
    for g in generations:
        if (first := g.position - g.turn) not in failed:
            texts[first] = texts.get(first, "") + g.text
    return texts


def figures_so_far(repository: Repository, run_id: str) -> dict[str, Any] | None:
    """Return the metrics of a run so far, or ``None`` if nothing is done or it cannot be read."""
    generations = repository.generations(run_id)
    with suppress(DataDamaged):
        return _summary(repository, run_id, generations) if generations else None


def _summary(repository: Repository, run_id: str, generations: Sequence[GenerationView]) -> dict[str, Any]:
    """Return the metrics of a run's prompts, those that an engine's counters give, and what it cost."""
    run = repository.run(run_id)
    figures = summarise(generations, _records(repository, run_id)) | engine_figures(readings_of(repository, run_id))
    if run.task in TASKS:
        figures |= published_figures(TASKS[run.task].of_model(run.provenance), generations)
    return figures | cost_figures(generations, run.price_per_hour)


def _records(repository: Repository, run_id: str) -> Iterator[list]:
    return (records for _, records in repository.traces(run_id))
