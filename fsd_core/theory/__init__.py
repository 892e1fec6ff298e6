"""Limits of multi-draft speculative decoding, computed without torch.

Distributions are arrays or tensors of shape [V] or [R,V]. :func:`fsd_core.rules.rates.acceptance_rate` computes what
verifiers reach. numpy is imported on first use, because the rules import this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsd_core.theory.samplings import DRAFT_SAMPLINGS, DraftSampling

if TYPE_CHECKING:
    from fsd_core.theory.optimum import optimal_acceptance

__all__ = ["DRAFT_SAMPLINGS", "DraftSampling", "optimal_acceptance"]


def __getattr__(name: str) -> Any:
    if name != "optimal_acceptance":
        raise AttributeError(f"module 'fsd_core.theory' has no attribute '{name}'")
    from fsd_core.theory.optimum import optimal_acceptance

    return optimal_acceptance
