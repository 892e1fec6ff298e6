"""What runs were measured with. A setting names its pair, whose models may change where they are hosted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.specs import HubModel, PairSpec
from fsd_core.storage.records import same_weights

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


_OF_THE_HUB = re.compile(r"https://huggingface\.co/(?P<repo>[\w.-]+/[\w.-]+)/tree/(?P<revision>\w+)")


def weights(runs: Iterable[RunView]) -> dict[str, str]:
    """By role (target, draft, head, adapter) what the runs were measured with: a fingerprint of the weights and where
    they came from, with the commit at the hub. Empty where none of them has it recorded.

    Raises ``InvalidSetting`` where two runs differ in it.
    """
    known: dict[str, str] = {}
    for run in runs:
        for role, told in run.weights.items():
            if known.setdefault(role, told) != told:
                raise InvalidSetting(
                    f"The runs were measured with different weights of the {role} ({known[role]} and {told}): choose "
                    "runs of the same."
                )
    return known


def certain_weights(runs: Iterable[RunView]) -> dict[str, str]:
    """As :func:`weights`, for what is to be approved: it also raises where a run does not have it recorded."""
    runs = list(runs)
    if unknown := next((run for run in runs if not run.weights), None):
        raise InvalidSetting(
            f"The weights with which the run {unknown.label} ({unknown.id[:8]}) was measured were not recorded, so "
            "nobody could tell which models are approved: measure it again with a pair that is loaded by its name."
        )
    return weights(runs)


def by_weights(runs: Iterable[RunView]) -> list[tuple[dict[str, str], list[RunView]]]:
    """Runs apart by what they were measured with, in the order in which each came first; one group at least.

    What has measured nothing yet is with the first.
    """
    runs = list(runs)
    known: list[dict[str, str]] = []
    for run in runs:
        if (run.weights or run.metrics) and not any(same_weights(one, run.weights) for one in known):
            known.append(run.weights)
    groups: list[tuple[dict[str, str], list[RunView]]] = [(one, []) for one in known or [{}]]
    for run in runs:
        of = next((group for group in groups if same_weights(group[0], run.weights)), groups[0])
        of[1].append(run)
    return groups


def hub_model_of(told: str) -> HubModel | None:
    """Of what is recorded of a model, its name and commit at the hub; ``None`` where it came from elsewhere."""
    found = _OF_THE_HUB.fullmatch(told.partition(" ")[2])
    return HubModel(found["repo"], found["revision"]) if found else None


def pinned(pair: str, weights: Mapping[str, str]) -> PairSpec | None:
    """A pair with its models of the hub at the commits that were measured; ``None`` for one that is not known here."""
    try:
        spec = get_pair(pair)
    except FsdError:
        return None
    for role in ("target", "draft", "head"):
        measured = hub_model_of(weights.get(role, ""))
        if measured is not None and isinstance(getattr(spec, role), HubModel):
            spec = replace(spec, **{role: measured})
    return spec


def pinned_name(pair: str, weights: Mapping[str, str]) -> str:
    """The name by which ``load_pair`` gets what was measured: that of the pair, or of its commits at the hub."""
    spec = pinned(pair, weights)
    models = (
        [] if spec is None or spec.adapter else [("target", spec.target), ("draft", spec.draft), ("head", spec.head)]
    )
    parts = [
        f"{model.repo}@{model.revision}"
        for role, model in models
        if isinstance(model, HubModel) and hub_model_of(weights.get(role, ""))
    ]
    whole = len(parts) == sum(model is not None for _, model in models)
    return f"hub:{'+'.join(parts)}" if parts and whole else pair
