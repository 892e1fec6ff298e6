"""Prompts that depend on each other: turns of one conversation, and prompts of one group.

Intervals take such a cluster in place of the prompt.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from fsd_core.metrics import Generated
from fsd_core.statistics.clusters import numbered
from fsd_core.statistics.ratios import Pairs, summed


def cluster_numbers(generations: Sequence[Generated]) -> np.ndarray:
    """Return the cluster of each generation, from 0. A prompt that stands alone is one of its own. → int [n]

    ``generations`` are in order of position, and some may be missing.
    """
    names: list[Hashable] = []
    conversation, last = -1, 0
    for generation in generations:
        if not names or generation.turn <= last:
            conversation += 1
        last = generation.turn
        names.append(generation.group or conversation)
    return numbered(names)


def by_cluster(pairs: Pairs, generations: Sequence[Generated]) -> Pairs:
    """Return the sums of numerators and of denominators in each cluster."""
    return summed(pairs, cluster_numbers(generations))


def clusters_of(counts: Mapping[int, Generated]) -> dict[int, int]:
    """Return the cluster of each prompt by position. ``counts`` are in order of position."""
    return dict(zip(counts, cluster_numbers(list(counts.values())).tolist(), strict=True))
