"""Distributions to try, and whether tokens are of one."""

from __future__ import annotations

import torch
from scipy.stats import chisquare
from torch import Tensor

P = torch.tensor([0.30, 0.25, 0.15, 0.12, 0.08, 0.05, 0.05, 0.00])
Q_NEAR = torch.tensor([0.25, 0.30, 0.17, 0.10, 0.08, 0.05, 0.05, 0.00])
Q_FAR = torch.tensor([0.05, 0.05, 0.10, 0.10, 0.20, 0.20, 0.00, 0.30])


def require(holds: bool, sentence: str) -> None:
    """Raises ``AssertionError`` with the sentence unless it holds."""
    if not holds:
        raise AssertionError(sentence)


def fit(emitted: Tensor, distribution: Tensor) -> float:
    """p-value of a χ² test that ``emitted`` [N] was drawn from ``distribution`` [V]; 0 if it has impossible tokens."""
    counts = torch.bincount(emitted, minlength=distribution.numel()).double()
    possible = distribution > 0
    if counts[~possible].any():
        return 0.0
    if possible.sum() == 1:
        return 1.0
    expected = distribution[possible].double() / distribution.double().sum() * counts.sum()
    return float(chisquare(counts[possible].numpy(), expected.numpy()).pvalue)
