"""In which shape: one class per topology, made from its configuration by :func:`make_topology`."""

from __future__ import annotations

from fsd_core.config import DynamicTreeTopology, MultiDraftTopology, TopologyConfig
from fsd_core.topologies.base import DraftTopology, DraftTree, Shape
from fsd_core.topologies.chain import Chain
from fsd_core.topologies.dynamic_tree import DynamicTree
from fsd_core.topologies.multi_draft import MultiDraft

__all__ = ["DraftTopology", "DraftTree", "Shape", "make_topology"]


def make_topology(config: TopologyConfig, sampling: str = "") -> DraftTopology:
    """The topology that a configuration names. ``sampling``: how several drafts come about, as their verifier asks."""
    if isinstance(config, MultiDraftTopology):
        return MultiDraft(config.length, config.drafts, sampling)
    if isinstance(config, DynamicTreeTopology):
        return DynamicTree(config.length, config.top_k, config.total_tokens)
    return Chain(config.length)
