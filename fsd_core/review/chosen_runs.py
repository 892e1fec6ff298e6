"""Validation of the runs that a proposal rests on, and their common setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsd_core.errors import UnfitEvidence, UnknownName
from fsd_core.review.measured_weights import certain_weights
from fsd_core.review.pooling import on_fresh_prompts

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView


def setting_of(repository: Repository, runs: Sequence[str], baselines: Sequence[str]) -> str:
    """Return the setting of the runs. Raises ``InvalidSetting`` for runs that cannot be evidence."""
    if not runs or not baselines:
        raise UnfitEvidence("A proposal rests on measured runs: choose at least one, and one baseline.")
    by_id = {run.id: run for run in repository.runs([*runs, *baselines], limit=None)}
    if unknown := [id for id in (*runs, *baselines) if id not in by_id]:
        raise UnknownName(f"There is no run '{unknown[0][:32]}': it was deleted.")
    if unmeasured := [run for run in by_id.values() if not run.metrics]:
        raise UnfitEvidence(f"The run {_name(unmeasured[0])} has no figures yet: wait for its end.")
    if elsewhere := [run for run in by_id.values() if run.measured_elsewhere]:
        raise UnfitEvidence(
            f"The figures of {_name(elsewhere[0])} were measured elsewhere, and nothing here can verify them: choose "
            "runs that were measured here."
        )
    settings = {by_id[id].setting_id for id in runs}
    if len(settings) > 1:
        raise UnfitEvidence("These runs are of several settings: propose one of them.")
    (setting,) = settings
    fresh = {run.id for run in on_fresh_prompts(repository, (by_id[id] for id in runs))}
    if choosing := [by_id[id] for id in runs if id not in fresh]:
        raise UnfitEvidence(
            f"The run {_name(choosing[0])} helped to choose the setting in its calibration, so it says too much of it: "
            "choose runs on fresh prompts."
        )
    if any(by_id[id].setting_id == setting for id in baselines):
        raise UnfitEvidence("A baseline is of another setting than the one proposed: choose the target alone or SD.")
    if len({run.pair for run in by_id.values()}) > 1:
        raise UnfitEvidence("The runs and the baseline are of different pairs: choose runs of one pair.")
    certain_weights(by_id.values())
    return setting


def _name(run: RunView) -> str:
    return f"{run.label} ({run.id[:8]})"
