"""In which shape. A topology is a class in a file of its own, and a name in the table below."""

from __future__ import annotations

from fsd_core.config import DecodingConfig
from fsd_core.errors import UnknownName
from fsd_core.topologies.base import DraftTopology, DraftTree, TreeStructure, VerifiedAs
from fsd_core.topologies.chain import Chain
from fsd_core.topologies.dynamic_tree import DynamicTree
from fsd_core.topologies.multi_draft import MultiDraft

__all__ = ["TOPOLOGIES", "DraftTopology", "DraftTree", "TreeStructure", "VerifiedAs", "make_topology"]

TOPOLOGIES: dict[str, type[DraftTopology]] = {topology.kind: topology for topology in (Chain, MultiDraft, DynamicTree)}
"""the classes by the ``kind`` of their configurations"""


def make_topology(kind: str, config: DecodingConfig) -> DraftTopology:
    """The topology of that kind for a method. Raises ``UnknownName``."""
    if kind not in TOPOLOGIES:
        raise UnknownName(f"There is no topology '{kind}': expected one of {', '.join(TOPOLOGIES)}.")
    return TOPOLOGIES[kind].for_method(config)
