"""A ViT, and a ViTTM after Jajal et al. 2025 (arXiv 2409.07613), whose few process tokens do the work of many.

Both classify square images with one channel. ``images`` are [B, S, S], logits [B, C].
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_SMALLEST = 1e-6


class Patches(nn.Module):
    """Square patches of an image as tokens: an embedding of their pixels, and learned positions. [B,S,S] → [B,N,D]"""

    def __init__(self, image: int, tokens: int, width: int) -> None:
        """``tokens`` is a square number whose root divides ``image``. Raises ``ValueError`` for any other."""
        super().__init__()
        side = round(tokens**0.5)
        if tokens < 1 or side * side != tokens or image % side:
            raise ValueError(
                f"{tokens} tokens do not divide an image of {image} x {image}: expected 1, 4, 16 and so on."
            )
        self.patch = image // side
        self.embed = nn.Linear(self.patch**2, width)
        self.positions = nn.Parameter(0.2 * torch.randn(tokens, width))

    def forward(self, images: Tensor) -> Tensor:
        batch = images.shape[0]
        patches = images.unfold(1, self.patch, self.patch).unfold(2, self.patch, self.patch)
        return self.embed(patches.reshape(batch, -1, self.patch**2)) + self.positions


class Block(nn.Module):
    """A usual pre-norm transformer block, [B,N,D] → [B,N,D]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = (split(part, self.heads) for part in self.qkv(self.norm_attention(tokens)).chunk(3, -1))
        tokens = tokens + self.out(joined(F.scaled_dot_product_attention(q, k, v)))
        return tokens + self.mlp(self.norm_mlp(tokens))


class LinearAttention(nn.Module):
    """Reading of tokens by others with linear attention: queries and keys of a quarter of the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(width, width // 4), nn.Linear(width, width // 4), nn.Linear(width, width)

    def forward(self, readers: Tensor, read: Tensor) -> Tensor:
        """Return what ``readers`` [B,R,D] take from ``read`` [B,N,D]: [B,R,D]."""
        parts = self.q(readers), self.k(read), self.v(read)
        return joined(linear_attention(*(split(part, self.heads) for part in parts)))


class ViTTMBlock(nn.Module):
    """Read from memory, a usual block on the process tokens, write to memory. Norms are written back, as published."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_read, self.norm_write = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read, self.write = LinearAttention(width, heads), LinearAttention(width, heads)
        self.block = Block(width, heads)

    def forward(self, process: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        process, memory = self.norm_read(process), self.norm_read(memory)
        process = self.block(process + self.read(process, memory))
        process, memory = self.norm_write(process), self.norm_write(memory)
        return process, memory + self.write(memory, process)


class ViT(nn.Module):
    """The baseline: every token goes through every block."""

    def __init__(self, image: int, classes: int, tokens: int, width: int = 64, heads: int = 4, depth: int = 4) -> None:
        super().__init__()
        self.patches = Patches(image, tokens, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the logits, as a list of one."""
        return [self.head(self.blocks(self.patches(images)).mean(1))]


class ViTTM(nn.Module):
    """``process`` tokens go through the blocks, and read and write ``memory`` tokens there."""

    def __init__(
        self, image: int, classes: int, process: int, memory: int, width: int = 64, heads: int = 4, depth: int = 4
    ) -> None:
        super().__init__()
        self.process, self.memory = Patches(image, process, width), Patches(image, memory, width)
        self.blocks = nn.ModuleList(ViTTMBlock(width, heads) for _ in range(depth))
        self.heads = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes)) for _ in range(2))

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the logits of the process tokens and those of the memory tokens; the loss is the sum over both."""
        process, memory = self.process(images), self.memory(images)
        for block in self.blocks:
            process, memory = block(process, memory)
        return [head(tokens.mean(1)) for head, tokens in zip(self.heads, (process, memory), strict=True)]


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return φ(q)(φ(k)ᵀv) / (φ(q)·Σφ(k)) with φ(x) = elu(x) + 1. [..., R, E], [..., N, E], [..., N, D] → [..., R, D]"""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2).unsqueeze(-1) + _SMALLEST)


def split(tokens: Tensor, heads: int) -> Tensor:
    """[B,N,D] → [B,heads,N,D/heads]"""
    return tokens.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(tokens: Tensor) -> Tensor:
    """[B,heads,N,D/heads] → [B,N,D]"""
    return tokens.transpose(1, 2).flatten(2)
