"""Several candidates per position: chains side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from fsd_core.ops.rows import DraftRow
from fsd_core.ops.sampling import draw, draw_several, greedy_law, likeliest
from fsd_core.topologies.base import DraftTree, Source


class MultiDraft:
    """``width`` chains for a text that stands alone in its batch. Their first tokens come about together, as
    ``sampling`` says; then each goes on by itself.

    Hu et al. 2025 (arXiv 2502.18779). Chains that begin alike are told apart nowhere: together they are as many drafts
    of the position behind what they share.
    """

    def __init__(self, length: int, drafts: int, sampling: str) -> None:
        self.length, self.width, self._sampling = length, drafts, sampling

    def grow(self, first: DraftRow | None, source: Source, depth: int, uniforms: Tensor, greedy: bool) -> DraftTree:
        assert first is not None
        levels = uniforms.view(1, depth, self.width)
        tokens = self._first(first, levels[:, 0], greedy)  # [1,n]
        law = greedy_law(first.warped, self.width) if self._sampling == "greedy" else first.warped
        drawn, valid = [tokens.clamp_min(0)], [tokens >= 0]
        warped, raw = [law.expand(self.width, -1)], [first.raw.expand(self.width, -1)]
        for level in range(1, depth):
            row = source.extend_level(drawn[-1])
            drawn.append((row.warped.argmax(-1) if greedy else draw(row.warped, levels[0, level]))[None])
            valid.append(valid[0])
            warped.append(row.warped)
            raw.append(row.raw)
        return DraftTree(
            tokens=torch.cat(drawn, 1),
            parents=tuple(range(-self.width, (depth - 1) * self.width)),
            warped=torch.cat(warped)[None],
            raw=torch.cat(raw)[None],
            valid=torch.cat(valid, 1),
            width=self.width,
        )

    def _first(self, first: DraftRow, uniforms: Tensor, greedy: bool) -> Tensor:
        """int64 [1,n], −1 where nothing is left to draw."""
        if not greedy:
            return draw_several(first.warped, uniforms, self._sampling)
        if self._sampling == "with_replacement":
            return first.raw.argmax(-1, keepdim=True).expand(-1, self.width)
        return likeliest(first.raw, self.width)
