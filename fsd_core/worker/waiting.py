"""What the pages say about waiting."""

from __future__ import annotations

from fsd_core.storage.records import ExperimentView


def time_left(experiment: ExperimentView) -> float | None:
    """Seconds of work that an experiment still has; ``None`` until one prompt is done.

    Its runs take turns prompt by prompt, so the prompts done are a fair sample of those to come.
    """
    left = sum(run.prompts_total - run.prompts_done for run in experiment.runs if not run.ended)
    if not left:
        return 0.0
    return left * experiment.decoding_seconds / experiment.prompts_done if experiment.prompts_done else None
