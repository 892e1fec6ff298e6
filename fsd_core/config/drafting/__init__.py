"""Drafters and topologies, one file and one line each. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from fsd_core.config.drafting.base import (
    CopyingDrafter,
    DrafterSettings,
    MissingDrafter,
    MissingTopology,
    TopologySettings,
)
from fsd_core.config.drafting.beams_topology import BeamsTopology
from fsd_core.config.drafting.draft_model import DraftModelDrafter
from fsd_core.config.drafting.eagle import EagleDrafter
from fsd_core.config.drafting.prompt_lookup import PromptLookupDrafter
from fsd_core.config.drafting.recent_acceptance import RecentAcceptance
from fsd_core.config.drafting.search_tree_topology import SearchTreeTopology
from fsd_core.config.drafting.suffix import SuffixDrafter
from fsd_core.config.drafting.topologies import ChainTopology, DynamicTreeTopology, MultiDraftTopology
from fsd_core.config.drafting.trigram import TrigramDrafter
from fsd_core.frozen import kind_of
from fsd_core.plugins import Registry, classes_of

__all__ = [
    "DRAFTERS",
    "TOPOLOGIES",
    "BeamsTopology",
    "ChainTopology",
    "CopyingDrafter",
    "DraftModelDrafter",
    "DrafterConfig",
    "DrafterSettings",
    "DynamicTreeTopology",
    "EagleDrafter",
    "MissingDrafter",
    "MissingTopology",
    "MultiDraftTopology",
    "PromptLookupDrafter",
    "RecentAcceptance",
    "SearchTreeTopology",
    "SuffixDrafter",
    "TopologyConfig",
    "TopologySettings",
    "TrigramDrafter",
]

_DRAFTERS: tuple[type[DrafterSettings], ...] = (
    DraftModelDrafter,
    PromptLookupDrafter,
    SuffixDrafter,
    TrigramDrafter,
    EagleDrafter,
)
_TOPOLOGIES: tuple[type[TopologySettings], ...] = (
    ChainTopology,
    MultiDraftTopology,
    DynamicTreeTopology,
    SearchTreeTopology,
    BeamsTopology,
)

DRAFTERS: Registry[type[DrafterSettings]] = Registry(lambda: _DRAFTERS, kind_of, classes_of(DrafterSettings))
TOPOLOGIES: Registry[type[TopologySettings]] = Registry(lambda: _TOPOLOGIES, kind_of, classes_of(TopologySettings))
"""both by ``kind``, in display order"""


def _drafter(value: Any) -> Any:
    """Return the drafter that ``kind`` names; a ``MissingDrafter`` if its package is not installed."""
    return DRAFTERS.get(str(value.get("kind")), MissingDrafter)(**value) if isinstance(value, dict) else value


def _topology(value: Any) -> Any:
    return TOPOLOGIES.get(str(value.get("kind")), MissingTopology)(**value) if isinstance(value, dict) else value


DrafterConfig = Annotated[SerializeAsAny[DrafterSettings], BeforeValidator(_drafter)]
TopologyConfig = Annotated[SerializeAsAny[TopologySettings], BeforeValidator(_topology)]
