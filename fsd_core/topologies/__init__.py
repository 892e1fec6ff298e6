"""The code of the topologies, named by their settings (``fsd_core.config.drafting``)."""

from fsd_core.topologies.base import DraftTopology, DraftTree, TreeStructure

__all__ = ["DraftTopology", "DraftTree", "TreeStructure"]
