"""Distributions to try, and a test whether tokens follow one."""

from __future__ import annotations

import torch
from scipy.stats import chisquare
from torch import Tensor

P = torch.tensor([0.30, 0.25, 0.15, 0.12, 0.08, 0.05, 0.05, 0.00])
Q_NEAR = torch.tensor([0.25, 0.30, 0.17, 0.10, 0.08, 0.05, 0.05, 0.00])
Q_FAR = torch.tensor([0.05, 0.05, 0.10, 0.10, 0.20, 0.20, 0.00, 0.30])


def require(holds: bool, sentence: str) -> None:
    """Raise ``AssertionError`` with the sentence unless it holds."""
    if not holds:
        raise AssertionError(sentence)


def fit(emitted: Tensor, distribution: Tensor) -> float:
    """Return the p-value of a χ² test that ``emitted`` [N] follows ``distribution`` [V]; 0 with impossible tokens."""
    counts = torch.bincount(emitted, minlength=distribution.numel()).double()
    possible = distribution > 0
    if counts[~possible].any():
        return 0.0
    if possible.sum() == 1:
        return 1.0
    expected = distribution[possible].double() / distribution.double().sum() * counts.sum()
    return float(chisquare(counts[possible].numpy(), expected.numpy()).pvalue)
