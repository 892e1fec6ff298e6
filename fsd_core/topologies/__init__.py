"""In which shape: one class per topology, made from its configuration by :func:`make_topology`."""

from __future__ import annotations

from fsd_core.config import TopologyConfig
from fsd_core.topologies.base import DraftTopology, DraftTree
from fsd_core.topologies.chain import Chain

__all__ = ["DraftTopology", "DraftTree", "make_topology"]


def make_topology(config: TopologyConfig) -> DraftTopology:
    """The topology that a configuration names."""
    return Chain(config.length)
