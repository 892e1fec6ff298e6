"""Scikit-learn's 1,797 digits of 8 x 8 pixels: trained on, and measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

IMAGE, CLASSES, TEST = 8, 10, 360
_BATCH = 64


class Digits(NamedTuple):
    """Images [N,8,8] with pixels from −1 to 1, and their labels [N]."""

    images: Tensor
    labels: Tensor


class Measurement(NamedTuple):
    """What was measured of a model on the test images."""

    right: list[bool]
    """whether each image was classified rightly"""
    seconds: list[float]
    """of each batch of equal size, the median over the repetitions"""
    flops: int
    """of one image, counted by torch: two for each multiply-add"""


def load(most: int | None = None) -> tuple[Digits, Digits]:
    """Return the digits to train on, at most ``most``, and the 360 to test."""
    from sklearn.datasets import load_digits

    data, labels = load_digits(return_X_y=True)
    images = torch.tensor(np.asarray(data), dtype=torch.float32).view(-1, IMAGE, IMAGE) / 8 - 1  # pixels are 0 to 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, targets = images[order], torch.tensor(np.asarray(labels))[order]
    train = slice(TEST, None if most is None else TEST + most)
    return Digits(images[train], targets[train]), Digits(images[:TEST], targets[:TEST])


def train(model: nn.Module, digits: Digits, epochs: int, seed: int, rate: float = 2e-3) -> None:
    """Train a model. Images are shifted by up to a pixel, so that 1,437 of them suffice."""
    shuffle = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(digits.images) // _BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(epochs):
        for images, labels in _batches(digits, shuffle):
            loss = torch.stack(
                [F.cross_entropy(logits, labels, label_smoothing=0.05) for logits in model(images)]
            ).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()


def _batches(digits: Digits, shuffle: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    for rows in torch.randperm(len(digits.images), generator=shuffle).split(_BATCH):
        shift = torch.randint(-1, 2, (2,), generator=shuffle).tolist()
        yield torch.roll(digits.images[rows], shift, (1, 2)), digits.labels[rows]


@torch.inference_mode()
def measure(models: dict[str, nn.Module], digits: Digits, batch: int = 36, repeats: int = 7) -> dict[str, Measurement]:
    """Return the measurement of each model on the same images. Models take turns batch by batch, so that a machine that
    slows down does so for all of them. A model's answer is that of its first logits."""
    parts = digits.images.split(batch)
    right: dict[str, list[bool]] = {}
    flops: dict[str, int] = {}
    for name, model in models.items():
        right[name] = (model(digits.images)[0].argmax(-1) == digits.labels).tolist()
        with FlopCounterMode(display=False) as counted:
            model(digits.images[:1])
        flops[name] = counted.get_total_flops()
    times = {name: [[0.0] * repeats for _ in parts] for name in models}
    for repeat in range(repeats):
        for number, images in enumerate(parts):
            for name, model in models.items():
                started = time.perf_counter()
                model(images)
                times[name][number][repeat] = time.perf_counter() - started
    return {
        name: Measurement(right[name], [float(np.median(part)) for part in times[name]], flops[name]) for name in models
    }
