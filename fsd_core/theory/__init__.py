"""What multi-draft speculative decoding can reach, and what its verifiers reach: numbers alone, without torch.

Distributions come in as arrays or tensors of shape [V] or [R,V].
"""

from __future__ import annotations

from fsd_core.theory.optimum import SAMPLINGS, optimal_acceptance
from fsd_core.theory.verifiers import VERIFIERS, acceptance_rate

__all__ = ["SAMPLINGS", "VERIFIERS", "acceptance_rate", "optimal_acceptance"]
