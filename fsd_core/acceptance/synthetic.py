"""A rule for timing the loop where the models are not trained, as random weights of a real shape are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fsd_core.acceptance.base import Verdict
from fsd_core.config import Synthetic
from fsd_core.ops.rows import Rows


@dataclass(frozen=True)
class SyntheticRule:
    """Accept with a set probability, whatever was drafted; else a sample from p. Means nothing as text.

    With probability a, a round writes (1 − a^(γ+1)) / (1 − a) tokens on average (Leviathan et al. 2023, equation 1).
    """

    config: Synthetic
    lossless: ClassVar[bool] = False
    judges_bonus: ClassVar[bool] = False
    greedy_draft: ClassVar[bool] = False

    def judge(self, rows: Rows, uniforms: Tensor, noise: Tensor) -> Verdict:
        accepted = uniforms < self.config.probability
        return Verdict(accepted, accepted, torch.zeros_like(rows.of_token(rows.target)))

    def correction(self, row: Rows, divergence: Tensor) -> Tensor:
        return row.target
