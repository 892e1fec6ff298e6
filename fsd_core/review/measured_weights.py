"""The weights that runs were measured with. A setting only names models of the hub, which may change there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fsd_core.config.model_names import MODELS
from fsd_core.errors import FsdError, UnfitEvidence
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.named_models import named_models
from fsd_core.models.specs import HubModel, PairSpec
from fsd_core.storage.records import same_model, same_weights

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


_HUB_ORIGIN = re.compile(r"https://huggingface\.co/(?P<repo>[\w.-]+/[\w.-]+)/tree/(?P<revision>\w+)")


def weights(runs: Iterable[RunView]) -> dict[str, str]:
    """Return the weights that the runs were measured with, by role (target, draft, head, adapter), and the files
    beside them as ``configuration``. Each is a
    fingerprint and an origin, which includes the commit at the hub. Empty if no run has it recorded.

    Raises ``InvalidSetting`` if two runs differ.
    """
    seen: dict[str, str] = {}
    for run in runs:
        for role, origin in run.weights.items():
            if not same_model(seen.setdefault(role, origin), origin):
                raise UnfitEvidence(
                    f"The runs were measured with different models: the {role} was {seen[role]} and {origin}. Choose "
                    "runs of the same."
                )
    return seen


def certain_weights(runs: Iterable[RunView]) -> dict[str, str]:
    """Like :func:`weights`, for an approval: also raises if a run has no recorded weights.

    A running engine tells none: its setting says which model it was asked for, and where.
    """
    runs = list(runs)
    if unknown := next((run for run in runs if not run.weights and not run.decoding.acceptance.by_endpoint), None):
        raise UnfitEvidence(
            f"The weights with which the run {unknown.label} ({unknown.id[:8]}) was measured were not recorded, so "
            "nobody could tell which models are approved: measure it again with a pair that is loaded by its name."
        )
    return weights(runs)


def by_weights(runs: Iterable[RunView]) -> list[tuple[dict[str, str], list[RunView]]]:
    """Group runs by their measured weights, in order of first appearance. Returns at least one group.

    Runs that have measured nothing yet join the first group.
    """
    runs = list(runs)
    distinct: list[dict[str, str]] = []
    for run in runs:
        if (run.weights or run.metrics) and not any(same_weights(recorded, run.weights) for recorded in distinct):
            distinct.append(run.weights)
    groups: list[tuple[dict[str, str], list[RunView]]] = [(recorded, []) for recorded in distinct or [{}]]
    for run in runs:
        matching = next((group for group in groups if same_weights(group[0], run.weights)), groups[0])
        matching[1].append(run)
    return groups


def hub_model_of(fingerprint_origin: str) -> HubModel | None:
    """Return the hub name and commit in a recorded origin, or ``None`` if the model came from elsewhere."""
    match = _HUB_ORIGIN.fullmatch(fingerprint_origin.partition(" ")[2])
    return HubModel(match["repo"], match["revision"]) if match else None


def pinned(pair: str, weights: Mapping[str, str]) -> PairSpec | None:
    """Return a pair with its hub models at the measured commits, or ``None`` for an unknown pair. Folders that it names
    one by one may be on another machine."""
    try:
        spec = named_models(pair, here=False) if pair.startswith(MODELS) else get_pair(pair)
    except FsdError:
        return None
    for role in ("target", "draft", "head"):
        measured = hub_model_of(weights.get(role, ""))
        if measured is not None and isinstance(getattr(spec, role), HubModel):
            changed: dict[str, Any] = {role: measured}
            spec = replace(spec, **changed)
    return spec


def pinned_name(pair: str, weights: Mapping[str, str]) -> str:
    """Return the name by which ``load_pair`` loads the measured weights: the pair's own, or its commits at the hub."""
    spec = pinned(pair, weights)
    models = (
        [] if spec is None or spec.adapter else [("target", spec.target), ("draft", spec.draft), ("head", spec.head)]
    )
    parts = [
        f"{model.repo}@{model.revision}"
        for role, model in models
        if isinstance(model, HubModel) and hub_model_of(weights.get(role, ""))
    ]
    complete = len(parts) == sum(model is not None for _, model in models)
    return f"hub:{'+'.join(parts)}" if parts and complete else pair
